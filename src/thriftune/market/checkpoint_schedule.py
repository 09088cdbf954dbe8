"""Checkpoint schedules for jobs on machines that may be preempted.

A job has `work_hours` of work. It alternates between a segment of work and a checkpoint (`checkpoint_hours`); the
last segment needs no checkpoint. If the machine is preempted during a segment or a checkpoint, the job resumes
from its last checkpoint on a new machine of age 0, `restart_hours` later. The expected time of every schedule is
computed in the same way, exactly for this process and for any hazard.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from thriftune.errors import SettingError
from thriftune.market.checkpoint_table import CheckpointTable
from thriftune.market.running_time import lived_hours, mean_hours
from thriftune.market.survival import HOURS_TOLERANCE, Survival, alive, checked, checked_above_zero

MIN_WORK_HOURS = 1.0 / 3600.0  # a second: shorter work is smaller than rounding errors
FREE_CHECKPOINT_SEGMENTS = 100  # segments of a Young-Daly schedule whose checkpoints take no time
MAX_SEGMENTS = 2000  # segments of one schedule; more would take too long to evaluate


@dataclass(frozen=True, slots=True)
class Job:
    """The work of a job and the hours that a checkpoint and a restart take.

    `work_hours` must be a second or more. `age` is the age of the machine on which the job starts, in hours.
    """

    work_hours: float
    checkpoint_hours: float
    restart_hours: float = 0.0
    age: float = 0.0

    def __post_init__(self) -> None:
        checked_above_zero("work_hours", self.work_hours)
        if self.work_hours < MIN_WORK_HOURS:
            raise SettingError(f"work_hours {self.work_hours:g}: must be a second or more, {MIN_WORK_HOURS:.2g}")
        for name in ("checkpoint_hours", "restart_hours", "age"):
            checked(name, getattr(self, name))


class CheckpointPlan(Protocol):
    """Decides how much work to do before the next checkpoint."""

    def next_segment(self, left_hours: float, age: float) -> float:
        """Return the hours of work before the next checkpoint, at most `left_hours`.

        `left_hours` is the work left, and `age` the age of the machine in hours.
        """
        ...


@dataclass(frozen=True, slots=True)
class Schedule:
    """A checkpoint plan for a job, with its expected running time.

    - `segments`: hours of work between checkpoints if the machine is never preempted. They cover all of the work,
      even if no machine can live that long.
    - `expected_hours`: expected hours until the job is done, including checkpoints, lost work and restarts; inf if
      the job may never be done.
    """

    plan: CheckpointPlan
    segments: tuple[float, ...]
    expected_hours: float

    def next_segment(self, left_hours: float, age: float) -> float:
        """Return the hours of work before the next checkpoint.

        Call it after a checkpoint or a restart.
        """
        return self.plan.next_segment(left_hours, age)


def best_schedule(job: Job, survival: Survival, *, resolution_hours: float = 0.05) -> Schedule:
    """Return the schedule with the least expected time.

    Dynamic programming over the work left and the machine's age finds the best schedule whose segments are
    multiples of `resolution_hours`. Young-Daly's schedule, whose segments may have any length, is returned instead
    if its expected time is less.
    """
    checked_above_zero("resolution_hours", resolution_hours)
    table = CheckpointTable(
        survival,
        job.work_hours,
        checkpoint_hours=job.checkpoint_hours,
        restart_hours=job.restart_hours,
        oldest_hours=job.age,
        resolution_hours=resolution_hours,
    )
    optimal, young_daly = _schedule(table, job, survival), young_daly_schedule(job, survival)
    return optimal if optimal.expected_hours <= young_daly.expected_hours else young_daly


def young_daly_hours(checkpoint_hours: float, mean_lifetime_hours: float) -> float:
    """Return Young's checkpoint interval in hours: sqrt(2 c M).

    c is the time of a checkpoint and M the mean lifetime of machines. The formula assumes a constant hazard.
    Daly's interval is the same to first order.
    """
    if not (0.0 <= checkpoint_hours < math.inf and mean_lifetime_hours >= 0.0):
        checked("checkpoint_hours", checkpoint_hours)  # raises the error that names the value
        checked("mean_lifetime_hours", mean_lifetime_hours, finite=False)
    return math.sqrt(2.0 * checkpoint_hours * mean_lifetime_hours) if checkpoint_hours else 0.0


def young_daly_schedule(job: Job, survival: Survival) -> Schedule:
    """Return the schedule with Young-Daly's interval.

    The interval uses the mean lifetime of the machines. If checkpoints take no time, the interval would be 0. The
    schedule then has `FREE_CHECKPOINT_SEGMENTS` segments. No schedule has more than about `MAX_SEGMENTS`.
    """
    interval = young_daly_hours(job.checkpoint_hours, mean_hours(survival))
    interval = interval or job.work_hours / FREE_CHECKPOINT_SEGMENTS
    return even_schedule(job, survival, max(interval, job.work_hours / MAX_SEGMENTS))


def even_schedule(job: Job, survival: Survival, interval_hours: float) -> Schedule:
    """Return the schedule with a checkpoint after every `interval_hours` of work.

    An infinite interval means no checkpoint.
    """
    checked_above_zero("interval_hours", interval_hours, finite=False)
    if job.work_hours > interval_hours * (MAX_SEGMENTS + 1):
        raise SettingError(
            f"interval_hours {interval_hours:g}: needs {job.work_hours / interval_hours:.3g} checkpoints, and "
            f"{MAX_SEGMENTS} is the maximum; give a longer interval"
        )
    whole = math.floor(job.work_hours / interval_hours + HOURS_TOLERANCE)
    segments = [interval_hours] * whole
    rest = job.work_hours - math.fsum(segments)
    return fixed_schedule(job, survival, [*segments, rest] if rest > HOURS_TOLERANCE else segments)


def fixed_schedule(job: Job, survival: Survival, segments: Sequence[float]) -> Schedule:
    """Return the schedule with these segments, whatever the age of the machine."""
    for segment in segments:
        checked_above_zero("segments:", segment)
    if not math.isclose(total := math.fsum(segments), job.work_hours, rel_tol=1e-6):
        raise SettingError(f"segments add up to {total:g} h, but the job has {job.work_hours:g} h of work")
    return _schedule(_FixedPlan(segments), job, survival)


class _FixedPlan:
    """A plan whose checkpoints do not depend on the age of the machine."""

    def __init__(self, segments: Sequence[float]) -> None:
        # Hours of work left after each segment, from the last segment to the first; rising from 0.
        self._left: list[float] = np.cumsum([0.0, *segments[:0:-1]]).tolist()

    def next_segment(self, left_hours: float, age: float) -> float:  # noqa: ARG002 (required by the protocol)
        return left_hours - self._left[bisect_left(self._left, left_hours - HOURS_TOLERANCE) - 1]


def _schedule(plan: CheckpointPlan, job: Job, survival: Survival) -> Schedule:
    """Return the schedule of a plan, with its segments and its expected hours.

    A path is the sequence of segments done on one machine while it lives. Let w_j be the work left at the start of
    segment j, p_j the probability that the machine is lost during it, and r the hours of a restart. Let G(w) be
    the expected hours on a new machine with w hours of work left, and let `lived` be the expected hours that the
    machine lives on its path. The expected hours of the job are

        E = lived + sum over the path of p_j (r + G(w_j)).

    G(w) depends on itself and on G of less work only. Therefore G is computed in order of rising w.
    """
    first = _Path(plan, job, survival, job.work_hours, job.age)
    paths: dict[float, _Path] = {}
    unvisited = list(first.left)
    while unvisited:
        left = unvisited.pop()
        if left not in paths:
            paths[left] = _Path(plan, job, survival, left, 0.0)
            unvisited += paths[left].left
    fresh_hours: dict[float, float] = {}  # G by work left
    for left in sorted(paths):
        path = paths[left]
        spent = path.expected_hours(job.restart_hours, fresh_hours, omit_first=True)
        fresh_hours[left] = spent / path.first_saved if path.first_saved > 0.0 else math.inf
    return Schedule(plan, _segments(plan, job), first.expected_hours(job.restart_hours, fresh_hours))


def _segments(plan: CheckpointPlan, job: Job) -> tuple[float, ...]:
    left, age, segments = job.work_hours, job.age, []
    while left > HOURS_TOLERANCE:
        segments.append(min(left, plan.next_segment(left, age)))
        left -= segments[-1]
        age += segments[-1] + job.checkpoint_hours
    return tuple(segments)


class _Path:
    """The segments done on one machine while it lives.

    `left` is the work left at the start of each segment, in hours. `first_saved` is the probability that the
    machine lives to the end of the first segment and its checkpoint.
    """

    def __init__(self, plan: CheckpointPlan, job: Job, survival: Survival, left: float, age: float) -> None:
        self.left: list[float] = []
        ages: list[float] = []
        lengths: list[float] = []
        while left > 0.0 and (age < survival.end or not ages):
            rest = left - plan.next_segment(left, age)
            # Rounded, because it is a dict key and must be the same number on every path.
            rest = round(rest, 9) if rest > HOURS_TOLERANCE else 0.0
            self.left.append(left)
            ages.append(age)
            lengths.append(left - rest + (job.checkpoint_hours if rest else 0.0))
            left, age = rest, age + lengths[-1]
        reached = np.cumsum(lengths)
        alive_at_end = alive(survival, reached, ages[0])
        self.first_saved = float(alive_at_end[0])
        self._lived = float(lived_hours(survival, reached[-1], ages[0]))
        # The probability that the machine is lost during each segment or its checkpoint.
        self._loss_probabilities = -np.diff(alive_at_end, prepend=1.0)

    def expected_hours(
        self, restart_hours: float, fresh_hours: dict[float, float], *, omit_first: bool = False
    ) -> float:
        """Return the expected hours E that the docstring of `_schedule` defines.

        `fresh_hours` has G by hours of work left. With `omit_first`, G of the first segment counts as 0: it is the
        unknown that the caller solves for.
        """
        after_loss = np.array([fresh_hours.get(left, 0.0) for left in self.left])
        after_loss[0] = 0.0 if omit_first else after_loss[0]
        losses = self._loss_probabilities
        return self._lived + float(losses @ np.where(losses > 0.0, restart_hours + after_loss, 0.0))
