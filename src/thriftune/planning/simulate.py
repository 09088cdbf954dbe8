"""What may come of a plan? It is carried out many times over, its latencies drawn (RubberBand Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thriftune.planning import dag
from thriftune.planning.allocation import Choice
from thriftune.planning.profile import Profile
from thriftune.planning.spec import JobSpec

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Executions:
    """One figure for each time that the plan was carried out."""

    seconds: Floats
    dollars: Floats
    ends: Floats  # (stages, executions): when each stage was done

    def __len__(self) -> int:
        return len(self.seconds)

    def probability(self, deadline_seconds: float) -> float:
        """That the job is done by then."""
        return float(np.mean(self.seconds <= deadline_seconds * (1.0 + 1e-9)))


def executions(
    spec: JobSpec, profile: Profile, choices: Sequence[Choice], samples: int, rng: np.random.Generator
) -> Executions:
    graph = dag.build(spec, choices)
    seconds = dag.sampled(graph, spec, profile, samples, rng)
    ends = graph.ends(seconds)
    dollars = np.zeros(samples)
    there: list[tuple[int, Floats]] = []  # machines, and when they were handed over; the oldest first
    before: Choice | None = None
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


def _let_go(there: list[tuple[int, Floats]], count: int, now: Floats, choice: Choice) -> Floats | float:
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
