"""What is to be expected of a plan? Seconds and dollars, stage by stage.

All trials of a stage wait for each other at its end, so that the longest path of the DAG is the sum of the stages'
longest paths, and its expectation the sum of theirs. A stage that holds h machines, of which `new` were not there
before, takes

    ready + train,    ready = queue + longest of `new` inits, or 0 if there are none,
                      train = until the last of its trials is done,

and costs, where machines are billed, (h - new) (ready + train) + new (ready - queue + train) machine-seconds, the
download of `new` machines, and at the end of a machine's life what is missing to the minimum; where functions are
billed, the slots of each trial while it trains. Whoever is let go is the oldest that there is, so that as few as
can be are short of the minimum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from thriftune.errors import SettingError
from thriftune.planning.allocation import Allocation, StageAllocation, fair
from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.dag import machines_kept, queued, train_seconds
from thriftune.planning.job import JobSpec, Stage
from thriftune.planning.profile import Profile, slownesses

Floats = NDArray[np.float64]
Cohorts = list[tuple[int, float]]
"""Machines that came together and the seconds that they have been billed for, the oldest first."""

SAMPLES = 1000
"""Draws behind an expectation that has no formula; fewer where so many trials are drawn that they even out."""
_MOST_DRAWN = 500_000
_FEWEST_SAMPLES = 32
_LOSSY_SAMPLES = 200
_SEED = 20_210_426


@dataclass(frozen=True, slots=True)
class StageEstimate:
    """Of a stage, on average."""

    seconds: float
    dollars: float


@dataclass(frozen=True, slots=True)
class _Training:
    """Of a stage's trials: seconds until the last is done, their standard deviation, and those of one trial."""

    seconds: float
    spread: float
    each: float


@dataclass(frozen=True)
class CostModel:
    """`at_a_time`: trials that may run side by side, None: all. `there`: the machines that a job begins with, if
    any; they are past the least that is billed."""

    spec: JobSpec
    profile: Profile
    at_a_time: int | None = None
    there: StageAllocation | None = None
    _known: dict[tuple[Stage, int, Allocation], tuple[CloudProfile, _Training]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def allocations(self, i: int) -> list[Allocation]:
        """That stage `i` may have, by their slots."""
        return fair(self.spec.stages[i].trials, self.profile.most_workers, self.at_a_time)

    def predict(self, choices: Sequence[StageAllocation]) -> list[StageEstimate]:
        """Stage by stage; their sums are the job's."""
        found: list[StageEstimate] = []
        before = self.there
        cohorts: Cohorts = [] if before is None else [(before.machines, math.inf)]
        for i, choice in enumerate(choices):
            kept = machines_kept(before, choice)
            dollars = 0.0
            if before is not None:
                cohorts, short = released(cohorts, before.machines - kept, before.cloud.least_billed)
                dollars = short * before.cloud.dollars_per_second
            seconds, cost, billed = (float(each) for each in self.expected(i, choice, np.array(kept)))
            cohorts = [(count, age + seconds) for count, age in cohorts]
            if choice.machines > kept:
                cohorts.append((choice.machines - kept, billed))
            found.append(StageEstimate(seconds, dollars + cost))
            before = choice
        if before is not None:
            short = released(cohorts, before.machines, before.cloud.least_billed)[1]
            found[-1] = StageEstimate(
                found[-1].seconds, found[-1].dollars + short * before.cloud.dollars_per_second
            )
        return found

    def expected(self, i: int, choice: StageAllocation, kept: NDArray[np.int_]) -> tuple[Floats, Floats, Floats]:
        """Of stage `i`, for each number of machines that were there before: its seconds, its dollars but for
        minimums, and the seconds for which new machines are billed (inf where there are none)."""
        cloud, new = choice.cloud, choice.machines - kept
        queue = np.where(new > 0, cloud.queue_latency.mean, 0.0)
        init = cloud.init_latency.mean_of_longest(new)
        train = self.train_seconds(i, cloud, choice.allocation)
        seconds, billed = queue + init + train, init + train
        data = new * (self.gb(cloud) * cloud.data_price)
        if cloud.billing == "per_function":
            dollars = data + self.function_dollars(i, cloud, choice.allocation)
        else:
            dollars = data + cloud.dollars_per_second * (kept * seconds + new * billed)
        return seconds, np.asarray(dollars), np.where(new > 0, billed, np.inf)

    def variance(self, i: int, choice: StageAllocation, kept: NDArray[np.int_]) -> Floats:
        """Of the seconds of stage `i`. Of several machines that are made ready, the longest is taken to vary as
        one of them does."""
        waits = choice.cloud.queue_latency.std**2 + choice.cloud.init_latency.std**2
        spread = self._train(i, choice.cloud, choice.allocation).spread
        return np.asarray(spread**2 + np.where(kept < choice.machines, waits, 0.0))

    def total_variance(self, choices: Sequence[StageAllocation]) -> float:
        """Of all stages."""
        pairs = zip([self.there, *choices], choices, strict=False)
        kept = (np.array(machines_kept(*pair)) for pair in pairs)
        each = (
            self.variance(i, choice, there) for i, (choice, there) in enumerate(zip(choices, kept, strict=True))
        )
        return math.fsum(float(one) for one in each)

    def train_seconds(self, i: int, cloud: CloudProfile, allocation: Allocation) -> float:
        """Until the last of the stage's trials is done."""
        return self._train(i, cloud, allocation).seconds

    def _train(self, i: int, cloud: CloudProfile, allocation: Allocation) -> _Training:
        key = (self.spec.stages[i], id(cloud), allocation)  # the cloud is kept: no other one gets its id
        if key not in self._known:
            draw = self._without_losses if cloud.survival is None else self._with_losses
            self._known[key] = cloud, draw(self.spec.stages[i], cloud, allocation)
        return self._known[key][1]

    def _without_losses(self, stage: Stage, cloud: CloudProfile, allocation: Allocation) -> _Training:
        profile = self.profile
        each = stage.steps * profile.seconds(allocation.workers) / cloud.speed
        longest, spread = _longest(stage.trials, allocation.at_a_time, profile.variation)
        around = profile.startup + profile.checkpoint
        turns = -(-stage.trials // allocation.at_a_time)
        return _Training(turns * around + each * longest, each * spread, around + each * profile.mean_slowness)

    def _with_losses(self, stage: Stage, cloud: CloudProfile, allocation: Allocation) -> _Training:
        """On machines that are taken away."""
        rng = np.random.default_rng((_SEED, *stage))
        try:
            each = train_seconds(stage, StageAllocation(cloud, 0, allocation), self.profile, _LOSSY_SAMPLES, rng)
        except SettingError:  # such machines live too short for it
            return _Training(math.inf, 0.0, math.inf)
        longest = queued(each, allocation.at_a_time).max(axis=0)
        return _Training(float(longest.mean()), float(longest.std()), float(each.mean()))

    def function_dollars(self, i: int, cloud: CloudProfile, allocation: Allocation) -> float:
        """Of all the stage's trials, each for as long as it trains."""
        slots = self.spec.stages[i].trials * allocation.workers
        return slots * self._train(i, cloud, allocation).each * cloud.dollars_per_second / cloud.slots

    def gb(self, cloud: CloudProfile) -> float:
        return cloud.data_gb or self.profile.data_gb


def released(cohorts: Cohorts, count: int, minimum: float) -> tuple[Cohorts, float]:
    """Without the `count` oldest; and the machine-seconds that these are short of the minimum."""
    left, short = [], 0.0
    for machines, age in cohorts:
        gone = min(machines, count)
        count -= gone
        short += gone * max(0.0, minimum - age)
        if machines > gone:
            left.append((machines - gone, age))
    return left, short


@lru_cache(maxsize=4096)
def _longest(trials: int, at_a_time: int, variation: float) -> tuple[float, float]:
    """When the last of these trials is done, where one takes 1: on average, and the standard deviation."""
    if not variation:
        return float(-(-trials // at_a_time)), 0.0
    longest = queued(_slownesses(trials, variation), at_a_time).max(axis=0)
    return float(longest.mean()), float(longest.std())


@lru_cache(maxsize=64)
def _slownesses(trials: int, variation: float) -> Floats:
    """Of trials, (trials, samples): the same draws for all allocations, so that these differ by what they are and
    not by luck."""
    samples = max(_FEWEST_SAMPLES, min(SAMPLES, _MOST_DRAWN // trials))
    drawn = np.random.default_rng((_SEED, trials)).standard_normal((trials, samples))
    return np.asarray(slownesses(variation, drawn))
