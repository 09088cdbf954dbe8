"""What must be done, and what before what? A plan as tasks that depend on each other (RubberBand 4.2, Figure 7).

For each stage: where machines are missing, SCALE (the provider hands them over) and then INIT_INSTANCE, one for
each; TRAIN, one for each trial; and SYNC, which waits for all of them. Where there is not room for all trials at a
time, the next one starts as soon as one is done, as RubberBand's executor has it (section 5); its simulator says
beforehand who waits for whom, which takes longer. Machines that are let go, at the SYNC before, cost no time.
A job is done when its longest path is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thriftune.planning.allocation import StageAllocation
from thriftune.planning.job import JobSpec, Stage
from thriftune.planning.losses import with_losses
from thriftune.planning.profile import Profile, slownesses

Floats = NDArray[np.float64]


class TaskKind(StrEnum):
    SCALE = "SCALE"
    INIT_INSTANCE = "INIT_INSTANCE"
    TRAIN = "TRAIN"
    SYNC = "SYNC"


@dataclass(frozen=True, slots=True)
class Task:
    kind: TaskKind
    stage: int
    after: tuple[int, ...]  # the nodes it waits for, all of them before it


@dataclass(frozen=True, slots=True)
class StageTasks:
    """Where a stage's nodes are."""

    kept: int  # machines that were there before
    scale: int | None
    inits: tuple[int, ...]
    trains: tuple[int, ...]
    sync: int


@dataclass(frozen=True, slots=True)
class Dag:
    choices: Sequence[StageAllocation]
    nodes: list[Task] = field(default_factory=list)
    stages: list[StageTasks] = field(default_factory=list)

    def ends(self, seconds: Floats) -> Floats:
        """When each node is done, from how long it takes; both of (nodes, samples)."""
        done = np.array(seconds, dtype=float)
        start = np.zeros(done.shape[1])
        for choice, stage in zip(self.choices, self.stages, strict=True):
            if stage.scale is not None:
                done[stage.scale] += start
                done[list(stage.inits)] += done[stage.scale]
                start = done[list(stage.inits)].max(axis=0)
            trains = list(stage.trains)
            done[trains] = start + queued(seconds[trains], choice.allocation.at_a_time)
            done[stage.sync] += done[trains].max(axis=0)
            start = done[stage.sync]
        return done


def queued(seconds: Floats, at_a_time: int) -> Floats:
    """When each of these is done, (trials, samples), if so many run at a time and the next begins at once."""
    if at_a_time >= len(seconds):
        return seconds
    done = np.array(seconds)
    busy = np.array(seconds[:at_a_time])  # until when each place is
    every = np.arange(seconds.shape[1])
    for trial in range(at_a_time, len(seconds)):
        place = busy.argmin(axis=0)
        done[trial] += busy[place, every]
        busy[place, every] = done[trial]
    return done


def build(spec: JobSpec, choices: Sequence[StageAllocation]) -> Dag:
    dag = Dag(choices)
    frontier: tuple[int, ...] = ()
    before: StageAllocation | None = None

    def add(kind: TaskKind, stage: int, after: tuple[int, ...]) -> int:
        dag.nodes.append(Task(kind, stage, after))
        return len(dag.nodes) - 1

    for i, (stage, choice) in enumerate(zip(spec.stages, choices, strict=True)):
        kept = machines_kept(before, choice)
        scale: int | None = None
        inits: tuple[int, ...] = ()
        if kept < choice.machines:
            scale = add(TaskKind.SCALE, i, frontier)
            inits = tuple(add(TaskKind.INIT_INSTANCE, i, (scale,)) for _ in range(choice.machines - kept))
            frontier = inits
        trains = tuple(add(TaskKind.TRAIN, i, frontier) for _ in range(stage.trials))
        sync = add(TaskKind.SYNC, i, trains)
        dag.stages.append(StageTasks(kept, scale, inits, trains, sync))
        frontier, before = (sync,), choice
    return dag


def machines_kept(before: StageAllocation | None, choice: StageAllocation) -> int:
    """Of the stage before; another kind of machine is no use."""
    same = before is not None and before.cloud is choice.cloud
    return min(before.machines, choice.machines) if before is not None and same else 0


def sampled(dag: Dag, spec: JobSpec, profile: Profile, samples: int, rng: np.random.Generator) -> Floats:
    """How long each node takes, drawn so many times: an array of (nodes, samples)."""
    seconds = np.zeros((len(dag.nodes), samples))
    for stage, choice, nodes in zip(spec.stages, dag.choices, dag.stages, strict=True):
        cloud = choice.cloud
        if nodes.scale is not None:
            seconds[nodes.scale] = cloud.queue_latency.sample((samples,), rng)
            seconds[list(nodes.inits)] = cloud.init_latency.sample((len(nodes.inits), samples), rng)
        seconds[list(nodes.trains)] = train_seconds(stage, choice, profile, samples, rng)
    return seconds


def train_seconds(
    stage: Stage, choice: StageAllocation, profile: Profile, samples: int, rng: np.random.Generator
) -> Floats:
    """How long each of a stage's trials takes, (trials, samples)."""
    cloud, shape = choice.cloud, (stage.trials, samples)
    noise: Any = slownesses(profile.variation, rng.standard_normal(shape)) if profile.std else 1.0
    mean = stage.steps * profile.seconds(choice.allocation.workers) / cloud.speed
    work = np.broadcast_to(mean * noise, shape)
    if cloud.survival is None:
        return np.asarray(profile.startup + work + profile.checkpoint)
    return with_losses(work, choice, profile, rng)
