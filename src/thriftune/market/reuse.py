"""Keep this machine for the next job, or take a new one? SciSpot section 4.2.

A job of T hours is better off on the machine at hand, of age s, if E[T, s] <= r + E[T, 0]: a new machine costs a
restart of r hours, too. With the renewal of `running_time` that is lived(T, s) <= S(T, s) (r + E[T, 0]), or

    saved(s, T) = S(T, s) - lived(T, s) / (r + E[T, 0]) >= 0,

the share of the new machine's hours that keeping the old one saves. Where the hazard is a plain bathtub, short
jobs are kept and long ones are not; but a hazard with a hump, as real lifetimes give, keeps a short job and a long
one and moves one in between. So the table holds the whole answer, and the frontier says where it is a threshold.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thriftune.errors import SettingError
from thriftune.market.running_time import QUADRATURE_NODES, QUADRATURE_WEIGHTS, expected_hours, lived_hours
from thriftune.market.survival import Array, Survival, alive, checked, checked_above_zero

Bools = NDArray[np.bool_]

MAX_CELLS = 2000

_SAME = -1e-9
"""A machine without memory is as good as new: what the integral's last digits say does not count."""


def reuse(survival: Survival, hours: ArrayLike, age: ArrayLike, *, restart_hours: float = 0.0) -> bool | Bools:
    """Whether a job of so many hours is done at least as soon on a machine of this age as on a new one.

    Never where the machine is sure to be lost before.
    """
    hours, age = checked("hours", hours), checked("age", age)
    again = restart_hours + np.asarray(expected_hours(survival, hours, restart_hours=restart_hours))
    lived = np.asarray(lived_hours(survival, hours, age))
    told: Bools = _saved(alive(survival, hours, age), lived, again) >= _SAME
    return told[()]


class ReuseTable:
    """`reuse`, computed before for all ages and jobs, so that asking costs next to nothing.

    - `ages`, `hours`: its grids, `resolution_hours` apart, up to `end`; where machines have no end, up to
      `longest_hours`, which must then be given.
    - `saved`: the share of a new machine's hours that keeping the old one saves, by age and hours of the job.
    - `up_to`: the frontier: by age, jobs up to so many hours are all better kept.
    - `longest`: by age, no job of more hours is. Where it is the same as `up_to`, a threshold is the whole answer.
    """

    def __init__(
        self,
        survival: Survival,
        *,
        restart_hours: float = 0.0,
        resolution_hours: float = 0.1,
        longest_hours: float | None = None,
    ) -> None:
        restart = float(checked("restart_hours", restart_hours))
        step = checked_above_zero("resolution_hours", resolution_hours)
        span = min(survival.end, math.inf if longest_hours is None else longest_hours)
        if math.isinf(span):
            raise SettingError("these machines have no end: give longest_hours=, how far the table should go")
        checked_above_zero("longest_hours", span)
        cells = max(1, math.ceil(span / step - 1e-9))
        if cells > MAX_CELLS:
            raise SettingError(
                f"resolution_hours {step:g} cuts {span:g} h into {cells} steps, and {MAX_CELLS} is the most: "
                f"give {span / MAX_CELLS:g} or more"
            )
        self._step = span / cells
        self._end = survival.end
        self._span = span
        self.ages: Array = self._step * np.arange(cells + 1.0)
        self.hours: Array = self._step * np.arange(1.0, cells + 1.0)
        self.saved = self._compute(survival, restart)
        keep = (self.saved >= _SAME) & (self.ages[:, None] + self.hours < self._end)
        self.up_to = self._crossing(np.where(keep.all(axis=1), cells, keep.argmin(axis=1)))
        self.longest = self._crossing(np.where(keep.any(axis=1), cells - keep[:, ::-1].argmax(axis=1), 0))

    def reuse(self, hours: ArrayLike, age: ArrayLike) -> bool | Bools:
        """As the function does, but for jobs and ages within a step of where the answer changes."""
        hours, age = checked("hours", hours), checked("age", age)
        beyond = (np.maximum(hours, age) > self._span) & (age + hours < self._end)
        if beyond.any():
            raise SettingError(
                f"the table goes up to {self._span:g} h, and was asked for a job of {np.max(hours):g} h at age "
                f"{np.max(age):g} h: give a longer longest_hours="
            )
        told: Bools = (self._between(age, hours) >= _SAME) & (age + hours < self._end)
        return told[()]

    def _compute(self, survival: Survival, restart: float) -> Array:
        ages, hours = self.ages[:, None], self.hours
        starts = hours - self._step
        at = starts[:, None] + self._step * QUADRATURE_NODES
        cells = self._step * (alive(survival, at, ages[:, :, None]) @ QUADRATURE_WEIGHTS)
        lived = np.cumsum(cells, axis=1)
        there = alive(survival, hours, ages)
        with np.errstate(divide="ignore", over="ignore"):  # age 0 is the first row
            again = np.where(there[0] > 0.0, (restart + lived[0]) / there[0], math.inf)
        return _saved(there, lived, again)

    def _crossing(self, kept: NDArray[np.intp]) -> Array:
        """The hours at which the answer changes after so many of the grid's, by the line between both."""
        rows, last = np.arange(len(self.ages)), len(self.hours) - 1
        before = self.saved[rows, np.clip(kept - 1, 0, last)]
        after = self.saved[rows, np.clip(kept, 0, last)]
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.where(before > after, np.clip(before / (before - after), 0.0, 1.0), 0.0)
        inside = (kept > 0) & (kept <= last)
        found = self._step * (kept + np.where(inside, part, 0.0))
        return np.where(kept > 0, np.clip(found, 0.0, np.maximum(self._end - self.ages, 0.0)), 0.0)

    def _between(self, age: Array, hours: Array) -> Array:
        """`saved`, linear between the grid's ages and hours; below the shortest job, that one's."""
        row, down = self._place(age / self._step, len(self.ages))
        column, right = self._place(hours / self._step - 1.0, len(self.hours))
        below, beside = np.minimum(row + 1, len(self.ages) - 1), np.minimum(column + 1, len(self.hours) - 1)
        upper = (1.0 - right) * self.saved[row, column] + right * self.saved[row, beside]
        lower = (1.0 - right) * self.saved[below, column] + right * self.saved[below, beside]
        told: Array = (1.0 - down) * upper + down * lower
        return told

    def _place(self, position: Array, length: int) -> tuple[NDArray[np.intp], Array]:
        position = np.clip(position, 0.0, length - 1.0)
        whole = np.floor(position).astype(np.intp)
        return whole, position - whole


def _saved(alive_then: Array, lived: Array, again: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        told: Array = np.where(alive_then > 0.0, alive_then - np.where(lived > 0.0, lived / again, 0.0), -1.0)
    return told
