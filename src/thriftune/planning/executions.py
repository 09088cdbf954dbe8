"""Simulated executions of a plan (RubberBand Algorithm 1).

Latencies, training times and preemptions are random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from thriftune.common.durations import Duration
from thriftune.common.durations import seconds as seconds_of
from thriftune.errors import SettingError
from thriftune.planning import dag
from thriftune.planning.allocation import Allocation, StageAllocation
from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.cost_model import CostModel
from thriftune.planning.job import JobSpec
from thriftune.planning.profile import Profile

Floats = NDArray[np.float64]

_Part = tuple[Literal["ready"], int, int] | tuple[Literal["train"], int, Allocation]
"""A part of a plan whose duration is drawn: a stage's wait for a number of new machines, or a stage's training
with an allocation."""


@dataclass(frozen=True, slots=True)
class Executions:
    """The outcomes of simulated executions of a plan, one element per execution."""

    seconds: Floats
    dollars: Floats
    ends: Floats  # (stages, executions): seconds from the job's start to the end of each stage

    def __len__(self) -> int:
        return len(self.seconds)

    def probability(self, deadline: Duration) -> float:
        """Return the share of executions that meet the deadline.

        `deadline` is in seconds, or text such as "20m".
        """
        seconds = seconds_of("deadline", deadline)
        if seconds is None:
            raise SettingError("deadline: give seconds, or text such as '20m'")
        return float(np.mean(self.seconds <= seconds * (1.0 + 1e-9)))


class DurationSampler:
    """A sampler of the durations of plans.

    All plans use the same draws, so that a difference between two plans is not chance. Each part of a plan is
    drawn once and cached.
    """

    def __init__(self, model: CostModel, samples: int) -> None:
        self._spec, self._profile, self._initial = model.spec, model.profile, model.initial
        self._samples = samples
        # Keyed by part and id of the cloud. Each value keeps its cloud alive, so that the id stays unique.
        self._drawn: dict[tuple[object, ...], tuple[CloudProfile, Floats]] = {}

    def seconds(self, choices: Sequence[StageAllocation]) -> Floats:
        """Return the duration of each execution, which is the sum of its stages."""
        total = np.zeros(self._samples)
        before = self._initial
        for i, choice in enumerate(choices):
            if new := choice.machines - dag.machines_kept(before, choice):
                total += self._part_seconds(("ready", i, new), choice)
            total += self._part_seconds(("train", i, choice.allocation), choice)
            before = choice
        return total

    def _part_seconds(self, part: _Part, choice: StageAllocation) -> Floats:
        key = (*part, id(choice.cloud))
        if key not in self._drawn:
            self._drawn[key] = choice.cloud, self._draw(part, choice)
        return self._drawn[key][1]

    def _draw(self, part: _Part, choice: StageAllocation) -> Floats:
        cloud, samples = choice.cloud, self._samples
        rng = np.random.default_rng((part[1], part[0] == "ready"))
        if part[0] == "ready":
            inits = cloud.init_latency.sample((part[2], samples), rng)
            return np.asarray(inits.max(axis=0) + cloud.queue_latency.sample((samples,), rng))
        seconds = dag.sample_train_seconds(self._spec.stages[part[1]], choice, self._profile, samples, rng)
        return np.asarray(dag.queued_finish_times(seconds, choice.allocation.at_a_time).max(axis=0))


def simulate_executions(
    spec: JobSpec, profile: Profile, choices: Sequence[StageAllocation], samples: int, rng: np.random.Generator
) -> Executions:
    """Return the outcomes of `samples` simulated executions of a plan."""
    graph = dag.build_dag(spec, choices)
    seconds = dag.sample_task_seconds(graph, spec, profile, samples, rng)
    ends = graph.finish_times(seconds)
    dollars = np.zeros(samples)
    held: list[tuple[int, Floats]] = []  # (machines, time of their handover), the oldest first
    before: StageAllocation | None = None
    now = np.zeros(samples)
    for choice, tasks in zip(choices, graph.stages, strict=True):
        cloud, new = choice.cloud, choice.machines - tasks.kept
        if before is not None:
            dollars += _release_oldest(held, before.machines - tasks.kept, now, before.cloud)
        if tasks.scale is not None:
            held.append((new, ends[tasks.scale]))
            dollars += new * (cloud.data_gb or profile.data_gb) * cloud.data_price
        if cloud.billing == "per_function":
            trained = seconds[list(tasks.trains)].sum(axis=0)
            dollars += trained * choice.allocation.workers / cloud.slots * cloud.dollars_per_second
        now, before = ends[tasks.sync], choice
    if before is not None:
        dollars += _release_oldest(held, before.machines, now, before.cloud)
    syncs = [tasks.sync for tasks in graph.stages]
    return Executions(now, dollars, ends[syncs])


def _release_oldest(held: list[tuple[int, Floats]], count: int, now: Floats, cloud: CloudProfile) -> Floats:
    """Remove the `count` oldest machines from `held`, and return their dollars.

    The result has one element per execution.
    """
    dollars = np.zeros_like(now)
    while count:
        machines, since = held.pop(0)
        released = min(machines, count)
        count -= released
        if released < machines:
            held.insert(0, (machines - released, since))
        if cloud.billing == "per_instance":
            dollars += released * np.maximum(cloud.minimum, now - since) * cloud.dollars_per_second
    return dollars
