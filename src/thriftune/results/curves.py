"""Which way does it go? The curves of a study, and how to draw one in characters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord

Points = Sequence[tuple[float, float]]

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille character, by row and column
_LOG_FROM_RATIO = 20.0


class BestSoFar(NamedTuple):
    trials: int  # that had ended by then
    value: float
    trial: int  # whose value it is


def best_so_far(history: History) -> list[BestSoFar]:
    """Return the best value, by the first objective, after each trial that ended, in the order in which they did.

    Those trials count that compete to be the best.
    """
    done = [trial for trial in history.trials if trial.ended_at is not None]
    done.sort(key=lambda trial: (trial.ended_at, trial.id))
    curve: list[BestSoFar] = []
    best: tuple[float, int] | None = None
    for number, trial in enumerate(done, 1):
        value = trial.value if history.may_lead(trial) else None
        if value is not None and (best is None or history.better(value, best[0])):
            best = (value, trial.id)
        if best is not None:
            curve.append(BestSoFar(number, *best))
    return curve


def learning_curve(trial: TrialRecord, metric: str) -> list[tuple[float, float]]:
    """The metric by step, where it is a number."""
    points = ((report.step, report.metrics.get(metric)) for report in trial.reports)
    return [(float(step), value) for step, value in points if value is not None and math.isfinite(value)]


def wants_log(values: Sequence[float]) -> bool:
    """Whether a logarithmic axis shows more: all above zero, over several orders of magnitude."""
    return bool(values) and min(values) > 0 and max(values) / min(values) >= _LOG_FROM_RATIO


def _ends(values: Sequence[float]) -> tuple[str, str]:
    """The highest and the lowest, with as many digits as it takes to tell them apart."""
    high, low = max(values), min(values)
    ends = ((f"{high:.{digits}g}", f"{low:.{digits}g}") for digits in (4, 6, 9, 12, 17))
    return next(((top, bottom) for top, bottom in ends if high == low or top != bottom), (f"{high:g}", f"{low:g}"))


def draw(
    points: Points, *, width: int = 60, height: int = 8, stairs: bool = False, log: bool | None = None
) -> list[str]:
    """The points, x rising, as lines of braille with their axes; `stairs`: each value holds until the next.

    A logarithmic y axis if `log`, by default where that shows more; the lowest line says so. Empty without points.
    """
    if not points:
        return []
    log = wants_log([y for _, y in points]) if log is None else log
    scaled = [(x, math.log10(y) if log else y) for x, y in points]
    left, right = scaled[0][0], scaled[-1][0]
    low, high = min(y for _, y in scaled), max(y for _, y in scaled)
    columns, rows = 2 * width, 4 * height
    grid = [[0] * width for _ in range(height)]

    def place(x: float, y: float) -> tuple[int, int]:
        column = round((x - left) / (right - left) * (columns - 1)) if right > left else 0
        # Halved first: the distance of two floats may be beyond the largest one.
        part = (y / 2 - low / 2) / (high / 2 - low / 2) if high / 2 > low / 2 else 0.5
        return column, round((1 - part) * (rows - 1))

    def line(a: tuple[int, int], b: tuple[int, int]) -> None:
        steps = max(abs(b[0] - a[0]), abs(b[1] - a[1]), 1)
        for i in range(steps + 1):
            column = a[0] + round((b[0] - a[0]) * i / steps)
            row = a[1] + round((b[1] - a[1]) * i / steps)
            grid[row // 4][column // 2] |= _DOTS[row % 4][column % 2]

    places = [place(x, y) for x, y in scaled]
    line(places[0], places[0])
    for a, b in pairwise(places):
        if stairs:
            corner = (b[0], a[1])
            line(a, corner)
            a = corner
        line(a, b)
    labels = [""] * height
    top, bottom = _ends([y for _, y in points])
    if top == bottom:
        labels[places[0][1] // 4] = top
    else:
        labels[-1], labels[0] = bottom, top  # of a single row, the top
    margin = max(map(len, labels))
    drawn = ["".join(chr(0x2800 + cell) if cell else " " for cell in cells).rstrip() for cells in grid]
    first, last = f"{points[0][0]:g}", f"{points[-1][0]:g}"
    axis = first if first == last else first + last.rjust(width - len(first))
    return [
        *(f"{label:>{margin}} ┤{cells}" for label, cells in zip(labels, drawn, strict=True)),
        f"{'':>{margin}} └{axis}{'  (logarithmic)' if log else ''}",
    ]
