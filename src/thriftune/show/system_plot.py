"""What does a trial's use of its machine look like? How long its steps took, and its counters as a heat map."""

from __future__ import annotations

from math import nan
from pathlib import Path
from typing import Any

from thriftune.errors import ThriftuneError
from thriftune.results.system_decisions import TrialStory
from thriftune.show.plot_style import ACCENT, INK, check_plot_path, picture
from thriftune.state.history import History
from thriftune.system.heat_map import PACE, HeatMap, Row, heat_map, merged
from thriftune.system.probing import in_words

_MOST_COLUMNS = 500
_MOST_TICKS = 12
_WIDTH, _ROW_HEIGHT, _STRIP_HEIGHT = 9.5, 0.2, 1.5  # inches
_COLORS = ("#f4f1ea", ACCENT, INK)


def plot_profile(name: str, history: History, story: TrialStory, path: Path) -> None:
    """Above: seconds a step, window by window; below: every counter, each on its own scale over the study.

    A vertical line stands where a knob was turned.
    """
    check_plot_path(path)
    if not story.windows:
        raise ThriftuneError(f"there is nothing to plot: of trial {story.trial} of {name!r} nothing was measured")
    found = merged(heat_map(history, story.trial, [each.from_window for each in story.decisions]), _MOST_COLUMNS)
    pace = next((row for row in found.rows if row.name == PACE), None)
    counters = [row for row in found.rows if row.name != PACE]
    below = max(1.0, _ROW_HEIGHT * len(counters))
    title = f"{name}, trial {story.trial}: {in_words(story.setting)}"
    heights = (_STRIP_HEIGHT, below)
    with picture(path, title, width=_WIDTH, height=sum(heights) + 1.4, stacked=heights) as (strip, panel):
        if pace is not None:
            _draw_pace(strip, pace)
        _draw_counters(panel, counters, found)
        for number, column in enumerate(found.columns):
            if column.turned:
                _mark(strip, panel, number, ", ".join(map(str, column.turned)))


def _draw_pace(axes: Any, pace: Row) -> None:
    values = [nan if value is None else value for value in pace.values]
    axes.stairs(values, list(range(len(values) + 1)), color=ACCENT, linewidth=2, baseline=None)
    axes.set(ylim=(0.0, 1.15 * max(values)), ylabel="seconds a step")
    axes.tick_params(labelbottom=False)


def _draw_counters(axes: Any, counters: list[Row], found: HeatMap) -> None:
    from matplotlib.colors import LinearSegmentedColormap  # late: needs the extra

    count, columns = len(counters), found.columns
    shares = [[nan if share is None else share for share in row.shares()] for row in counters]
    edges = list(range(len(columns) + 1)), list(range(count + 1))
    axes.grid(visible=False)
    if counters:
        shades = LinearSegmentedColormap.from_list("heat", _COLORS)
        drawn = axes.pcolormesh(*edges, shares, cmap=shades, vmin=0.0, vmax=1.0, rasterized=True)
        bar = axes.figure.colorbar(drawn, ax=axes, location="bottom", shrink=0.25, aspect=30, anchor=(1.0, 1.0))
        bar.set_ticks([0.0, 1.0], labels=["least of the study", "most"], fontsize=8)
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


def _mark(strip: Any, panel: Any, at: int, label: str) -> None:
    panel.axvline(at, color="white", linewidth=2.5)  # the next would be lost on dark cells
    for axes in (strip, panel):
        axes.axvline(at, color=INK, linestyle="--", linewidth=1.0)
    above = strip.get_xaxis_transform()
    strip.text(at, 1.02, label, transform=above, color=INK, fontsize=8, ha="center", va="bottom")
