"""Make a heat map of a trial's counters by usage window (PipeTune, Fig. 2), and draw it in characters.

Each counter has its own scale, from its lowest to its highest value over the study's windows on that kind of
machine. Windows with an attempt's first step do not count for the scale, and may lie beyond it: such a step often
takes so long that the other windows would all look the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum, isfinite
from typing import NamedTuple

from thriftune.common.formatting import format_short
from thriftune.state.events import UsageMeasured
from thriftune.state.history import History
from thriftune.system.counters import GAUGES

PACE = "seconds_a_step"
"""The name of the first row, which is not a counter."""

_SHADES = "·░▒▓█"
_MOST_LABEL, _WIDEST_CELL = 23, 4  # characters
_DECISIONS, _STEP = "decision", "up to step"


class Column(NamedTuple):
    """A window, or several merged windows. `decisions`: the numbers of the decisions that begin here, from 1."""

    first_step: int
    last_step: int
    steps: int
    seconds: float
    windows: int
    decisions: Sequence[int]


class CounterRow(NamedTuple):
    """A counter's value in each column; None where it was not counted. `low` and `high` are over the study."""

    name: str
    low: float
    high: float
    values: Sequence[float | None]

    @property
    def unit(self) -> str:
        if self.name == PACE:
            return "s"
        amount = "B" if self.name.endswith("_bytes") else "s" if self.name.endswith("_seconds") else ""
        return amount if self.name in GAUGES else f"{amount}/s"

    @property
    def range(self) -> str:
        ends = dict.fromkeys((format_short(self.low), format_short(self.high)))
        return f"{' to '.join(ends)} {self.unit}".rstrip()

    def shares(self) -> list[float | None]:
        """Return each value's place between low, 0, and high, 1; values beyond are cut to 0 or 1."""
        width = self.high - self.low
        return [
            None if value is None else min(1.0, max(0.0, (value - self.low) / width)) if width else 0.0
            for value in self.values
        ]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The counters of a trial. `zero_counters`: those that are 0 in all of the study; they have no row."""

    columns: Sequence[Column]
    rows: Sequence[CounterRow]
    zero_counters: Sequence[str]


def heat_map(history: History, trial: int, first_windows: Sequence[int]) -> HeatMap:
    """Return a heat map with a column for each window. `first_windows`: the first window of each decision."""
    windows = [window.usage for window in history.trials[trial].windows]
    kinds = {window.kind for window in windows}
    ranges = _ranges([w.usage for t in history.trials for w in t.windows if w.usage.kind in kinds])
    columns = [
        Column(
            window.step - window.steps + 1,
            window.step,
            window.steps,
            window.seconds,
            1,
            [number for number, at in enumerate(first_windows, 1) if at == i],
        )
        for i, window in enumerate(windows)
    ]
    readings = [_readings(window) for window in windows]
    names = dict.fromkeys([PACE, *sorted({name for reading in readings for name in reading})])
    rows = [
        CounterRow(name, *ranges[name], [each.get(name) for each in readings]) for name in names if name in ranges
    ]
    shown = [row for row in rows if row.low or row.high]
    return HeatMap(columns, shown, [row.name for row in rows if row not in shown])


def merge_columns(heat: HeatMap, most: int) -> HeatMap:
    """Return the heat map with at most this many columns; neighbours are merged, weighted by their duration."""
    columns = heat.columns
    count = max(1, most)
    if len(columns) <= count:
        return heat
    bounds = [number * len(columns) // count for number in range(count + 1)]
    groups = [range(begin, end) for begin, end in pairwise(bounds)]
    rows = [row._replace(values=[_mean(row, columns, group) for group in groups]) for row in heat.rows]
    return HeatMap([_merged([columns[i] for i in group]) for group in groups], rows, heat.zero_counters)


def _merged(columns: Sequence[Column]) -> Column:
    return Column(
        columns[0].first_step,
        columns[-1].last_step,
        sum(column.steps for column in columns),
        fsum(column.seconds for column in columns),
        sum(column.windows for column in columns),
        [number for column in columns for number in column.decisions],
    )


def _mean(row: CounterRow, columns: Sequence[Column], group: range) -> float | None:
    counted = [(columns[i], value) for i in group if (value := row.values[i]) is not None]
    weights = [column.steps if row.name == PACE else column.seconds for column, _ in counted]
    weight = fsum(weights)
    total = fsum(each * value for each, (_, value) in zip(weights, counted, strict=True))
    return total / weight if weight else None


def _readings(window: UsageMeasured) -> dict[str, float]:
    counted = {name: value for name, value in window.counters.items() if isfinite(value)}
    return {**counted, PACE: window.seconds / window.steps}


def _ranges(windows: Sequence[UsageMeasured]) -> dict[str, tuple[float, float]]:
    ranges: dict[str, tuple[float, float]] = {}
    for window in [window for window in windows if not window.cold] or windows:
        for name, value in _readings(window).items():
            low, high = ranges.get(name, (value, value))
            ranges[name] = min(low, value), max(high, value)
    return ranges


# --- in characters ----------------------------------------------------------------------------------------


def draw(heat: HeatMap, width: int) -> list[str]:
    """Return lines of at most `width` characters: decisions, a row for each counter, steps, and a legend."""
    label = _label_width(heat)
    cells = max(1, width - 2 - label - max((len(row.range) for row in heat.rows), default=0))
    heat = merge_columns(heat, cells)
    wide = max(1, min(_WIDEST_CELL, cells // max(1, len(heat.columns))))
    lines = []
    if any(column.decisions for column in heat.columns):
        marks = "".join(_mark(column.decisions).ljust(wide) for column in heat.columns)
        lines.append(f"{_DECISIONS:<{label}} {marks}".rstrip())
    for row in heat.rows:
        shades = "".join(_shade(share) * wide for share in row.shares())
        lines.append(f"{_cut(row.name):<{label}} {shades} {row.range}")
    return [*lines, f"{_STEP:<{label}} {_axis(heat.columns, wide)}", _legend(heat)]


def _legend(heat: HeatMap) -> str:
    most = max((column.windows for column in heat.columns), default=1)
    each = "a column is a window of steps" if most == 1 else f"a column is up to {most} windows of steps"
    return f"{each}; {_SHADES[0]} lowest of the study {_SHADES[1:]} highest"


def _label_width(heat: HeatMap) -> int:
    return max(len(_STEP), *(len(_cut(row.name)) for row in heat.rows)) if heat.rows else len(_STEP)


def _cut(name: str) -> str:
    return name if len(name) <= _MOST_LABEL else f"{name[: _MOST_LABEL - 1]}…"


def _mark(decisions: Sequence[int]) -> str:
    """Return the last decision's number if it has one digit, else "+"."""
    if not decisions:
        return " "
    return str(decisions[-1]) if decisions[-1] < 10 else "+"


def _shade(share: float | None) -> str:
    return " " if share is None else _SHADES[min(len(_SHADES) - 1, int(share * len(_SHADES)))]


def _axis(columns: Sequence[Column], wide: int) -> str:
    """Return each column's last step, at the place where the column begins; steps without room are left out."""
    axis = ""
    for number, column in enumerate(columns):
        if not axis or number * wide > len(axis):
            axis = f"{axis.ljust(number * wide)}{column.last_step}"
    return axis
