"""A plan as a DAG of tasks (RubberBand section 4.2, Figure 7).

A stage that needs new machines has a SCALE task, in which the provider hands them over, and then one INIT_INSTANCE
task per new machine. Every stage has one TRAIN task per trial and a SYNC task, which waits for all of them. If not
all trials of a stage fit at a time, the next trial starts as soon as one is done, as in RubberBand's executor
(section 5). RubberBand's simulator assigns each waiting trial to a predecessor in advance, which makes stages
longer. Machines that a stage does not need are released at the SYNC of the stage before. A SYNC takes no time. A
job takes as long as the longest path through its tasks.
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
from thriftune.planning.losses import add_preemption_losses
from thriftune.planning.profile import Profile, slowness_factors

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
    after: tuple[int, ...]  # indices of the tasks that must be done first, all of them lower than its own


@dataclass(frozen=True, slots=True)
class StageTasks:
    """The tasks of a stage, as indices into `Dag.tasks`."""

    kept: int  # machines kept from the stage before
    scale: int | None  # None: the stage needs no new machine
    inits: tuple[int, ...]
    trains: tuple[int, ...]
    sync: int


@dataclass(frozen=True, slots=True)
class Dag:
    choices: Sequence[StageAllocation]
    tasks: list[Task] = field(default_factory=list)
    stages: list[StageTasks] = field(default_factory=list)

    def finish_times(self, seconds: Floats) -> Floats:
        """Return when each task is done, in seconds from the job's start.

        `seconds` is the duration of each task. Both arrays are (tasks, samples).
        """
        done = np.array(seconds, dtype=float)
        start = np.zeros(done.shape[1])
        for choice, stage in zip(self.choices, self.stages, strict=True):
            if stage.scale is not None:
                done[stage.scale] += start
                done[list(stage.inits)] += done[stage.scale]
                start = done[list(stage.inits)].max(axis=0)
            trains = list(stage.trains)
            done[trains] = start + queued_finish_times(seconds[trains], choice.allocation.at_a_time)
            done[stage.sync] += done[trains].max(axis=0)
            start = done[stage.sync]
        return done


def queued_finish_times(seconds: Floats, at_a_time: int) -> Floats:
    """Return when each trial is done if `at_a_time` trials run in parallel.

    The times are seconds from the start of the first trials. A waiting trial starts as soon as another one is
    done. `seconds` is the duration of each trial; both arrays are (trials, samples).
    """
    if at_a_time >= len(seconds):
        return seconds
    done = np.array(seconds)
    busy_until = np.array(seconds[:at_a_time])  # by queue
    samples = np.arange(seconds.shape[1])
    for trial in range(at_a_time, len(seconds)):
        first_free = busy_until.argmin(axis=0)
        done[trial] += busy_until[first_free, samples]
        busy_until[first_free, samples] = done[trial]
    return done


def build_dag(spec: JobSpec, choices: Sequence[StageAllocation]) -> Dag:
    """Return the DAG of a job whose stages run on these machines."""
    dag = Dag(choices)
    frontier: tuple[int, ...] = ()
    before: StageAllocation | None = None

    def add(kind: TaskKind, stage: int, after: tuple[int, ...]) -> int:
        dag.tasks.append(Task(kind, stage, after))
        return len(dag.tasks) - 1

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
    """Return how many machines a stage keeps from the stage before.

    It keeps none if the machine type changes.
    """
    if before is None or before.cloud is not choice.cloud:
        return 0
    return min(before.machines, choice.machines)


def sample_task_seconds(
    dag: Dag, spec: JobSpec, profile: Profile, samples: int, rng: np.random.Generator
) -> Floats:
    """Draw the duration of each task, as an array of (tasks, samples)."""
    seconds = np.zeros((len(dag.tasks), samples))
    for stage, choice, tasks in zip(spec.stages, dag.choices, dag.stages, strict=True):
        cloud = choice.cloud
        if tasks.scale is not None:
            seconds[tasks.scale] = cloud.queue_latency.sample((samples,), rng)
            seconds[list(tasks.inits)] = cloud.init_latency.sample((len(tasks.inits), samples), rng)
        seconds[list(tasks.trains)] = sample_train_seconds(stage, choice, profile, samples, rng)
    return seconds


def sample_train_seconds(
    stage: Stage, choice: StageAllocation, profile: Profile, samples: int, rng: np.random.Generator
) -> Floats:
    """Draw how long each trial of a stage trains, as (trials, samples)."""
    cloud, shape = choice.cloud, (stage.trials, samples)
    slowness: Any = slowness_factors(profile.variation, rng.standard_normal(shape)) if profile.std else 1.0
    mean = stage.steps * profile.seconds(choice.allocation.workers) / cloud.speed
    work = np.broadcast_to(mean * slowness, shape)
    if cloud.survival is None:
        return np.asarray(profile.startup + work + profile.checkpoint)
    return add_preemption_losses(work, choice, profile, rng)
