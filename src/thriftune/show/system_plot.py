"""Plot how a trial used its machine: the time of its steps, and a heat map of its counters."""

from __future__ import annotations

from math import nan
from pathlib import Path
from typing import Any

from thriftune.errors import ThriftuneError
from thriftune.results.heat_map import PACE, CounterRow, HeatMap, heat_map, merge_columns
from thriftune.results.system_decisions import TrialUsage
from thriftune.show.plot_style import ACCENT, INK, check_plot_path, picture
from thriftune.state.history import History
from thriftune.system.knob_settings import describe

_MOST_COLUMNS = 500
_MOST_TICKS = 12
_WIDTH, _ROW_HEIGHT, _STRIP_HEIGHT = 9.5, 0.2, 1.5  # inches
_COLORS = ("#f4f1ea", ACCENT, INK)


def plot_profile(name: str, history: History, usage: TrialUsage, path: Path) -> None:
    """Write a picture of a trial's usage windows.

    The upper panel shows the seconds a step, the lower one each counter on its own scale. A vertical line marks
    each decision about its knobs.
    """
    check_plot_path(path)
    if not usage.windows:
        raise ThriftuneError(f"there is nothing to plot: of trial {usage.trial} of {name!r} nothing was measured")
    first_windows = [decision.from_window for decision in usage.decisions]
    heat = merge_columns(heat_map(history, usage.trial, first_windows), _MOST_COLUMNS)
    pace = next((row for row in heat.rows if row.name == PACE), None)
    counters = [row for row in heat.rows if row.name != PACE]
    below = max(1.0, _ROW_HEIGHT * len(counters))
    title = f"{name}, trial {usage.trial}: {describe(usage.setting)}"
    heights = (_STRIP_HEIGHT, below)
    with picture(path, title, width=_WIDTH, height=sum(heights) + 1.4, stacked=heights) as (strip, panel):
        if pace is not None:
            _draw_pace(strip, pace)
        _draw_counters(panel, counters, heat)
        for number, column in enumerate(heat.columns):
            if column.decisions:
                _mark(strip, panel, number, ", ".join(map(str, column.decisions)))


def _draw_pace(axes: Any, pace: CounterRow) -> None:
    values = [nan if value is None else value for value in pace.values]
    axes.stairs(values, list(range(len(values) + 1)), color=ACCENT, linewidth=2, baseline=None)
    axes.set(ylim=(0.0, 1.15 * max(values)), ylabel="seconds a step")
    axes.tick_params(labelbottom=False)


def _draw_counters(axes: Any, counters: list[CounterRow], heat: HeatMap) -> None:
    from matplotlib.colors import LinearSegmentedColormap  # late: needs the extra

    count, columns = len(counters), heat.columns
    shares = [[nan if share is None else share for share in row.shares()] for row in counters]
    edges = list(range(len(columns) + 1)), list(range(count + 1))
    axes.grid(visible=False)
    if counters:
        shades = LinearSegmentedColormap.from_list("heat", _COLORS)
        drawn = axes.pcolormesh(*edges, shares, cmap=shades, vmin=0.0, vmax=1.0, rasterized=True)
        bar = axes.figure.colorbar(drawn, ax=axes, location="bottom", shrink=0.25, aspect=30, anchor=(1.0, 1.0))
        bar.set_ticks([0.0, 1.0], labels=["lowest of the study", "highest"], fontsize=8)
        bar.outline.set_visible(False)
    middles = [number + 0.5 for number in range(count)]
    axes.set(ylim=(max(1, count), 0), xlim=(0, len(columns)), xlabel="step")
    axes.set_yticks(middles, [row.name for row in counters], fontsize=8)
    side = axes.secondary_yaxis("right")
    side.set_yticks(middles, [row.range for row in counters], fontsize=8)
    for each in (axes, side):
        each.tick_params(axis="y", length=0)
    shown = range(0, len(columns), -(-len(columns) // _MOST_TICKS))
    axes.set_xticks([number + 0.5 for number in shown], [str(columns[number].last_step) for number in shown])


def _mark(strip: Any, panel: Any, place: int, label: str) -> None:
    panel.axvline(place, color="white", linewidth=2.5)  # a dark line alone could not be seen on dark cells
    for axes in (strip, panel):
        axes.axvline(place, color=INK, linestyle="--", linewidth=1.0)
    above = strip.get_xaxis_transform()
    strip.text(place, 1.02, label, transform=above, color=INK, fontsize=8, ha="center", va="bottom")
