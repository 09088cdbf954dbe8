"""RubberBand's greedy planner and its baselines.

The default planner, which finds the optimum, is in exact_planner.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from thriftune.planning.allocation import Allocation, StageAllocation
from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.cost_model import CostModel

WARM_START_FACTORS = (1, 2, 3)
"""RubberBand's warm starts: multiples of the size of the best fixed cluster."""

_MIN_SAVING = 1e-12  # as a share of the cost; a smaller saving is rounding

Totals = tuple[float, float]
"""The expected (dollars, seconds) of a plan."""


@dataclass(frozen=True)
class PlanRequest:
    """A request for the best plan within limits.

    - `allows`: tells whether a plan with these choices and totals is within the limits. It may simulate the plan.
    - `objective`: the part of the totals to minimize, dollars or seconds.
    """

    model: CostModel
    clouds: Sequence[CloudProfile]
    allows: Callable[[Sequence[StageAllocation], Totals], bool]
    objective: Callable[[Totals], float]

    def totals(self, choices: Sequence[StageAllocation]) -> Totals:
        """Return the expected dollars and seconds of a plan."""
        estimates = self.model.predict(choices)
        return math.fsum(each.dollars for each in estimates), math.fsum(each.seconds for each in estimates)

    def best_of(self, candidates: Iterator[list[StageAllocation]]) -> list[StageAllocation] | None:
        """Return the best candidate within the limits, or None.

        Candidates are sorted first, because checking the limits can be slow.
        """
        ranked = sorted(
            ((self.totals(each), each) for each in candidates), key=lambda pair: self.objective(pair[0])
        )
        return next((choices for totals, choices in ranked if self.allows(choices, totals)), None)


def static(request: PlanRequest) -> list[StageAllocation] | None:
    """Return the best plan with the same cluster in all stages, or None."""
    return request.best_of(fixed_clusters(request.model, request.clouds))


def fixed_clusters(model: CostModel, clouds: Sequence[CloudProfile]) -> Iterator[list[StageAllocation]]:
    """Yield a plan for each fixed cluster size that some stage can use fully."""
    for cloud in clouds:
        sizes = {
            needed for i in range(len(model.spec.stages)) for needed, _ in _feasible_allocations(model, i, cloud)
        }
        for machines in sorted(sizes):
            choices = fixed_cluster(model, cloud, machines)
            if choices is not None:
                yield choices


def fixed_cluster(model: CostModel, cloud: CloudProfile, machines: int) -> list[StageAllocation] | None:
    """Return the fastest plan with this number of machines in all stages, or None."""
    choices = []
    for i in range(len(model.spec.stages)):
        fitting = [each for needed, each in _feasible_allocations(model, i, cloud) if needed <= machines]
        if not fitting:
            return None
        fastest = min(fitting, key=lambda each: model.train_seconds(i, cloud, each))
        choices.append(StageAllocation(cloud, machines, fastest))
    return choices


def naive_elastic(request: PlanRequest) -> list[StageAllocation] | None:
    """Return the best plan with the same number of workers for every trial, or None.

    The cluster of each stage has the size that these workers need.
    """
    return request.best_of(_same_worker_plans(request.model, request.clouds))


def _same_worker_plans(model: CostModel, clouds: Sequence[CloudProfile]) -> Iterator[list[StageAllocation]]:
    for cloud in clouds:
        for workers in range(1, model.profile.most_workers + 1):
            allocations = [Allocation(stage.trials, workers) for stage in model.spec.stages]
            choices = [StageAllocation(cloud, cloud.machines_needed(*each), each) for each in allocations]
            if all(_is_feasible(model, i, choice) for i, choice in enumerate(choices)):
                yield choices


def _is_feasible(model: CostModel, i: int, choice: StageAllocation) -> bool:
    """Return whether stage `i` can run on these machines.

    It can if the choice is within the limits on machines and parallel trials, and if machines live long enough.
    """
    within_limits = choice.machines <= (choice.cloud.max_machines or math.inf)
    within_limits &= choice.allocation.at_a_time <= (model.at_a_time or math.inf)
    return within_limits and math.isfinite(model.train_seconds(i, choice.cloud, choice.allocation))


def greedy(request: PlanRequest) -> list[StageAllocation] | None:
    """Return the plan of RubberBand's Algorithm 2.

    It starts from the best fixed cluster, and from two and three times its size. In each iteration it shrinks the
    stage that saves the most dollars per second of delay, until no stage saves any. The best of the results is
    returned, or None.
    """
    start = static(request)
    if start is None:
        return None
    plans = [
        _shrink_greedily(request, _scaled_cluster(request.model, start, factor)) for factor in WARM_START_FACTORS
    ]
    return request.best_of(iter([start, *filter(None, plans)]))


def _scaled_cluster(
    model: CostModel, start: Sequence[StageAllocation], factor: int
) -> list[StageAllocation] | None:
    """Return the plan for a fixed cluster `factor` times as large, or None.

    Machines that a stage does not use are left out. The cluster is limited to `max_machines`.
    """
    cloud = start[0].cloud
    machines = min(factor * start[0].machines, cloud.max_machines or math.inf)
    choices = fixed_cluster(model, cloud, int(machines))
    return None if choices is None else [_without_spare_machines(each) for each in choices]


def _without_spare_machines(choice: StageAllocation) -> StageAllocation:
    return choice._replace(machines=choice.cloud.machines_needed(*choice.allocation))


def _shrink_greedily(request: PlanRequest, choices: list[StageAllocation] | None) -> list[StageAllocation] | None:
    """Shrink one stage after the other while that saves dollars.

    Returns None without a start, or if the start is not within the limits.
    """
    if choices is None:
        return None
    dollars, seconds = request.totals(choices)
    if not request.allows(choices, (dollars, seconds)):
        return None
    while True:
        candidates = []
        for i, choice in enumerate(choices):
            if (smaller := _next_smaller(request.model, i, choice)) is not None:
                candidate = [*choices[:i], smaller, *choices[i + 1 :]]
                totals = request.totals(candidate)
                saved, delay = dollars - totals[0], totals[1] - seconds
                if saved > _MIN_SAVING * dollars:
                    candidates.append((saved / delay if delay > 0.0 else math.inf, candidate, totals))
        candidates.sort(key=lambda each: -each[0])  # the best first, because checking the limits can be slow
        best = next((each for each in candidates if request.allows(each[1], each[2])), None)
        if best is None:
            return choices
        _, choices, (dollars, seconds) = best


def _next_smaller(model: CostModel, i: int, choice: StageAllocation) -> StageAllocation | None:
    """Return the next smaller allocation of stage `i` that lowers its bill, or None.

    Machines that are billed as a whole cost the same until one of them is released. RubberBand's "smallest step"
    is therefore the smallest that releases a machine. A step that releases none would save no dollars, and the
    search would end there.
    """
    for smaller in reversed(model.allocations(i)):
        if smaller.slots < choice.allocation.slots:
            candidate = _without_spare_machines(choice._replace(allocation=smaller))
            if candidate.machines < choice.machines or choice.cloud.billing == "per_function":
                return candidate
    return None


def _feasible_allocations(model: CostModel, i: int, cloud: CloudProfile) -> list[tuple[int, Allocation]]:
    """Return (machines needed, allocation) for each feasible allocation of stage `i`."""
    pairs = ((cloud.machines_needed(*each), each) for each in model.allocations(i))
    return [
        (needed, each) for needed, each in pairs if _is_feasible(model, i, StageAllocation(cloud, needed, each))
    ]
