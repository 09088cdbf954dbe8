"""Pictures of the EarlyCurve reproduction, with the paper's numbers as marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reproduce.curve_predictions import Array, Method
from thriftune.show.plot_style import ACCENT, INK, MUTED, SERIES, picture

_COLORS = (ACCENT, SERIES[1])  # of our method and of the other


def figure_8c(thetas: Sequence[float], by_source: Mapping[str, Sequence[tuple[float, float]]], path: Path) -> None:
    """Draw the shares of top 1 and top 3, by the source of the curves and by theta."""
    with picture(path, "EarlyCurve, SpotTune's Figure 8 (c): the best of 16 is found", len(by_source)) as panels:
        for axes, (name, shares) in zip(panels, by_source.items(), strict=True):
            top_1, top_3 = (100 * np.array(each) for each in zip(*shares, strict=True))
            axes.fill_between([0.2, 0.4], 70, 80, color=MUTED, alpha=0.4, linewidth=0, label="paper, top 3")
            axes.plot(thetas, top_3, marker="o", markersize=4, color=ACCENT, label="ours, top 3")
            axes.plot(thetas, top_1, marker="o", markersize=4, color=SERIES[1], label="ours, top 1")
            mark: Any = {"marker": "D", "color": INK, "linestyle": "none", "markersize": 7, "zorder": 5}
            axes.plot([0.7, 0.7], [100, 70], label="paper, top 3 and top 1", **mark)
            axes.set(xlabel="theta", ylabel="per cent of the groups", title=name[0].upper() + name[1:])
            axes.set(xlim=(0.05, 1.05), ylim=(0, 104))
        panels[-1].legend(loc="lower right")


def figure_11(
    curve: Array, theta: float, errors: Mapping[str, Array], methods: Mapping[str, Method], path: Path
) -> None:
    """Draw an example curve with predictions, and the errors by configuration."""
    steps = np.arange(1.0, len(curve) + 1)
    seen = int(np.ceil(theta * len(curve) - 1e-9))
    with picture(path, "EarlyCurve, SpotTune's Figure 11", 2) as (left, right):
        left.plot(steps, curve, color=MUTED, linewidth=1.2, label="later values")
        left.plot(steps[:seen], curve[:seen], color=INK, linewidth=1.4, label="observed values")
        later = range(seen + 1, len(curve) + 1)
        for color, (name, method) in zip(_COLORS, methods.items(), strict=True):
            left.plot(
                later, [method(steps[:seen], curve[:seen], at) for at in later], color=color, lw=2, label=name
            )
        left.set(xlabel="step", ylabel="validation loss", title="(a) An example")
        left.legend(loc="upper right")
        places = np.arange(len(next(iter(errors.values()))))
        for i, (name, each) in enumerate(errors.items()):
            right.bar(places + 0.4 * (i - 0.5), 100 * each, 0.4, color=_COLORS[i], label=name)
        right.set(xlabel="configuration", ylabel="per cent", title="(b) Error of the predicted last value")
        right.set_xticks(places, [str(each + 1) for each in places])
        right.grid(visible=False, axis="x")
        right.legend(loc="upper left")
