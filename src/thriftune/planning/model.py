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
from thriftune.planning.allocation import Allocation, Choice
from thriftune.planning.cloud import CloudProfile
from thriftune.planning.dag import machines_kept, queued, train_seconds
from thriftune.planning.profile import Profile, slownesses
from thriftune.planning.spec import JobSpec

Floats = NDArray[np.float64]
Cohorts = list[tuple[int, float]]
"""Machines that came together and the seconds that they have been billed for, the oldest first."""

_Lossy = tuple[CloudProfile, float, float]
SAMPLES = 1000
"""Draws behind an expectation that has no formula."""
_LOSSY_SAMPLES = 200
_SEED = 20_210_426


@dataclass(frozen=True, slots=True)
class Expected:
    """Of a stage, on average."""

    seconds: float
    dollars: float


@dataclass(frozen=True)
class Model:
    spec: JobSpec
    profile: Profile
    _known: dict[tuple[int, int, Allocation], tuple[CloudProfile, float, float]] = field(
        default_factory=dict, repr=False
    )

    def predict(self, choices: Sequence[Choice]) -> list[Expected]:
        """Stage by stage; their sums are the job's."""
        found: list[Expected] = []
        before: Choice | None = None
        cohorts: Cohorts = []
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
            found.append(Expected(seconds, dollars + cost))
            before = choice
        if before is not None:
            short = released(cohorts, before.machines, before.cloud.least_billed)[1]
            found[-1] = Expected(found[-1].seconds, found[-1].dollars + short * before.cloud.dollars_per_second)
        return found

    def expected(self, i: int, choice: Choice, kept: NDArray[np.int_]) -> tuple[Floats, Floats, Floats]:
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

    def train_seconds(self, i: int, cloud: CloudProfile, allocation: Allocation) -> float:
        """Until the last of the stage's trials is done."""
        stage, profile = self.spec.stages[i], self.profile
        if cloud.survival is not None:
            return self._lossy_seconds(i, cloud, allocation)[0]
        work = stage.steps * profile.seconds(allocation.workers) / cloud.speed
        longest = _longest(stage.trials, allocation.at_a_time, profile.variation)
        turns = stage.trials // allocation.at_a_time
        return turns * (profile.startup + profile.checkpoint) + work * longest

    def function_dollars(self, i: int, cloud: CloudProfile, allocation: Allocation) -> float:
        """Of all the stage's trials, each for as long as it trains."""
        stage, profile = self.spec.stages[i], self.profile
        if cloud.survival is not None:
            each = self._lossy_seconds(i, cloud, allocation)[1]
        else:
            each = stage.steps * profile.seconds(allocation.workers) / cloud.speed * profile.mean_slowness
            each += profile.startup + profile.checkpoint
        return stage.trials * allocation.workers * each * cloud.dollars_per_second / cloud.slots

    def gb(self, cloud: CloudProfile) -> float:
        return cloud.data_gb or self.profile.data_gb

    def _lossy_seconds(self, i: int, cloud: CloudProfile, allocation: Allocation) -> tuple[float, float]:
        """On machines that are taken away: of the stage, and of one trial on average."""
        key = (i, id(cloud), allocation)  # the cloud is kept with it, so that no other one gets its id
        if key not in self._known:
            stage, choice = self.spec.stages[i], Choice(cloud, 0, allocation)
            rng = np.random.default_rng((_SEED, i))
            try:
                each = train_seconds(stage, choice, self.profile, _LOSSY_SAMPLES, rng)
            except SettingError:  # such machines live too short for it
                each = np.full((stage.trials, 1), math.inf)
            longest = queued(each, allocation.at_a_time).max(axis=0)
            self._known[key] = cloud, float(longest.mean()), float(each.mean())
        return self._known[key][1:]


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
def _longest(trials: int, at_a_time: int, variation: float) -> float:
    """When the last of these trials is done, on average, where one takes 1."""
    if not variation:
        return float(trials // at_a_time)
    return float(queued(_slownesses(trials, variation), at_a_time).max(axis=0).mean())


@lru_cache(maxsize=64)
def _slownesses(trials: int, variation: float) -> Floats:
    """Of trials, (trials, samples): the same draws for all allocations, so that these differ by what they are and
    not by luck."""
    drawn = np.random.default_rng((_SEED, trials)).standard_normal((trials, SAMPLES))
    return np.asarray(slownesses(variation, drawn))
