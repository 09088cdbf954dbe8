"""What may come of a plan? It is carried out many times over, its latencies drawn (RubberBand Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thriftune.common.durations import Duration
from thriftune.common.durations import seconds as seconds_of
from thriftune.errors import SettingError
from thriftune.planning import dag
from thriftune.planning.allocation import StageAllocation
from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.cost_model import CostModel
from thriftune.planning.job import JobSpec
from thriftune.planning.profile import Profile

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Executions:
    """One figure for each time that the plan was carried out."""

    seconds: Floats
    dollars: Floats
    ends: Floats  # (stages, executions): when each stage was done

    def __len__(self) -> int:
        return len(self.seconds)

    def probability(self, deadline: Duration) -> float:
        """That the job is done by then: seconds, or a text such as "20m"."""
        seconds = seconds_of("deadline", deadline)
        if seconds is None:
            raise SettingError("deadline: give seconds, or a text such as '20m'")
        return float(np.mean(self.seconds <= seconds * (1.0 + 1e-9)))


class Durations:
    """How long plans take, in seconds, drawn so many times: by the same draws for all of them, so that two plans
    differ by what they are and not by luck, and each part of a plan only once."""

    def __init__(self, model: CostModel, samples: int) -> None:
        self._spec, self._profile, self._there, self._samples = model.spec, model.profile, model.there, samples
        self._known: dict[tuple[object, ...], tuple[CloudProfile, Floats]] = {}

    def of(self, choices: Sequence[StageAllocation]) -> Floats:
        """One for each time: stages wait for each other, so that theirs add up."""
        total = np.zeros(self._samples)
        before = self._there
        for i, choice in enumerate(choices):
            if new := choice.machines - dag.machines_kept(before, choice):
                total += self._part(("ready", i, new), choice)
            total += self._part(("train", i, choice.allocation), choice)
            before = choice
        return total

    def _part(self, part: tuple[str, int, Any], choice: StageAllocation) -> Floats:
        key = (*part, id(choice.cloud))  # the cloud is kept: no other one gets its id
        if key not in self._known:
            self._known[key] = choice.cloud, self._draw(part, choice)
        return self._known[key][1]

    def _draw(self, part: tuple[str, int, Any], choice: StageAllocation) -> Floats:
        what, i, size = part
        cloud, samples = choice.cloud, self._samples
        rng = np.random.default_rng((i, what == "ready"))
        if what == "ready":
            inits = cloud.init_latency.sample((size, samples), rng)
            return np.asarray(inits.max(axis=0) + cloud.queue_latency.sample((samples,), rng))
        each = dag.train_seconds(self._spec.stages[i], choice, self._profile, samples, rng)
        return np.asarray(dag.queued(each, choice.allocation.at_a_time).max(axis=0))


def executions(
    spec: JobSpec, profile: Profile, choices: Sequence[StageAllocation], samples: int, rng: np.random.Generator
) -> Executions:
    graph = dag.build(spec, choices)
    seconds = dag.sampled(graph, spec, profile, samples, rng)
    ends = graph.ends(seconds)
    dollars = np.zeros(samples)
    there: list[tuple[int, Floats]] = []  # machines, and when they were handed over; the oldest first
    before: StageAllocation | None = None
    now = np.zeros(samples)
    for choice, nodes in zip(choices, graph.stages, strict=True):
        cloud, new = choice.cloud, choice.machines - nodes.kept
        if before is not None:
            dollars += _let_go(there, before.machines - nodes.kept, now, before)
        if nodes.scale is not None:
            there.append((new, ends[nodes.scale]))
            dollars += new * (cloud.data_gb or profile.data_gb) * cloud.data_price
        if cloud.billing == "per_function":
            trained = seconds[list(nodes.trains)].sum(axis=0)
            dollars += trained * choice.allocation.workers / cloud.slots * cloud.dollars_per_second
        now, before = ends[nodes.sync], choice
    if before is not None:
        dollars += _let_go(there, before.machines, now, before)
    syncs = [nodes.sync for nodes in graph.stages]
    return Executions(now, dollars, ends[syncs])


def _let_go(there: list[tuple[int, Floats]], count: int, now: Floats, choice: StageAllocation) -> Floats | float:
    """The `count` oldest machines are let go now; what they cost."""
    cloud, dollars = choice.cloud, np.zeros_like(now)
    while count:
        machines, since = there.pop(0)
        gone = min(machines, count)
        count -= gone
        if gone < machines:
            there.insert(0, (machines - gone, since))
        if cloud.billing == "per_instance":
            dollars += gone * np.maximum(cloud.minimum, now - since) * cloud.dollars_per_second
    return dollars
