"""Pictures of the SciSpot reproduction, with the paper's numbers as marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reproduce.scispot_studies import Bag, Floats
from thriftune.market.lifetime import Bathtub, Fitted, KaplanMeier
from thriftune.show.plot_style import ACCENT, INK, MUTED, SERIES, dollar_axis, legend, picture

LIMIT_HOURS = 24.0
_LINES = {
    "memoryless": ("memoryless", SERIES[1]),
    "printed": ("the paper's rule", SERIES[2]),
    "ours": ("ours", ACCENT),
    "wrong": ("the model of other machines", INK),
}
POLICIES = {name: _LINES[name][0] for name in ("memoryless", "printed", "ours")}
"""The labels of the policies."""


def draw_fits(fits: Mapping[str, Fitted], curve: KaplanMeier, type: str, path: Path) -> None:
    """Draw the CDFs of the observations and of the fits, and the densities."""
    ages = np.linspace(0.0, float(curve.ages[-1]), 500)[1:]
    with picture(path, f"SciSpot, Figure 1: lifetimes of {type}", 2, height=4.6) as (left, right):
        # Early losses are fewest with the smallest A and the longest tau1, and most in the opposite case.
        fewest, most = (Bathtub(part, early, 0.8, 24.0) for part, early in ((0.4, 1.5), (0.5, 0.5)))
        early_ages = ages[ages <= LIMIT_HOURS]
        band: Any = {"color": MUTED, "alpha": 0.3, "linewidth": 0, "label": "the paper's fits"}
        left.fill_between(early_ages, fewest.cdf(early_ages), most.cdf(early_ages), **band)
        step_style: Any = {"where": "post", "color": INK, "linewidth": 1.2, "label": "Kaplan-Meier"}
        left.step(np.append(0.0, curve.ages), np.append(0.0, 1.0 - curve.alive), **step_style)
        for (name, fit), color in zip(fits.items(), SERIES, strict=False):
            style: Any = {"color": color, "linewidth": 2.2 if name == "Bathtub" else 1.2}
            # Its line may coincide with the exponential's.
            style["linestyle"] = "--" if name == "GompertzMakeham" else "-"
            left.plot(ages, fit.cdf(ages), label=name, **style)
            right.plot(ages, np.exp(fit.log_density(ages)), **style)
        left.set(xlabel="age, hours", ylabel="share preempted", ylim=(0, 1.02), title="CDF\n\n")
        right.set(xlabel="age, hours", ylabel="preempted per hour", yscale="log", title="Density\n\n")
        legend(left, columns=4)


def draw_added(jobs: Floats, added: Mapping[str, Floats], path: Path) -> None:
    """Draw the time that preemptions add, by job length."""
    with picture(path, "SciSpot, section 4.1: what preemptions add to a job", width=8.0) as (axes,):
        for (name, hours), color in zip(added.items(), (SERIES[1], SERIES[2], ACCENT), strict=True):
            axes.plot(jobs, np.where(np.isfinite(hours), hours / jobs, np.nan), color=color, label=name)
        axes.set(xlabel="the job, hours", ylabel="time added, over the job's", yscale="log")
        legend(axes, columns=3)


def draw_policies(
    title: str,
    positions: Floats,
    lines: Mapping[str, Floats],
    xlabel: str,
    path: Path,
    marks: Mapping[str, tuple[float, float]] | None = None,
) -> None:
    """Draw one line per policy over `positions`.

    `marks` has the paper's numbers by policy, as points (x, y).
    """
    with picture(path, f"SciSpot, {title}", width=8.0) as (axes,):
        for name, each in lines.items():
            label, color = _LINES[name]
            # The wrong model's line may coincide with the right one's, so it is dashed.
            stroke: Any = {"linewidth": 2.2} if name == "ours" else {"linewidth": 1.4}
            stroke |= {"linestyle": "--", "zorder": 3} if name == "wrong" else {}
            axes.plot(positions, each, color=color, label=label, **stroke)
        for number, (name, (x, y)) in enumerate((marks or {}).items()):
            style: Any = {"markersize": 12, "markerfacecolor": "white", "color": _LINES[name][1], "zorder": 4}
            axes.plot(x, y, "*", label=None if number else "the paper's", **style)
        axes.set(xlabel=xlabel, ylabel="share of jobs that fail")
        axes.set_ylim(0.0, 1.1 * max(float(np.nanmax(each)) for each in lines.values()))
        legend(axes, columns=4)


def draw_checkpoints(work: Sequence[float], shown: Mapping[str, Sequence[float]], path: Path) -> None:
    """Draw the overhead of each schedule, by hours of work."""
    with picture(path, "Checkpoints on SciSpot's bathtubs", width=8.0) as (axes,):
        for (name, each), color in zip(shown.items(), (SERIES[1], ACCENT), strict=True):
            axes.plot(work, each, "o-", color=color, label=name)
        axes.set(xlabel="the job, hours", ylabel="time beyond the work, over the work")
        axes.set_ylim(0.0)
        legend(axes)


def draw_bags(bags: Sequence[Bag], path: Path) -> None:
    """Draw the cost of the bag under each policy."""
    with picture(path, "SciSpot, Figure 11: what a bag of jobs costs", width=8.0) as (axes,):
        names = [each.policy.replace("_", " ") for each in bags]
        dollars, spreads = [each.dollars for each in bags], [each.spread for each in bags]
        axes.bar(names, dollars, 0.5, yerr=spreads, color=[MUTED, SERIES[2], ACCENT], capsize=4)
        for number, (each, spread) in enumerate(zip(dollars, spreads, strict=True)):
            above: Any = {"xytext": (0, 4), "textcoords": "offset points", "ha": "center", "color": INK}
            axes.annotate(f"${each:.2f}", (number, each + spread), **above)
        style: Any = {"markersize": 12, "markerfacecolor": "white", "color": INK, "zorder": 4}
        axes.plot([1, 2], 2 * [dollars[0] / 5.0], "*", label="the paper's: on-demand over 5", **style)
        axes.set(ylabel="dollars")
        dollar_axis(axes, log=False)
        legend(axes)
