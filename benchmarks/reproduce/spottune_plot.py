"""Pictures of the SpotTune reproduction, with the paper's numbers as marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reproduce import Entry
from thriftune.show.plot_style import ACCENT, INK, MUTED, SERIES, dollar_axis, legend, picture

_COLORS = (MUTED, INK, SERIES[1], ACCENT)  # of the approaches
_PAPER_MARK: Any = {"marker": "D", "color": INK, "linestyle": "none", "markersize": 6, "zorder": 5}


def averages(entries: Sequence[Entry], path: Path) -> None:
    """Draw the averages over workloads."""
    saved = [each for each in entries if each.unit == "%"]
    times = [each for each in entries if each.unit == "times"]
    with picture(path, "SpotTune, averages over workloads", 2, width=7.0) as (left, right):
        _bars(left, saved, 100.0, origin=0.0)
        left.set(xlabel="per cent", title="Saved")
        left.set_xlim(left=min(0.0, left.get_xlim()[0]), right=100.0)
        right.set_xscale("log")
        _bars(right, times, 1.0, origin=1.0)
        right.set(xlabel="times", title="Speed, and performance for the cost")
        _plain_log(right.xaxis)
        right.axvline(1.0, color=INK, linewidth=0.8)
        legend(left, columns=2)


def _plain_log(axis: Any) -> None:
    """Label a logarithmic axis with plain numbers, not powers of ten."""
    from matplotlib.ticker import LogLocator, NullLocator  # lazy: needs the extra

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:g}")


def _bars(axes: Any, entries: Sequence[Entry], scale: float, origin: float) -> None:
    """Draw a bar from `origin` per entry, and the paper's number as a mark."""
    rows = np.arange(len(entries))
    ours = np.array([scale * each.ours for each in entries])
    axes.barh(rows, ours - origin, 0.6, origin, color=ACCENT, label="ours")
    spreads = [scale * (each.spread or 0.0) for each in entries]
    axes.errorbar(ours, rows, xerr=spreads, linestyle="none", ecolor=INK, elinewidth=1.0)
    papers = [np.nan if each.paper is None else scale * each.paper for each in entries]
    axes.plot(papers, rows, label="paper", **_PAPER_MARK)
    axes.set_yticks(rows, [each.what.replace(", ", ",\n", 1) for each in entries])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")


def figure_7(
    workloads: Sequence[str],
    approaches: Sequence[str],
    dollars: Sequence[Entry],
    hours: Sequence[Entry],
    worth: Sequence[Entry],
    path: Path,
) -> None:
    """Draw the costs, the hours and the performance for the cost.

    Entries are ordered by workload, then by approach. `worth` omits the last approach, whose value is 1.
    """
    with picture(path, "SpotTune, Figure 7", 3, width=6.0) as panels:
        shares = np.column_stack([_shaped(worth, workloads), np.ones(len(workloads))])
        for axes, title, values in (
            (panels[0], "(a) Cost", _shaped(dollars, workloads)),
            (panels[1], "(b) Hours until the best are selected", _shaped(hours, workloads)),
            (panels[2], "(c) Performance for the cost", shares),
        ):
            _grouped(axes, workloads, approaches, values)
            axes.set_title(title)
        dollar_axis(panels[0], log=True)
        panels[0].set_ylim(bottom=0.5 * min(each.ours for each in dollars))
        panels[1].set_ylabel("hours")
        panels[2].set(yscale="log", ylabel="of theta 0.7's", ylim=(0.5 * shares.min(), 1.5 * shares.max()))
        _plain_log(panels[2].yaxis)
        panels[0].figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(approaches)
        )


def _shaped(entries: Sequence[Entry], workloads: Sequence[str]) -> Any:
    return np.reshape([each.ours for each in entries], (len(workloads), -1))


def _grouped(axes: Any, workloads: Sequence[str], approaches: Sequence[str], values: Any) -> None:
    places, width = np.arange(len(workloads)), 0.8 / len(approaches)
    for i, approach in enumerate(approaches):
        offset = (i - (len(approaches) - 1) / 2) * width
        axes.bar(places + offset, values[:, i], width, color=_COLORS[i], label=approach)
    axes.set_xticks(places, workloads)
    axes.tick_params(axis="x", labelrotation=20)
    axes.grid(visible=False, axis="x")


def figure_8(thetas: Sequence[float], curves: Mapping[str, Mapping[str, Sequence[float]]], path: Path) -> None:
    """Draw the cost and the time by theta and workload.

    Values are shares of those at theta 1.
    """
    with picture(path, "SpotTune, Figure 8 (a) and (b)", len(curves)) as panels:
        for axes, (what, by_workload) in zip(panels, curves.items(), strict=True):
            for i, (name, shares) in enumerate(by_workload.items()):
                axes.plot(thetas, shares, marker="o", markersize=4, color=SERIES[i], label=name)
            axes.plot([0, 1], [0, 1], "--", color=INK, linewidth=1.0, label="paper: in proportion")
            axes.set(xlabel="theta", ylabel="of that at theta 1", title=what.capitalize(), xlim=(0, 1.03))
            axes.set_ylim(bottom=0)
        panels[-1].legend(loc="lower right")


def figure_9(paper: float, free: Mapping[str, float], path: Path) -> None:
    """Draw the shares of free steps: the paper's average, and ours by workload."""
    with picture(path, "SpotTune, Figure 9: free steps at theta 0.7", width=7.0) as (axes,):
        places = np.arange(len(free))
        bars = axes.bar(places, [100 * each for each in free.values()], 0.55, color=ACCENT, label="ours")
        axes.bar_label(bars, fmt="%.1f", padding=3)
        axes.axhline(100 * paper, color=INK, linestyle="--", linewidth=1.2, label="paper, on average")
        axes.set_xticks(places, list(free))
        axes.set(ylabel="per cent of the steps", ylim=(0, 100))
        axes.grid(visible=False, axis="x")
        legend(axes)
