"""Which plan? RubberBand's planner and its baselines; the default, which finds the optimum, is exact.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from thriftune.planning.allocation import Allocation, StageAllocation
from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.cost_model import CostModel

WARM_STARTS = (1, 2, 3)
"""RubberBand's: of so many times the best fixed cluster."""

Totals = tuple[float, float]  # dollars and seconds


@dataclass(frozen=True)
class PlanRequest:
    """What is to be planned. `allows`: whether choices which come to that are within the limits."""

    model: CostModel
    clouds: Sequence[CloudProfile]
    allows: Callable[[Sequence[StageAllocation], Totals], bool]
    least: Callable[[Totals], float]  # what is to be least: dollars, or seconds

    def totals(self, choices: Sequence[StageAllocation]) -> Totals:
        told = self.model.predict(choices)
        return math.fsum(each.dollars for each in told), math.fsum(each.seconds for each in told)

    def best_of(self, candidates: Iterator[list[StageAllocation]]) -> list[StageAllocation] | None:
        """The best that is within limits; the looks at limits, which may be costly, are few."""
        found = sorted(((self.totals(each), each) for each in candidates), key=lambda pair: self.least(pair[0]))
        return next((choices for totals, choices in found if self.allows(choices, totals)), None)


def static(asked: PlanRequest) -> list[StageAllocation] | None:
    """The best cluster that stays as it is from the first stage to the last."""
    return asked.best_of(fixed_clusters(asked.model, asked.clouds))


def fixed_clusters(model: CostModel, clouds: Sequence[CloudProfile]) -> Iterator[list[StageAllocation]]:
    """Of every size that makes a difference; each stage uses it as quickly as it can."""
    for cloud in clouds:
        sizes = {need for i in range(len(model.spec.stages)) for need, _ in _needs(model, i, cloud)}
        for machines in sorted(sizes):
            choices = fixed(model, cloud, machines)
            if choices is not None:
                yield choices


def fixed(model: CostModel, cloud: CloudProfile, machines: int) -> list[StageAllocation] | None:
    """So many machines all along."""
    choices = []
    for i in range(len(model.spec.stages)):
        fitting = [allocation for need, allocation in _needs(model, i, cloud) if need <= machines]
        if not fitting:
            return None
        quickest = min(fitting, key=lambda each: model.train_seconds(i, cloud, each))
        choices.append(StageAllocation(cloud, machines, quickest))
    return choices


def naive_elastic(asked: PlanRequest) -> list[StageAllocation] | None:
    """Every trial has the same number of workers in all stages, and the cluster is as large as these need."""
    return asked.best_of(_fixed_workers(asked.model, asked.clouds))


def _fixed_workers(model: CostModel, clouds: Sequence[CloudProfile]) -> Iterator[list[StageAllocation]]:
    for cloud in clouds:
        for workers in range(1, model.profile.most_workers + 1):
            allocations = [Allocation(stage.trials, workers) for stage in model.spec.stages]
            choices = [StageAllocation(cloud, cloud.machines_for(*each), each) for each in allocations]
            if all(_can_be(model, i, choice) for i, choice in enumerate(choices)):
                yield choices


def _can_be(model: CostModel, i: int, choice: StageAllocation) -> bool:
    """There are so many machines, so many trials may run side by side, and the machines live long enough."""
    enough = choice.machines <= (choice.cloud.max_machines or math.inf)
    enough &= choice.allocation.at_a_time <= (model.at_a_time or math.inf)
    return enough and math.isfinite(model.train_seconds(i, choice.cloud, choice.allocation))


def greedy(asked: PlanRequest) -> list[StageAllocation] | None:
    """Return the plan of RubberBand's Algorithm 2.

    It starts from the best fixed cluster, and from two and three times that. In each iteration it shrinks the one
    stage that saves the most dollars per second of delay, as long as one saves any. The best end result counts.
    """
    start = static(asked)
    if start is None:
        return None
    found = [_descended(asked, _times(asked.model, start, times)) for times in WARM_STARTS]
    return asked.best_of(iter([start, *filter(None, found)]))


def _times(model: CostModel, start: Sequence[StageAllocation], times: int) -> list[StageAllocation] | None:
    """A fixed cluster so many times as large, if there are so many machines; held is what each stage needs."""
    cloud = start[0].cloud
    most = min(times * start[0].machines, cloud.max_machines or math.inf)
    choices = fixed(model, cloud, int(most))
    return None if choices is None else [_tight(each) for each in choices]


def _tight(choice: StageAllocation) -> StageAllocation:
    return choice._replace(machines=choice.cloud.machines_for(*choice.allocation))


def _descended(asked: PlanRequest, choices: list[StageAllocation] | None) -> list[StageAllocation] | None:
    if choices is None:
        return None
    dollars, seconds = asked.totals(choices)
    if not asked.allows(choices, (dollars, seconds)):
        return None
    while True:
        candidates = []
        for i, choice in enumerate(choices):
            if (smaller := _next_smaller(asked.model, i, choice)) is not None:
                candidate = [*choices[:i], smaller, *choices[i + 1 :]]
                totals = asked.totals(candidate)
                saved, longer = dollars - totals[0], totals[1] - seconds
                if saved > 1e-12 * dollars:
                    candidates.append((saved / longer if longer > 0.0 else math.inf, candidate, totals))
        candidates.sort(key=lambda each: -each[0])  # a look at limits may be costly: the best first
        found = next((each for each in candidates if asked.allows(each[1], each[2])), None)
        if found is None:
            return choices
        _, choices, (dollars, seconds) = found


def _next_smaller(model: CostModel, i: int, choice: StageAllocation) -> StageAllocation | None:
    """Return the largest smaller allocation of stage i that lowers its bill, or None.

    Machines that are billed as a whole cost the same until one of them is freed. RubberBand's "smallest step" is
    therefore the smallest that frees a machine; one that frees none would only take longer, and end the descent.
    """
    for smaller in reversed(model.allocations(i)):
        if smaller.slots < choice.allocation.slots:
            found = _tight(choice._replace(allocation=smaller))
            if found.machines < choice.machines or choice.cloud.billing == "per_function":
                return found
    return None


def _needs(model: CostModel, i: int, cloud: CloudProfile) -> list[tuple[int, Allocation]]:
    needs = ((cloud.machines_for(*each), each) for each in model.allocations(i))
    return [(need, each) for need, each in needs if _can_be(model, i, StageAllocation(cloud, need, each))]
