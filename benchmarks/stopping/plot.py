"""A plot of regret over time, with a panel for each number of workers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.common import OUT, say
from benchmarks.stopping import methods
from benchmarks.stopping.report import TIMES, Comparison

_LOWEST_SHOWN = 1e-4  # lower regrets are drawn here, on a logarithmic axis


def plot(compared: Mapping[int, Comparison], path: Path = OUT / "benchmarks" / "stopping.png") -> None:
    """Draw mean regret over all tables; our methods have solid lines, peers dashed ones."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        say("no picture: it needs matplotlib; install it with: pip install 'thriftune[plot]'")
        return
    figure = Figure(figsize=(6.2 * len(compared), 5.6), dpi=150, layout="constrained")
    axes = figure.subplots(1, len(compared), squeeze=False, sharey=True)[0]
    names = list(dict.fromkeys(name for each in compared.values() for name in each.methods))
    colours = matplotlib.colormaps["tab20"].resampled(len(names))
    for panel, (workers, each) in zip(axes, compared.items(), strict=True):
        for name in each.methods:
            theirs = name in methods.PEERS
            panel.plot(
                TIMES,
                np.maximum(each.mean(name), _LOWEST_SHOWN),
                "--" if theirs else "-",
                color="black" if name == methods.BASELINE else colours(names.index(name)),
                linewidth=1.2 if theirs else 1.8,
                label=name,
            )
        title = f"{workers} at a time, {each.cases} tables and seeds"
        panel.set(xlabel="share of the time", title=title, yscale="log", xlim=(0, 1))
        panel.grid(color="#e5e7eb")
    axes[0].set_ylabel("mean regret")
    handles, labels = axes[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    say(f"the picture is {path}")
