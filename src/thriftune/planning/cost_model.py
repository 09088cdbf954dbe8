"""The expected seconds and dollars of a plan, stage by stage.

All trials of a stage wait for each other at its end, so the longest path of the DAG is the sum of the longest
paths of its stages. The expected time is therefore the sum of the expected times of the stages. A stage that holds
h machines, `new` of which are rented at its start, takes

    ready + train,    ready = queue + longest of `new` inits, or 0 without new machines,
                      train = time until the last of its trials is done.

With billing per instance it costs (h - new) (ready + train) + new (ready - queue + train) machine-seconds and the
download of `new` machines. A machine that is released before its billed minimum also costs the missing seconds.
The oldest machines are released first, so that as few as possible miss the minimum. With billing per function, a
stage costs the slots of each trial while it trains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from thriftune.errors import SettingError
from thriftune.planning.allocation import Allocation, StageAllocation, fair_allocations
from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.dag import machines_kept, queued_finish_times, sample_train_seconds
from thriftune.planning.job import JobSpec, Stage
from thriftune.planning.profile import Profile, slowness_factors

Floats = NDArray[np.float64]
Cohorts = list[tuple[int, float]]
"""(machines rented together, seconds billed for each of them), the oldest first."""

SAMPLES = 1000
"""Draws behind an expectation that has no formula: a standard error of 3 % of the standard deviation."""
_MAX_DRAWN_TRIALS = 500_000  # trials x draws; bounds the memory to 4 MB per array
_MIN_SAMPLES = 32  # for stages of many trials, which need fewer draws each
_PREEMPTION_SAMPLES = 200  # draws of a stage on spot machines, which are slower to draw
_SEED = 20_210_426  # any fixed number: the same plan must always have the same cost


@dataclass(frozen=True, slots=True)
class StageEstimate:
    """The expected seconds and dollars of a stage."""

    seconds: float
    dollars: float


@dataclass(frozen=True, slots=True)
class _TrainingTime:
    """The time that the trials of a stage train, in seconds."""

    seconds: float  # expected time until the last trial is done
    std: float  # standard deviation of that time
    seconds_per_trial: float  # expected time of one trial


@dataclass(frozen=True)
class CostModel:
    """The model that predicts the seconds and dollars of a job's plans.

    - `at_a_time`: the most trials that may train in parallel; None means no limit.
    - `initial`: the machines that the job begins with, if any. They have reached their billed minimum.
    """

    spec: JobSpec
    profile: Profile
    at_a_time: int | None = None
    initial: StageAllocation | None = None
    # Keyed by stage, id of the cloud and allocation. Each value keeps its cloud alive, so that the id stays
    # unique.
    _training_times: dict[tuple[Stage, int, Allocation], tuple[CloudProfile, _TrainingTime]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def allocations(self, i: int) -> list[Allocation]:
        """Return the fair allocations of stage `i`, in order of their slots."""
        return fair_allocations(self.spec.stages[i].trials, self.profile.most_workers, self.at_a_time)

    def predict(self, choices: Sequence[StageAllocation]) -> list[StageEstimate]:
        """Return the estimate of each stage; their sums are those of the job."""
        estimates: list[StageEstimate] = []
        before = self.initial
        cohorts: Cohorts = [] if before is None else [(before.machines, math.inf)]
        for i, choice in enumerate(choices):
            kept = machines_kept(before, choice)
            missing_dollars = 0.0
            if before is not None:
                minimum = before.cloud.minimum_billed_seconds
                cohorts, missing_seconds = release_oldest(cohorts, before.machines - kept, minimum)
                missing_dollars = missing_seconds * before.cloud.dollars_per_second
            seconds, dollars, billed = (float(each) for each in self.expect_stage(i, choice, np.array(kept)))
            cohorts = [(count, age + seconds) for count, age in cohorts]
            if choice.machines > kept:
                cohorts.append((choice.machines - kept, billed))
            estimates.append(StageEstimate(seconds, missing_dollars + dollars))
            before = choice
        if before is not None:
            missing_seconds = release_oldest(cohorts, before.machines, before.cloud.minimum_billed_seconds)[1]
            missing_dollars = missing_seconds * before.cloud.dollars_per_second
            estimates[-1] = StageEstimate(estimates[-1].seconds, estimates[-1].dollars + missing_dollars)
        return estimates

    def expect_stage(
        self, i: int, choice: StageAllocation, kept: NDArray[np.int_]
    ) -> tuple[Floats, Floats, Floats]:
        """Estimate stage `i`, for each number of machines kept from the stage before.

        Returns its seconds, its dollars without billed minimums, and the seconds for which each new machine is
        billed (inf without new machines).
        """
        cloud, new = choice.cloud, choice.machines - kept
        queue = np.where(new > 0, cloud.queue_latency.mean, 0.0)
        init = cloud.init_latency.mean_of_longest(new)
        train = self.train_seconds(i, cloud, choice.allocation)
        seconds, billed = queue + init + train, init + train
        download_dollars = new * (self.data_gb(cloud) * cloud.data_price)
        if cloud.billing == "per_function":
            dollars = download_dollars + self.function_dollars(i, cloud, choice.allocation)
        else:
            dollars = download_dollars + cloud.dollars_per_second * (kept * seconds + new * billed)
        return seconds, np.asarray(dollars), np.where(new > 0, billed, np.inf)

    def variance(self, i: int, choice: StageAllocation, kept: NDArray[np.int_]) -> Floats:
        """Return the variance of the seconds of stage `i`, by number of kept machines.

        The longest of several inits is assumed to vary as much as a single one.
        """
        wait_variance = choice.cloud.queue_latency.std**2 + choice.cloud.init_latency.std**2
        train_std = self._training_time(i, choice.cloud, choice.allocation).std
        return np.asarray(train_std**2 + np.where(kept < choice.machines, wait_variance, 0.0))

    def total_variance(self, choices: Sequence[StageAllocation]) -> float:
        """Return the variance of the seconds of the whole job."""
        before = [self.initial, *choices]
        variances = (
            self.variance(i, choice, np.array(machines_kept(before[i], choice)))
            for i, choice in enumerate(choices)
        )
        return math.fsum(float(variance) for variance in variances)

    def train_seconds(self, i: int, cloud: CloudProfile, allocation: Allocation) -> float:
        """Return the expected seconds until the last trial of stage `i` is done."""
        return self._training_time(i, cloud, allocation).seconds

    def _training_time(self, i: int, cloud: CloudProfile, allocation: Allocation) -> _TrainingTime:
        key = (self.spec.stages[i], id(cloud), allocation)
        if key not in self._training_times:
            estimate = self._on_demand_time if cloud.survival is None else self._spot_time
            self._training_times[key] = cloud, estimate(self.spec.stages[i], cloud, allocation)
        return self._training_times[key][1]

    def _on_demand_time(self, stage: Stage, cloud: CloudProfile, allocation: Allocation) -> _TrainingTime:
        """Return the training time of a stage on machines that are not preempted."""
        profile = self.profile
        mean = stage.steps * profile.seconds(allocation.workers) / cloud.speed
        last_done, std = _last_finish(stage.trials, allocation.at_a_time, profile.variation)
        overhead = profile.startup + profile.checkpoint
        rounds = -(-stage.trials // allocation.at_a_time)
        return _TrainingTime(
            rounds * overhead + mean * last_done, mean * std, overhead + mean * profile.mean_slowness
        )

    def _spot_time(self, stage: Stage, cloud: CloudProfile, allocation: Allocation) -> _TrainingTime:
        """Return the training time of a stage on spot machines, by simulation.

        The time is infinite if the machines do not live long enough for a trial.
        """
        rng = np.random.default_rng((_SEED, *stage))
        choice = StageAllocation(cloud, 0, allocation)
        try:
            seconds = sample_train_seconds(stage, choice, self.profile, _PREEMPTION_SAMPLES, rng)
        except SettingError:  # these machines do not live long enough for a trial
            return _TrainingTime(math.inf, 0.0, math.inf)
        last_done = queued_finish_times(seconds, allocation.at_a_time).max(axis=0)
        return _TrainingTime(float(last_done.mean()), float(last_done.std()), float(seconds.mean()))

    def function_dollars(self, i: int, cloud: CloudProfile, allocation: Allocation) -> float:
        """Return the dollars of stage `i` with billing per function.

        The slots of each trial are billed while it trains.
        """
        slots = self.spec.stages[i].trials * allocation.workers
        seconds = self._training_time(i, cloud, allocation).seconds_per_trial
        return slots * seconds * cloud.dollars_per_second / cloud.slots

    def data_gb(self, cloud: CloudProfile) -> float:
        """Return the gigabytes that each machine downloads.

        This is the `data_gb` of the cloud, or that of the profile if the cloud has none.
        """
        return cloud.data_gb or self.profile.data_gb


def release_oldest(cohorts: Cohorts, count: int, minimum: float) -> tuple[Cohorts, float]:
    """Release the `count` oldest machines.

    Returns the cohorts that stay, and how many machine-seconds the released machines lack to reach the billed
    `minimum`.
    """
    staying, missing_seconds = [], 0.0
    for machines, age in cohorts:
        released = min(machines, count)
        count -= released
        missing_seconds += released * max(0.0, minimum - age)
        if machines > released:
            staying.append((machines - released, age))
    return staying, missing_seconds


@lru_cache(maxsize=4096)
def _last_finish(trials: int, at_a_time: int, variation: float) -> tuple[float, float]:
    """Return the mean and standard deviation of the time until the last trial is done.

    The unit is the mean time of one trial.
    """
    if not variation:
        return float(-(-trials // at_a_time)), 0.0
    last_done = queued_finish_times(_drawn_slowness(trials, variation), at_a_time).max(axis=0)
    return float(last_done.mean()), float(last_done.std())


@lru_cache(maxsize=64)
def _drawn_slowness(trials: int, variation: float) -> Floats:
    """Draw the slowness of trials, as (trials, samples).

    All allocations use the same draws, so that a difference between two of them is not chance.
    """
    samples = max(_MIN_SAMPLES, min(SAMPLES, _MAX_DRAWN_TRIALS // trials))
    drawn = np.random.default_rng((_SEED, trials)).standard_normal((trials, samples))
    return np.asarray(slowness_factors(variation, drawn))
