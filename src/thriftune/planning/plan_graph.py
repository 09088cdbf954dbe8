"""What may each stage run on, and what does it take to get there? All fair plans, as paths through a graph.

A stage's node is so many machines of a kind, and the allocation on them. To go from a stage's node to one of the
next costs seconds and dollars (model.py).

Where the wait for new machines does not depend on how many they are, and nothing is billed beyond their lives,
only those numbers of machines matter which some stage needs: what is held beyond costs by the machine, and saves
nothing unless no machine is missing then. Else the others are looked at as well, up to `ALL_HELD`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from thriftune.errors import SettingError
from thriftune.planning.allocation import Allocation, StageAllocation
from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.cost_model import CostModel

Floats = NDArray[np.float64]
ALL_HELD = 16
"""Machines: where more are needed, plans hold only numbers that some stage needs."""

Useful = tuple[int, float, float, Allocation]  # machines needed, seconds and dollars of use


@dataclass(frozen=True, slots=True)
class HeldMachines:
    """What a stage's nodes hold, node by node: so many machines of a kind, their price, the least billed."""

    machines: NDArray[np.intp]
    kind: NDArray[np.intp]
    price: Floats  # dollars per second
    least_billed: Floats  # seconds


@dataclass(frozen=True)
class PlanGraph:
    """The nodes of each stage, and what it takes to get from those of the stage before to them."""

    model: CostModel
    nodes: list[list[StageAllocation]]
    seconds: list[Floats]  # by stage: (nodes before, nodes)
    dollars: list[Floats]
    new_billed: list[Floats]  # seconds, of machines that come

    @cached_property
    def short(self) -> list[NDArray[np.bool_]]:
        """Whether machines come that are not as old as the least that is billed when the stage ends."""
        return [billed < self.held(i).least_billed for i, billed in enumerate(self.new_billed)]

    @cached_property
    def variance(self) -> list[Floats]:
        """Of the seconds, in squared seconds."""
        found: list[Floats] = []
        before: list[StageAllocation | None] = [self.model.there]
        for i, now in enumerate(self.nodes):
            kept = _kept(before, now)
            columns = [self.model.variance(i, choice, kept[:, at]) for at, choice in enumerate(now)]
            found.append(np.stack(columns, axis=1))
            before = list(now)
        return found

    def held(self, i: int) -> HeldMachines:
        """In stage `i`; in the one before the first, what is there."""
        return self._held[i + 1]

    @cached_property
    def _held(self) -> list[HeldMachines]:
        kinds: dict[int, int] = {}
        there = self.model.there
        nothing = HeldMachines(np.zeros(1, np.intp), np.full(1, -1, np.intp), np.zeros(1), np.zeros(1))
        found = [nothing] if there is None else []
        for nodes in self.nodes if there is None else [[there], *self.nodes]:
            clouds = [node.cloud for node in nodes]
            found.append(
                HeldMachines(
                    np.array([node.machines for node in nodes], np.intp),
                    np.array([kinds.setdefault(id(cloud), len(kinds)) for cloud in clouds], np.intp),
                    np.array([cloud.dollars_per_second for cloud in clouds]),
                    np.array([cloud.least_billed for cloud in clouds]),
                )
            )
        return found

    @classmethod
    def of(cls, model: CostModel, clouds: Sequence[CloudProfile]) -> PlanGraph:
        useful = [[_useful(model, i, cloud) for cloud in clouds] for i in range(len(model.spec.stages))]
        held = [
            _held(cloud, {need for stage in useful for need, *_ in stage[c]}) for c, cloud in enumerate(clouds)
        ]
        nodes = [
            [
                StageAllocation(cloud, machines, allocation)
                for c, cloud in enumerate(clouds)
                for machines in held[c]
                for allocation in _best_on(stage[c], machines, cloud)
            ]
            for stage in useful
        ]
        for i, there in enumerate(nodes):
            if not there:
                raise SettingError(
                    f"stage {i + 1}: no number of machines that is allowed, and lives long enough, can run its "
                    f"{model.spec.stages[i].trials} trials"
                )
        graph = cls(model, nodes, [], [], [])
        before: list[StageAllocation | None] = [model.there]
        for i, now in enumerate(nodes):
            told = _transitions(model, i, before, now)
            for matrices, found in zip((graph.seconds, graph.dollars, graph.new_billed), told, strict=True):
                matrices.append(found)
            before = list(now)
        return graph

    def choices(self, path: Sequence[int]) -> list[StageAllocation]:
        return [nodes[at] for nodes, at in zip(self.nodes, path, strict=True)]


def _held(cloud: CloudProfile, needed: set[int]) -> list[int]:
    """The numbers of machines that are worth a look, from those that some stage needs."""
    most = max(needed, default=0)
    if (cloud.init_latency.std or cloud.least_billed) and most <= ALL_HELD:
        return list(range(min(needed, default=1), most + 1))
    return sorted(needed)


def _useful(model: CostModel, i: int, cloud: CloudProfile) -> list[Useful]:
    """What no other one beats in all of its figures."""
    found: list[Useful] = []
    most = cloud.max_machines or math.inf
    by_function = cloud.billing == "per_function"
    for allocation in model.allocations(i):
        need = cloud.machines_for(*allocation)
        if need > most:
            continue
        seconds = model.train_seconds(i, cloud, allocation)
        if not math.isfinite(seconds):
            continue
        found.append(
            (need, seconds, model.function_dollars(i, cloud, allocation) if by_function else 0.0, allocation)
        )
    found.sort()
    kept: list[Useful] = []
    for each in found:
        if not any(other[1] <= each[1] and other[2] <= each[2] for other in kept):
            kept.append(each)
    return kept


def _best_on(useful: list[Useful], machines: int, cloud: CloudProfile) -> list[Allocation]:
    fitting = [each for each in useful if each[0] <= machines]
    if cloud.billing == "per_instance":
        fitting = sorted(fitting, key=lambda each: each[1])[:1]
    return [allocation for *_, allocation in fitting]


def _transitions(
    model: CostModel, i: int, before: Sequence[StageAllocation | None], now: Sequence[StageAllocation]
) -> tuple[Floats, Floats, Floats]:
    """Seconds, dollars, and seconds billed of new machines, each of (nodes before, nodes)."""
    kept = _kept(before, now)
    columns = [model.expected(i, choice, kept[:, at]) for at, choice in enumerate(now)]
    seconds, dollars, billed = (np.stack(each, axis=1) for each in zip(*columns, strict=True))
    return seconds, dollars, billed


def _kept(before: Sequence[StageAllocation | None], now: Sequence[StageAllocation]) -> NDArray[np.intp]:
    """Machines that go on from one node to another, (nodes before, nodes)."""
    held = np.array([0 if one is None else one.machines for one in before], np.intp)
    machines = np.array([one.machines for one in now], np.intp)
    kinds, kinds_now = ([0 if one is None else id(one.cloud) for one in nodes] for nodes in (before, now))
    same = np.array(kinds)[:, None] == np.array(kinds_now)
    return np.where(same, np.minimum(held[:, None], machines), 0)
