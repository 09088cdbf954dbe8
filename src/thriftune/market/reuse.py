"""The choice between the present machine and a new one (SciSpot section 4.2).

`running_time` defines the notation. A job of T hours is expected to end no later on the present machine, of age s,
if E[T, s] <= r + E[T, 0], because a new machine needs a restart of r hours. With the equations of `running_time`
this is

    lived(T, s) <= S(T, s) (r + E[T, 0]), or
    saved(s, T) = S(T, s) - lived(T, s) / (r + E[T, 0]) >= 0,

where saved(s, T) is the share of the new machine's hours that reuse saves. If the hazard is a simple bathtub, the
machine is reused for all jobs up to some length. If the hazard has a hump, as real lifetimes do, the machine may
be reused for short and for long jobs, but not for jobs between. The table therefore holds the answer for every
job.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thriftune.errors import SettingError
from thriftune.market.running_time import QUADRATURE_NODES, QUADRATURE_WEIGHTS, expected_hours, lived_hours
from thriftune.market.survival import Array, Survival, alive, checked, checked_above_zero, count_cells

Bools = NDArray[np.bool_]

MAX_CELLS = 2000  # cells of the table in each direction; time and memory grow with the square

_MIN_SAVED = -1e-9
"""The machine is reused if the saved share is at least this. With a constant hazard the exact share is 0, which
rounding errors may make slightly negative."""


def reuse(survival: Survival, hours: ArrayLike, age: ArrayLike, *, restart_hours: float = 0.0) -> bool | Bools:
    """Return whether a job should run on the present machine, not on a new one.

    The job of `hours` is then expected to end no later on the present machine, of age `age`. The answer is false
    if the machine cannot live until the job's end.
    """
    hours, age = checked("hours", hours), checked("age", age)
    new_hours = restart_hours + np.asarray(expected_hours(survival, hours, restart_hours=restart_hours))
    lived = np.asarray(lived_hours(survival, hours, age))
    result: Bools = _saved(alive(survival, hours, age), lived, new_hours) >= _MIN_SAVED
    return result[()]


class ReuseTable:
    """A table of the answers of `reuse` for all ages and jobs, for fast queries.

    - `ages`, `hours`: the grids of machine ages and job lengths, about `resolution_hours` apart, up to `end`. If
      the machines have no end, they go up to `longest_hours`, which must then be given.
    - `saved`: the share of a new machine's hours that reuse saves, by age and job length.
    - `up_to`: the frontier, by age: the machine should be reused for all jobs up to this many hours.
    - `longest`: by age, the machine should not be reused for jobs of more hours than this. If it equals `up_to`,
      the machine is reused for jobs up to this length and for no others.
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
            raise SettingError("these machines have no age limit; give longest_hours=, the range of the table")
        checked_above_zero("longest_hours", span)
        cells = count_cells(span, step, MAX_CELLS, "machine life")
        self._step = span / cells
        self._end = survival.end
        self._span = span
        self.ages: Array = self._step * np.arange(cells + 1.0)
        self.hours: Array = self._step * np.arange(1.0, cells + 1.0)
        self.saved = self._compute_saved(survival, restart)
        reused = (self.saved >= _MIN_SAVED) & (self.ages[:, None] + self.hours < self._end)
        self.up_to = self._frontier(np.where(reused.all(axis=1), cells, reused.argmin(axis=1)))
        self.longest = self._frontier(np.where(reused.any(axis=1), cells - reused[:, ::-1].argmax(axis=1), 0))

    def reuse(self, hours: ArrayLike, age: ArrayLike) -> bool | Bools:
        """Return the answer of the function `reuse`, from the table.

        The table may be wrong for jobs and ages within one grid step of a change of the answer.
        """
        hours, age = checked("hours", hours), checked("age", age)
        beyond = (np.maximum(hours, age) > self._span) & (age + hours < self._end)
        if beyond.any():
            raise SettingError(
                f"a job of {np.max(hours):g} h at age {np.max(age):g} h is beyond the table, which ends at "
                f"{self._span:g} h; give a greater longest_hours="
            )
        result: Bools = (self._interpolated_saved(age, hours) >= _MIN_SAVED) & (age + hours < self._end)
        return result[()]

    def _compute_saved(self, survival: Survival, restart: float) -> Array:
        """Return `saved` at all grid points; `restart` is in hours."""
        ages, hours = self.ages[:, None], self.hours
        starts = hours - self._step
        nodes = starts[:, None] + self._step * QUADRATURE_NODES
        cells = self._step * (alive(survival, nodes, ages[:, :, None]) @ QUADRATURE_WEIGHTS)
        lived = np.cumsum(cells, axis=1)
        alive_at_end = alive(survival, hours, ages)
        new = alive_at_end[0]  # the first row has age 0
        with np.errstate(divide="ignore", over="ignore"):
            new_hours = np.where(new > 0.0, (restart + lived[0]) / new, math.inf)
        return _saved(alive_at_end, lived, new_hours)

    def _frontier(self, counts: NDArray[np.intp]) -> Array:
        """Return the job length in hours at which the answer changes, by age.

        The length is interpolated between grid points. `counts` has, by age, the number of grid points of `hours`
        before the change.
        """
        rows, last = np.arange(len(self.ages)), len(self.hours) - 1
        before = self.saved[rows, np.clip(counts - 1, 0, last)]
        after = self.saved[rows, np.clip(counts, 0, last)]
        with np.errstate(divide="ignore", invalid="ignore"):
            fraction = np.where(before > after, np.clip(before / (before - after), 0.0, 1.0), 0.0)
        interior = (counts > 0) & (counts <= last)
        hours = self._step * (counts + np.where(interior, fraction, 0.0))
        return np.where(counts > 0, np.clip(hours, 0.0, np.maximum(self._end - self.ages, 0.0)), 0.0)

    def _interpolated_saved(self, age: Array, hours: Array) -> Array:
        """Return `saved`, interpolated bilinearly.

        A job that is shorter than the shortest one of the grid counts as that one.
        """
        row, down = _split_position(age / self._step, len(self.ages))
        column, right = _split_position(hours / self._step - 1.0, len(self.hours))
        below, beside = np.minimum(row + 1, len(self.ages) - 1), np.minimum(column + 1, len(self.hours) - 1)
        upper = (1.0 - right) * self.saved[row, column] + right * self.saved[row, beside]
        lower = (1.0 - right) * self.saved[below, column] + right * self.saved[below, beside]
        saved: Array = (1.0 - down) * upper + down * lower
        return saved


def _split_position(position: Array, length: int) -> tuple[NDArray[np.intp], Array]:
    """Return the grid index and the fraction of a position.

    Positions are clipped to a grid of this length.
    """
    position = np.clip(position, 0.0, length - 1.0)
    whole = np.floor(position).astype(np.intp)
    return whole, position - whole


def _saved(alive_at_end: Array, lived: Array, new_hours: Array) -> Array:
    """Return saved(s, T) as the module's docstring defines it.

    The result is -1 if the machine cannot live until the job's end.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        used_share = np.where(lived > 0.0, lived / new_hours, 0.0)
        saved: Array = np.where(alive_at_end > 0.0, alive_at_end - used_share, -1.0)
    return saved
