"""All fair plans of a job, as paths through a graph.

A node of a stage is a number of machines of one type, with the allocation on them. A step from a node of one stage
to a node of the next costs seconds and dollars, as cost_model.py defines them.

The wait for new machines usually does not depend on their number, and nothing is billed beyond the life of a
machine. Then only numbers of machines that some stage needs are worth holding: more machines cost more, and save
nothing unless they make a wait unnecessary. Otherwise all numbers are searched, up to `SEARCH_ALL_UP_TO`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thriftune.errors import SettingError
from thriftune.planning.allocation import Allocation, StageAllocation
from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.cost_model import CostModel

Floats = NDArray[np.float64]
SEARCH_ALL_UP_TO = 16
"""The largest cluster for which all numbers of machines are searched. If a stage needs more machines, only numbers
that some stage needs are searched, to save time."""


class _Use(NamedTuple):
    """A way for a stage to use machines of one type."""

    machines: int
    seconds: float
    function_dollars: float  # 0 where machines are billed per instance
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class HeldMachines:
    """The machines of a stage's nodes; each array has one element per node."""

    machines: NDArray[np.intp]  # number of machines
    machine_type: NDArray[np.intp]  # index of the type; equal for nodes with machines of the same type
    price: Floats  # dollars per second
    minimum_billed_seconds: Floats


@dataclass(frozen=True)
class PlanGraph:
    """The nodes of each stage, and the cost of reaching them.

    `seconds`, `dollars` and `new_billed` hold an array per stage, of shape (nodes before, nodes). `new_billed` is
    the seconds for which each new machine is billed until the stage ends.
    """

    model: CostModel
    nodes: list[list[StageAllocation]]
    seconds: list[Floats]
    dollars: list[Floats]
    new_billed: list[Floats]

    @cached_property
    def has_minimum_due(self) -> list[NDArray[np.bool_]]:
        """Return, by stage, whether its new machines are below their minimum at its end.

        The minimum is the billed one. The arrays have the shape of `new_billed`.
        """
        return [billed < self.held(i).minimum_billed_seconds for i, billed in enumerate(self.new_billed)]

    @cached_property
    def variance(self) -> list[Floats]:
        """Return the variance of the seconds, by stage, in squared seconds."""
        variances: list[Floats] = []
        before: list[StageAllocation | None] = [self.model.initial]
        for i, now in enumerate(self.nodes):
            kept = _kept(before, now)
            columns = [self.model.variance(i, choice, kept[:, at]) for at, choice in enumerate(now)]
            variances.append(np.stack(columns, axis=1))
            before = list(now)
        return variances

    def held(self, i: int) -> HeldMachines:
        """Return the machines that the nodes of stage `i` hold.

        Stage -1 stands for the job's initial machines.
        """
        return self._held[i + 1]

    @cached_property
    def _held(self) -> list[HeldMachines]:
        type_indices: dict[int, int] = {}
        initial = self.model.initial
        nothing = HeldMachines(np.zeros(1, np.intp), np.full(1, -1, np.intp), np.zeros(1), np.zeros(1))
        held = [nothing] if initial is None else []
        for nodes in self.nodes if initial is None else [[initial], *self.nodes]:
            clouds = [node.cloud for node in nodes]
            held.append(
                HeldMachines(
                    np.array([node.machines for node in nodes], np.intp),
                    np.array([type_indices.setdefault(id(cloud), len(type_indices)) for cloud in clouds], np.intp),
                    np.array([cloud.dollars_per_second for cloud in clouds]),
                    np.array([cloud.minimum_billed_seconds for cloud in clouds]),
                )
            )
        return held

    @classmethod
    def of(cls, model: CostModel, clouds: Sequence[CloudProfile]) -> PlanGraph:
        """Build the graph for these machine types.

        Raises SettingError if a stage has no node.
        """
        uses = [[_useful_uses(model, i, cloud) for cloud in clouds] for i in range(len(model.spec.stages))]
        sizes = [
            _sizes_to_search(cloud, {use.machines for stage in uses for use in stage[c]})
            for c, cloud in enumerate(clouds)
        ]
        nodes = [
            [
                StageAllocation(cloud, machines, allocation)
                for c, cloud in enumerate(clouds)
                for machines in sizes[c]
                for allocation in _best_allocations(stage[c], machines, cloud)
            ]
            for stage in uses
        ]
        for i, stage_nodes in enumerate(nodes):
            if not stage_nodes:
                raise SettingError(
                    f"stage {i + 1}: no allowed number of machines that live long enough can run its "
                    f"{model.spec.stages[i].trials} trials; raise max_machines or give another machine type"
                )
        graph = cls(model, nodes, [], [], [])
        before: list[StageAllocation | None] = [model.initial]
        for i, now in enumerate(nodes):
            transitions = _transitions(model, i, before, now)
            for arrays, array in zip((graph.seconds, graph.dollars, graph.new_billed), transitions, strict=True):
                arrays.append(array)
            before = list(now)
        return graph

    def choices(self, path: Sequence[int]) -> list[StageAllocation]:
        """Return the nodes of a path, which is given as the index of a node in each stage."""
        return [nodes[index] for nodes, index in zip(self.nodes, path, strict=True)]


def _sizes_to_search(cloud: CloudProfile, needed: set[int]) -> list[int]:
    """Return the numbers of machines to search, from those that some stage needs."""
    largest = max(needed, default=0)
    if (cloud.init_latency.std or cloud.minimum_billed_seconds) and largest <= SEARCH_ALL_UP_TO:
        return list(range(min(needed, default=1), largest + 1))
    return sorted(needed)


def _useful_uses(model: CostModel, i: int, cloud: CloudProfile) -> list[_Use]:
    """Return the feasible uses of this machine type in stage `i`.

    A use is left out if another one needs no more machines, no more time and no more function dollars.
    """
    uses: list[_Use] = []
    max_machines = cloud.max_machines or math.inf
    by_function = cloud.billing == "per_function"
    for allocation in model.allocations(i):
        needed = cloud.machines_needed(*allocation)
        if needed > max_machines:
            continue
        seconds = model.train_seconds(i, cloud, allocation)
        if not math.isfinite(seconds):
            continue
        function_dollars = model.function_dollars(i, cloud, allocation) if by_function else 0.0
        uses.append(_Use(needed, seconds, function_dollars, allocation))
    uses.sort()
    useful: list[_Use] = []
    for use in uses:
        if not any(
            other.seconds <= use.seconds and other.function_dollars <= use.function_dollars for other in useful
        ):
            useful.append(use)
    return useful


def _best_allocations(useful: list[_Use], machines: int, cloud: CloudProfile) -> list[Allocation]:
    """Return the allocations worth searching on this number of machines.

    With billing per instance only the fastest one is.
    """
    fitting = [use for use in useful if use.machines <= machines]
    if cloud.billing == "per_instance":
        fitting = sorted(fitting, key=lambda use: use.seconds)[:1]
    return [use.allocation for use in fitting]


def _transitions(
    model: CostModel, i: int, before: Sequence[StageAllocation | None], now: Sequence[StageAllocation]
) -> tuple[Floats, Floats, Floats]:
    """Return the arrays of `PlanGraph` for stage `i`.

    They are the seconds, the dollars, and the newly billed seconds of each step from a node of the stage before to
    a node of this one.
    """
    kept = _kept(before, now)
    columns = [model.expect_stage(i, choice, kept[:, at]) for at, choice in enumerate(now)]
    seconds, dollars, billed = (np.stack(each, axis=1) for each in zip(*columns, strict=True))
    return seconds, dollars, billed


def _kept(before: Sequence[StageAllocation | None], now: Sequence[StageAllocation]) -> NDArray[np.intp]:
    """Return how many machines each node keeps from each node of the stage before.

    The shape is (nodes before, nodes).
    """
    machines_before = np.array([0 if node is None else node.machines for node in before], np.intp)
    machines = np.array([node.machines for node in now], np.intp)
    types_before, types = (
        np.array([0 if node is None else id(node.cloud) for node in nodes]) for nodes in (before, now)
    )
    same = types_before[:, None] == types
    return np.where(same, np.minimum(machines_before[:, None], machines), 0)
