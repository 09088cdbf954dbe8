"""The curves of a study (best value, learning curves), and a plot of a curve in braille characters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord

Points = Sequence[tuple[float, float]]

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # bits of a braille character, by row and column
_MIN_LOG_RATIO = 20.0  # a logarithmic axis shows more if the largest value is this many times the smallest


class BestSoFar(NamedTuple):
    """The best value after some trials have ended."""

    trials: int  # the number of trials that had ended
    value: float
    trial: int  # the id of the trial with that value


def best_so_far(history: History) -> list[BestSoFar]:
    """Return the best value of the first objective after each trial that ended, in the order in which they did.

    Only trials that may be the best one count, such as those that meet the constraints.
    """
    ended = [trial for trial in history.trials if trial.ended_at is not None]
    ended.sort(key=lambda trial: (trial.ended_at, trial.id))
    curve: list[BestSoFar] = []
    best: tuple[float, int] | None = None
    for number, trial in enumerate(ended, 1):
        value = trial.value if history.may_lead(trial) else None
        if value is not None and (best is None or history.better(value, best[0])):
            best = (value, trial.id)
        if best is not None:
            curve.append(BestSoFar(number, *best))
    return curve


def learning_curve(trial: TrialRecord, metric: str) -> list[tuple[float, float]]:
    """Return (step, value) of a metric, for all steps at which it is finite."""
    points = ((report.step, report.metrics.get(metric)) for report in trial.reports)
    return [(float(step), value) for step, value in points if value is not None and math.isfinite(value)]


def wants_log(values: Sequence[float]) -> bool:
    """Return whether a logarithmic axis suits the values: all positive, over more than an order of magnitude."""
    return bool(values) and min(values) > 0 and max(values) / min(values) >= _MIN_LOG_RATIO


def _end_labels(values: Sequence[float]) -> tuple[str, str]:
    """Return the highest and the lowest value as text, with enough digits to distinguish them."""
    high, low = max(values), min(values)
    labels = ((f"{high:.{digits}g}", f"{low:.{digits}g}") for digits in (4, 6, 9, 12, 17))
    return next(
        ((top, bottom) for top, bottom in labels if high == low or top != bottom), (f"{high:g}", f"{low:g}")
    )


def draw(
    points: Points, *, width: int = 60, height: int = 8, stairs: bool = False, log: bool | None = None
) -> list[str]:
    """Draw points, by ascending x, as lines of braille characters with axes; return no lines for no points.

    - `stairs`: each value holds until the next point.
    - `log`: a logarithmic y axis, which the last line states; None decides by wants_log().
    """
    if not points:
        return []
    log = wants_log([y for _, y in points]) if log is None else log
    scaled = [(x, math.log10(y) if log else y) for x, y in points]
    left, right = scaled[0][0], scaled[-1][0]
    low, high = min(y for _, y in scaled), max(y for _, y in scaled)
    columns, rows = 2 * width, 4 * height
    grid = [[0] * width for _ in range(height)]

    def dot_at(x: float, y: float) -> tuple[int, int]:
        column = round((x - left) / (right - left) * (columns - 1)) if right > left else 0
        # Halve the numbers first: the distance of two floats may overflow.
        fraction = (y / 2 - low / 2) / (high / 2 - low / 2) if high / 2 > low / 2 else 0.5
        return column, round((1 - fraction) * (rows - 1))

    def draw_line(a: tuple[int, int], b: tuple[int, int]) -> None:
        steps = max(abs(b[0] - a[0]), abs(b[1] - a[1]), 1)
        for i in range(steps + 1):
            column = a[0] + round((b[0] - a[0]) * i / steps)
            row = a[1] + round((b[1] - a[1]) * i / steps)
            grid[row // 4][column // 2] |= _DOTS[row % 4][column % 2]

    dots = [dot_at(x, y) for x, y in scaled]
    draw_line(dots[0], dots[0])
    for a, b in pairwise(dots):
        if stairs:
            corner = (b[0], a[1])
            draw_line(a, corner)
            a = corner
        draw_line(a, b)
    labels = [""] * height
    top, bottom = _end_labels([y for _, y in points])
    if top == bottom:
        labels[dots[0][1] // 4] = top
    else:
        labels[-1], labels[0] = bottom, top  # a single row gets the top label
    margin = max(map(len, labels))
    drawn = ["".join(chr(0x2800 + cell) if cell else " " for cell in cells).rstrip() for cells in grid]
    first, last = f"{points[0][0]:g}", f"{points[-1][0]:g}"
    axis = first if first == last else first + last.rjust(width - len(first))
    return [
        *(f"{label:>{margin}} ┤{cells}" for label, cells in zip(labels, drawn, strict=True)),
        f"{'':>{margin}} └{axis}{'  (logarithmic)' if log else ''}",
    ]
