"""What did a trial do to its machine, step by step? Its counters by window, as shades (PipeTune, Fig. 2).

Each counter has its own scale, from its least to its most over the study's windows on that kind of machine. Those
that hold an attempt's first step are left out of it, and may lie beyond: it would tell nothing of the others else.
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
"""The first row: not a counter, but what all of this is about."""

_SHADES = "·░▒▓█"
_MOST_LABEL, _WIDEST_CELL = 23, 4  # characters
_TURNED, _STEP = "turned", "up to step"


class Column(NamedTuple):
    """One window, or several that were merged. `turned`: the numbers, from 1, of the decisions that came into
    force with it."""

    first_step: int
    last_step: int
    steps: int
    seconds: float
    windows: int
    turned: Sequence[int]


class Row(NamedTuple):
    """`low` and `high`: over the study; `values`: by column, None: it was not counted."""

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
        """Where each value is between the low, 0, and the high, 1; what lies beyond is at the end."""
        across = self.high - self.low
        return [
            None if value is None else min(1.0, max(0.0, (value - self.low) / across)) if across else 0.0
            for value in self.values
        ]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """`still`: counters that were 0 in all of the study, and have no row."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    still: Sequence[str]


def heat_map(history: History, trial: int, turned_at: Sequence[int]) -> HeatMap:
    """A column for each window of the trial. `turned_at`: of each decision about it, the first window with it."""
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
            [number for number, at in enumerate(turned_at, 1) if at == i],
        )
        for i, window in enumerate(windows)
    ]
    readings = [_readings(window) for window in windows]
    here = dict.fromkeys([PACE, *sorted({name for reading in readings for name in reading})])
    rows = [Row(name, *ranges[name], [each.get(name) for each in readings]) for name in here if name in ranges]
    moving = [row for row in rows if row.low or row.high]
    return HeatMap(columns, moving, [row.name for row in rows if row not in moving])


def merged(found: HeatMap, most: int) -> HeatMap:
    """With so many columns at most: neighbours are made one, each by how long it was."""
    columns = found.columns
    count = max(1, most)
    if len(columns) <= count:
        return found
    bounds = [number * len(columns) // count for number in range(count + 1)]
    groups = [range(begin, end) for begin, end in pairwise(bounds)]
    rows = [row._replace(values=[_mean(row, columns, group) for group in groups]) for row in found.rows]
    return HeatMap([_one([columns[i] for i in group]) for group in groups], rows, found.still)


def _one(columns: Sequence[Column]) -> Column:
    return Column(
        columns[0].first_step,
        columns[-1].last_step,
        sum(column.steps for column in columns),
        fsum(column.seconds for column in columns),
        sum(column.windows for column in columns),
        [number for column in columns for number in column.turned],
    )


def _mean(row: Row, columns: Sequence[Column], group: range) -> float | None:
    told = [(columns[i], value) for i in group if (value := row.values[i]) is not None]
    weights = [column.steps if row.name == PACE else column.seconds for column, _ in told]
    weight = fsum(weights)
    total = fsum(each * value for each, (_, value) in zip(weights, told, strict=True))
    return total / weight if weight else None


def _readings(window: UsageMeasured) -> dict[str, float]:
    counted = {name: value for name, value in window.counters.items() if isfinite(value)}
    return {**counted, PACE: window.seconds / window.steps}


def _ranges(windows: Sequence[UsageMeasured]) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    for window in [window for window in windows if not window.cold] or windows:
        for name, value in _readings(window).items():
            low, high = found.get(name, (value, value))
            found[name] = min(low, value), max(high, value)
    return found


# --- in characters ----------------------------------------------------------------------------------------


def draw(found: HeatMap, width: int) -> list[str]:
    """As lines of at most so many characters: what was turned, a row for each counter, the steps, and a legend."""
    label = _label_width(found)
    cells = max(1, width - 2 - label - max((len(row.range) for row in found.rows), default=0))
    found = merged(found, cells)
    wide = max(1, min(_WIDEST_CELL, cells // max(1, len(found.columns))))
    lines = []
    if any(column.turned for column in found.columns):
        marks = "".join(_mark(column.turned).ljust(wide) for column in found.columns)
        lines.append(f"{_TURNED:<{label}} {marks}".rstrip())
    for row in found.rows:
        shades = "".join(_shade(share) * wide for share in row.shares())
        lines.append(f"{_cut(row.name):<{label}} {shades} {row.range}")
    return [*lines, f"{_STEP:<{label}} {_axis(found.columns, wide)}", _legend(found)]


def _legend(found: HeatMap) -> str:
    most = max((column.windows for column in found.columns), default=1)
    each = "a column is a window of steps" if most == 1 else f"a column is up to {most} windows of steps"
    return f"{each}; {_SHADES[0]} least of the study {_SHADES[1:]} most"


def _label_width(found: HeatMap) -> int:
    return max(len(_STEP), *(len(_cut(row.name)) for row in found.rows)) if found.rows else len(_STEP)


def _cut(name: str) -> str:
    return name if len(name) <= _MOST_LABEL else f"{name[: _MOST_LABEL - 1]}…"


def _mark(turned: Sequence[int]) -> str:
    """The decision's number, if that is one digit."""
    if not turned:
        return " "
    return str(turned[-1]) if turned[-1] < 10 else "+"


def _shade(share: float | None) -> str:
    return " " if share is None else _SHADES[min(len(_SHADES) - 1, int(share * len(_SHADES)))]


def _axis(columns: Sequence[Column], wide: int) -> str:
    """The last step of a column below its beginning, wherever there is room."""
    axis = ""
    for number, column in enumerate(columns):
        if not axis or number * wide > len(axis):
            axis = f"{axis.ljust(number * wide)}{column.last_step}"
    return axis
