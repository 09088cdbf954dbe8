"""Random planning problems: small ones whose plans can all be enumerated, and large ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from thriftune.planning.allocation import StageAllocation, fair_allocations
from thriftune.planning.cloud_profile import BillingMode, CloudProfile
from thriftune.planning.cost_model import CostModel
from thriftune.planning.job import JobSpec, hyperband, successive_halving
from thriftune.planning.latency import Latency
from thriftune.planning.profile import Profile

MAX_PLANS = 5000
"""The plans of a small problem, all of which are enumerated."""


@dataclass(frozen=True)
class Problem:
    model: CostModel
    clouds: Sequence[CloudProfile]

    @property
    def choices(self) -> list[list[StageAllocation]]:
        """Return, by stage, every fair allocation on every sufficient number of machines."""
        return [
            [
                StageAllocation(cloud, machines, allocation)
                for cloud in self.clouds
                for allocation in fair_allocations(stage.trials, self.model.profile.most_workers)
                for machines in range(cloud.machines_needed(*allocation), (cloud.max_machines or 0) + 1)
            ]
            for stage in self.model.spec.stages
        ]

    @cached_property
    def totals(self) -> NDArray[np.float64]:
        """Return the dollars and seconds of every plan, as (plans, 2)."""
        return np.array([self.total(each) for each in itertools.product(*self.choices)])

    def total(self, choices: Sequence[StageAllocation]) -> tuple[float, float]:
        """Return the dollars and seconds of a plan."""
        estimates = self.model.predict(choices)
        return math.fsum(each.dollars for each in estimates), math.fsum(each.seconds for each in estimates)

    def least_dollars(self, seconds: float) -> float:
        """Return the lowest cost of the plans that take at most `seconds`."""
        return float(self.totals[self.totals[:, 1] <= seconds * (1.0 + 1e-9), 0].min())

    def least_seconds(self, dollars: float) -> float:
        """Return the shortest time of the plans that cost at most `dollars`."""
        return float(self.totals[self.totals[:, 0] <= dollars * (1.0 + 1e-9), 1].min())


def small(
    rng: np.random.Generator,
    *,
    kinds: int = 1,
    billing: BillingMode = "per_instance",
    minimum_billed_seconds: bool = False,
    noise: bool = False,
    random_waits: bool = False,
) -> Problem:
    """Return a problem with few plans; in half of the problems, later stages have new trials."""
    while True:
        trials, stages = int(rng.integers(2, 9)), []
        halving = rng.random() < 0.5
        for _ in range(int(rng.integers(2, 5))):
            stages.append((trials, round(10.0 ** rng.uniform(0.0, 2.0))))
            trials = max(1, trials // 2) if halving else int(rng.integers(1, 9))
        model = CostModel(JobSpec.of(stages), _profile(rng, int(rng.integers(1, 4)), 0.3 if noise else 0.0))
        clouds = [
            CloudProfile(
                slots=int(rng.choice([1, 2, 4])),
                price_per_hour=float(rng.uniform(0.5, 20.0)),
                queue=float(rng.uniform(0.0, 20.0)),
                init=Latency(float(rng.uniform(1.0, 40.0)), float(rng.uniform(5.0, 50.0)) * random_waits),
                billing=billing,
                minimum=float(rng.choice([30.0, 60.0, 200.0])) * minimum_billed_seconds,
                data_price=float(rng.choice([0.0, 0.02])),
                speed=float(rng.uniform(0.5, 2.0)),
                max_machines=int(rng.integers(1, 9)),
                name=f"kind {i + 1}",
            )
            for i in range(kinds)
        ]
        problem = Problem(model, clouds)
        if 1 < math.prod(len(each) for each in problem.choices) <= MAX_PLANS:
            return problem


def large(rng: np.random.Generator, *, noise: bool = False) -> Problem:
    """Return a problem with up to 256 trials, 64 workers per trial, and three machine types."""
    if rng.random() < 0.2:
        spec = hyperband(1, int(rng.choice([27, 81])), 3)
    else:
        n, r, eta = int(rng.integers(8, 257)), int(rng.integers(1, 9)), int(rng.integers(2, 5))
        spec = successive_halving(n, r, int(r * rng.integers(20, 300)), eta)
    model = CostModel(spec, _profile(rng, int(rng.choice([1, 4, 8, 16, 64])), 0.3 if noise else 0.0))
    clouds = [
        CloudProfile(
            slots=int(slots),
            price_per_hour=float(slots * rng.uniform(0.5, 4.0)),
            queue=float(rng.choice([0.0, 5.0, 30.0])),
            init=float(rng.choice([0.0, 15.0, 100.0])),
            minimum=float(rng.choice([0.0, 60.0])),
            data_price=float(rng.choice([0.0, 0.02])),
            speed=float(rng.uniform(0.5, 2.0)),
            max_machines=int(rng.integers(4, 257)),
            name=f"kind {i + 1}",
        )
        for i, slots in enumerate(rng.choice([1, 2, 4, 8], int(rng.integers(1, 4))))
    ]
    return Problem(model, clouds)


def _profile(rng: np.random.Generator, most_workers: int, variation: float) -> Profile:
    seconds, exponent = float(rng.uniform(1.0, 10.0)), float(rng.uniform(0.3, 1.0))
    steps = {1: seconds}
    for workers in (2, 3, 4, 8, 16, 32, 64):
        if workers <= most_workers:
            steps[workers] = seconds / workers**exponent
    return Profile(
        steps,
        std=variation * seconds,
        startup=float(rng.uniform(0.0, 5.0)),
        checkpoint=float(rng.uniform(0.0, 3.0)),
        data_gb=float(rng.choice([0.0, 5.0])),
    )
