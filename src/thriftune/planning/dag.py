"""What must be done, and what before what? A plan as tasks that depend on each other (RubberBand 4.2, Figure 7).

For each stage: where machines are missing, SCALE (the provider hands them over) and then INIT_INSTANCE, one for
each; TRAIN, one for each trial, in chains where trials take turns; and SYNC, which waits for all of them. Machines
that are let go, at the SYNC before, cost no time. A job is done when its longest path is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thriftune.planning.allocation import Choice
from thriftune.planning.losses import with_losses
from thriftune.planning.profile import Profile, slownesses
from thriftune.planning.spec import JobSpec

Floats = NDArray[np.float64]


class Kind(StrEnum):
    SCALE = "SCALE"
    INIT_INSTANCE = "INIT_INSTANCE"
    TRAIN = "TRAIN"
    SYNC = "SYNC"


@dataclass(frozen=True, slots=True)
class Node:
    kind: Kind
    stage: int
    after: tuple[int, ...]  # the nodes it waits for, all of them before it


@dataclass(frozen=True, slots=True)
class StageNodes:
    """Where a stage's nodes are: the machines it rents, the trials by turns, the end."""

    kept: int  # machines that were there before
    scale: int | None
    inits: tuple[int, ...]
    trains: tuple[tuple[int, ...], ...]  # by turn, then by place in it
    sync: int


@dataclass(frozen=True, slots=True)
class Dag:
    choices: Sequence[Choice]
    nodes: list[Node] = field(default_factory=list)
    stages: list[StageNodes] = field(default_factory=list)

    def ends(self, seconds: Floats) -> Floats:
        """When each node is done, from how long it takes; both of (nodes, samples)."""
        done = np.array(seconds, dtype=float)
        for i, node in enumerate(self.nodes):
            if node.after:
                done[i] += done[list(node.after)].max(axis=0)
        return done


def build(spec: JobSpec, choices: Sequence[Choice]) -> Dag:
    dag = Dag(choices)
    frontier: tuple[int, ...] = ()
    before: Choice | None = None

    def add(kind: Kind, stage: int, after: tuple[int, ...]) -> int:
        dag.nodes.append(Node(kind, stage, after))
        return len(dag.nodes) - 1

    for i, (stage, choice) in enumerate(zip(spec.stages, choices, strict=True)):
        kept = machines_kept(before, choice)
        scale: int | None = None
        inits: tuple[int, ...] = ()
        if kept < choice.machines:
            scale = add(Kind.SCALE, i, frontier)
            inits = tuple(add(Kind.INIT_INSTANCE, i, (scale,)) for _ in range(choice.machines - kept))
            frontier = inits
        turns: list[tuple[int, ...]] = []
        for turn in range(stage.trials // choice.allocation.at_a_time):
            places = range(choice.allocation.at_a_time)
            after = [(turns[-1][place],) if turn else frontier for place in places]
            turns.append(tuple(add(Kind.TRAIN, i, each) for each in after))
        sync = add(Kind.SYNC, i, turns[-1])
        dag.stages.append(StageNodes(kept, scale, inits, tuple(turns), sync))
        frontier, before = (sync,), choice
    return dag


def machines_kept(before: Choice | None, choice: Choice) -> int:
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
        for turn in nodes.trains:
            seconds[list(turn)] = train_seconds(stage.steps, len(turn), choice, profile, samples, rng)
    return seconds


def train_seconds(
    steps: int, trials: int, choice: Choice, profile: Profile, samples: int, rng: np.random.Generator
) -> Floats:
    """Of trials that run at the same time, an array of (trials, samples)."""
    cloud, workers = choice.cloud, choice.allocation.workers
    noise: Any = slownesses(profile.variation, rng.standard_normal((trials, samples))) if profile.std else 1.0
    work = np.broadcast_to(steps * profile.seconds(workers) / cloud.speed * noise, (trials, samples))
    if cloud.survival is None:
        return np.asarray(profile.startup + work + profile.checkpoint)
    return with_losses(work, choice, profile, rng)
