"""When should a job save its state on a machine that may be lost?

A job has `work_hours` to do. It does a segment of it, saves (`checkpoint_hours`), does the next one, and needs not
save at the end. If the machine is lost, during a segment or while saving, the job goes on from its last checkpoint
on a fresh machine, of age 0, `restart_hours` later. Every schedule is judged by the same evaluator, which follows
this process exactly, whatever the hazard.
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

MIN_WORK_HOURS = 1.0 / 3600.0
MAX_SEGMENTS = 2000


@dataclass(frozen=True, slots=True)
class Job:
    """What there is to do, and what it takes to save it and to begin again. `age`: the machine's, at the start.

    A job is of a second at least: what is shorter is not told from nothing.
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
    """How much work to do before the next checkpoint, by what is left and how old the machine is."""

    def next_segment(self, left_hours: float, age: float) -> float: ...


@dataclass(frozen=True, slots=True)
class Schedule:
    """A plan for a job, and what comes of it.

    - `segments`: hours of work between the checkpoints, while the machine is not lost; the last ones may come
      after any machine is.
    - `expected_hours`: until the job is done, with all it saves, loses and begins again; inf if it may never be.
    """

    plan: CheckpointPlan
    segments: tuple[float, ...]
    expected_hours: float

    def next_segment(self, left_hours: float, age: float) -> float:
        """With so much work left, at a checkpoint or after a restart, on a machine of this age."""
        return self.plan.next_segment(left_hours, age)


def best_schedule(job: Job, survival: Survival, *, resolution_hours: float = 0.05) -> Schedule:
    """The schedule that takes the least expected time, of those with segments of whole steps of the resolution.

    By dynamic programming over the work left and the machine's age. What a step of the resolution cannot express
    may be better yet: where Young-Daly's schedule is, it is given.
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
    ours, theirs = _judged(table, job, survival), young_daly_schedule(job, survival)
    return ours if ours.expected_hours <= theirs.expected_hours else theirs


def young_daly_hours(checkpoint_hours: float, mean_lifetime_hours: float) -> float:
    """The interval of Young and, to first order, of Daly, for machines without memory: sqrt(2 c M)."""
    if not (0.0 <= checkpoint_hours < math.inf and mean_lifetime_hours >= 0.0):
        checked("checkpoint_hours", checkpoint_hours)  # says what is wrong
        checked("mean_lifetime_hours", mean_lifetime_hours, finite=False)
    return math.sqrt(2.0 * checkpoint_hours * mean_lifetime_hours) if checkpoint_hours else 0.0


def young_daly_schedule(job: Job, survival: Survival) -> Schedule:
    """Young-Daly's interval by the mean lifetime of these machines. Without a cost it would save all the time: it
    then saves a hundred times; and never more than `MAX_SEGMENTS` times."""
    interval = young_daly_hours(job.checkpoint_hours, mean_hours(survival)) or 1e-2 * job.work_hours
    return even_schedule(job, survival, max(interval, job.work_hours / MAX_SEGMENTS))


def even_schedule(job: Job, survival: Survival, interval_hours: float) -> Schedule:
    """A checkpoint after every so many hours of work; inf: none."""
    checked_above_zero("interval_hours", interval_hours, finite=False)
    if job.work_hours > interval_hours * (MAX_SEGMENTS + 1):
        raise SettingError(
            f"interval_hours {interval_hours:g}: would save {job.work_hours / interval_hours:.3g} times, and "
            f"{MAX_SEGMENTS} is the most: give a longer one"
        )
    whole = math.floor(job.work_hours / interval_hours + HOURS_TOLERANCE)
    segments = [interval_hours] * whole
    rest = job.work_hours - math.fsum(segments)
    return fixed_schedule(job, survival, [*segments, rest] if rest > HOURS_TOLERANCE else segments)


def fixed_schedule(job: Job, survival: Survival, segments: Sequence[float]) -> Schedule:
    """Checkpoints between these segments of work, on whatever machine they are done."""
    for segment in segments:
        checked_above_zero("segments:", segment)
    if not math.isclose(total := math.fsum(segments), job.work_hours, rel_tol=1e-6):
        raise SettingError(f"segments add up to {total:g} h, and the job has {job.work_hours:g} h of work")
    return _judged(_Fixed(segments), job, survival)


class _Fixed:
    """Checkpoints at the same points of the work, however old the machine is."""

    def __init__(self, segments: Sequence[float]) -> None:
        # Left after the last segment, after the one before, and so on.
        self._left: list[float] = np.cumsum([0.0, *segments[:0:-1]]).tolist()

    def next_segment(self, left_hours: float, age: float) -> float:  # noqa: ARG002 (the protocol's)
        return left_hours - self._left[bisect_left(self._left, left_hours - HOURS_TOLERANCE) - 1]


def _judged(plan: CheckpointPlan, job: Job, survival: Survival) -> Schedule:
    """The plan, and what is to be expected of it.

    Let a path be the segments that follow one another while the machine lives, w_j the work left at the start of
    the j-th, and p_j the probability that the machine is lost in it. With G(w) what is to be expected of a fresh
    machine with work w left, and the hours the machine is expected to live of its path,

        E = lived + sum over the path of p_j (r + G(w_j)).

    The path of G(w) itself begins with w, and goes on with less: G follows from the least work up.
    """
    first = _Path(plan, job, survival, job.work_hours, job.age)
    paths: dict[float, _Path] = {}
    todo = list(first.left)
    while todo:
        left = todo.pop()
        if left not in paths:
            paths[left] = _Path(plan, job, survival, left, 0.0)
            todo += paths[left].left
    fresh: dict[float, float] = {}
    for left in sorted(paths):
        path = paths[left]
        spent = path.expected(job.restart_hours, fresh, but_first=True)
        fresh[left] = spent / path.first_saved if path.first_saved > 0.0 else math.inf
    return Schedule(plan, _segments(plan, job), first.expected(job.restart_hours, fresh))


def _segments(plan: CheckpointPlan, job: Job) -> tuple[float, ...]:
    left, age, segments = job.work_hours, job.age, []
    while left > HOURS_TOLERANCE:
        segments.append(min(left, plan.next_segment(left, age)))
        left -= segments[-1]
        age += segments[-1] + job.checkpoint_hours
    return tuple(segments)


class _Path:
    """What is done on one machine, while it lives: the work left at each segment's start, and how it may go."""

    def __init__(self, plan: CheckpointPlan, job: Job, survival: Survival, left: float, age: float) -> None:
        self.left: list[float] = []
        ages: list[float] = []
        lengths: list[float] = []
        while left > 0.0 and (age < survival.end or not ages):
            rest = left - plan.next_segment(left, age)
            rest = (
                round(rest, 9) if rest > HOURS_TOLERANCE else 0.0
            )  # rounded: the same work on every path, and a key
            self.left.append(left)
            ages.append(age)
            lengths.append(left - rest + (job.checkpoint_hours if rest else 0.0))
            left, age = rest, age + lengths[-1]
        reached = np.cumsum(lengths)
        alive_then = alive(survival, reached, ages[0])
        self.first_saved = float(alive_then[0])
        self._lived = float(lived_hours(survival, reached[-1], ages[0]))
        self._lost = -np.diff(alive_then, prepend=1.0)

    def expected(self, restart: float, fresh: dict[float, float], *, but_first: bool = False) -> float:
        """E above; `but_first`: without the first segment's G, which is not known yet and may be solved for."""
        again = np.array([fresh.get(left, 0.0) for left in self.left])
        again[0] = 0.0 if but_first else again[0]
        return self._lived + float(self._lost @ np.where(self._lost > 0.0, restart + again, 0.0))
