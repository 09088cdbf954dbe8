"""Tests of the task graph: the paper's Figure 7, queued trials, and longest paths by recursion."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thriftune.planning import CloudProfile, JobSpec, Latency, Profile
from thriftune.planning.allocation import Allocation, StageAllocation, fair_allocations
from thriftune.planning.dag import (
    Dag,
    Task,
    TaskKind,
    build_dag,
    machines_kept,
    queued_finish_times,
    sample_task_seconds,
)

CLOUD = CloudProfile(2, 1.0, queue=5.0, init=15.0)
OTHER = CloudProfile(1, 2.0, queue=7.0, init=1.0, name="other")
SCALE, INIT, TRAIN, SYNC = TaskKind


def kinds(dag: Dag) -> list[tuple[str, int, tuple[int, ...]]]:
    return [(node.kind, node.stage, node.after) for node in dag.tasks]


@st.composite
def plans(draw: st.DrawFn) -> tuple[JobSpec, list[StageAllocation]]:
    stages = draw(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 9)), min_size=1, max_size=5))
    choices = []
    for trials, _ in stages:
        cloud = draw(st.sampled_from([CLOUD, OTHER]))
        allocation = draw(st.sampled_from(fair_allocations(trials, 3)))
        machines = cloud.machines_needed(*allocation) + draw(st.integers(0, 2))
        choices.append(StageAllocation(cloud, machines, allocation))
    return JobSpec.of(stages), choices


def test_figure_7() -> None:
    """A cluster that is large enough for all stages is scaled only before the first one."""
    cluster = [StageAllocation(CLOUD, 2, Allocation(trials, 4 // trials)) for trials in (4, 2, 1)]
    dag = build_dag(JobSpec.of([(4, 1), (2, 2), (1, 4)]), cluster)
    assert kinds(dag) == [
        (SCALE, 0, ()),
        (INIT, 0, (0,)),
        (INIT, 0, (0,)),
        *[(TRAIN, 0, (1, 2))] * 4,
        (SYNC, 0, (3, 4, 5, 6)),
        *[(TRAIN, 1, (7,))] * 2,
        (SYNC, 1, (8, 9)),
        (TRAIN, 2, (10,)),
        (SYNC, 2, (11,)),
    ]


def test_the_next_trial_starts_as_soon_as_one_is_done() -> None:
    """With two at a time, the third trial starts when the shorter one of the first two is done."""
    seconds = np.array([[3.0], [1.0], [1.0], [4.0], [1.0], [1.0]])
    assert queued_finish_times(seconds, 2).ravel().tolist() == [3.0, 1.0, 2.0, 6.0, 4.0, 5.0]
    assert queued_finish_times(seconds, 1).ravel().tolist() == [3.0, 4.0, 5.0, 9.0, 10.0, 11.0]
    assert queued_finish_times(seconds, 6) is seconds
    assert seconds[3] == 4.0


def test_only_missing_machines_are_rented() -> None:
    one, two, three = (StageAllocation(CLOUD, n, Allocation(2, 1)) for n in (1, 2, 3))
    assert [machines_kept(None, two), machines_kept(two, three), machines_kept(three, one)] == [0, 2, 1]
    assert machines_kept(two, StageAllocation(OTHER, 2, Allocation(2, 1))) == 0
    dag = build_dag(JobSpec.of([(2, 1)] * 4), [two, three, one, three])
    assert [(stage.kept, len(stage.inits)) for stage in dag.stages] == [(0, 2), (2, 1), (1, 0), (1, 2)]
    assert [stage.scale is None for stage in dag.stages] == [False, False, True, False]
    scale = dag.stages[1].scale
    assert scale is not None
    assert dag.tasks[scale].after == (dag.stages[0].sync,)


@settings(max_examples=100, deadline=None)
@given(plans())
def test_every_trial_trains_once_and_a_sync_waits_for_all(
    plan: tuple[JobSpec, list[StageAllocation]],
) -> None:
    spec, choices = plan
    dag = build_dag(spec, choices)
    for i, (stage, choice) in enumerate(zip(spec.stages, choices, strict=True)):
        found = [node for node in dag.tasks if node.stage == i]
        count = {kind: sum(node.kind is kind for node in found) for kind in TaskKind}
        kept = machines_kept(choices[i - 1] if i else None, choice)
        new = choice.machines - kept
        assert count == {SCALE: int(new > 0), INIT: new, TRAIN: stage.trials, SYNC: 1}
        assert dag.tasks[dag.stages[i].sync].after == dag.stages[i].trains
    assert all(before < at for at, node in enumerate(dag.tasks) for before in node.after)


def by_going_back(dag: Dag, takes: Sequence[float]) -> list[float]:
    """Return when each task is done, by recursion. A queued trial waits for the first free place."""

    def ready(node: Task) -> float:
        return max((end(each) for each in node.after), default=0.0)

    @cache
    def end(at: int) -> float:
        node = dag.tasks[at]
        return trials(node.stage)[at] if node.kind is TRAIN else ready(node) + takes[at]

    @cache
    def trials(stage: int) -> dict[int, float]:
        trains = dag.stages[stage].trains
        places = [ready(dag.tasks[trains[0]])] * dag.choices[stage].allocation.at_a_time
        ends = {}
        for trial in trains:
            ends[trial] = heapq.heappop(places) + takes[trial]
            heapq.heappush(places, ends[trial])
        return ends

    return [end(at) for at in range(len(dag.tasks))]


@settings(max_examples=100, deadline=None)
@given(plans(), st.integers(0, 1000))
def test_finish_times_follow_the_longest_paths(plan: tuple[JobSpec, list[StageAllocation]], seed: int) -> None:
    dag = build_dag(*plan)
    seconds = np.random.default_rng(seed).exponential(10.0, (len(dag.tasks), 3))
    result = dag.finish_times(seconds)
    for sample in range(3):
        assert result[:, sample].tolist() == pytest.approx(by_going_back(dag, seconds[:, sample].tolist()))


@settings(max_examples=100, deadline=None)
@given(plans())
def test_a_job_takes_the_sum_of_its_stages(plan: tuple[JobSpec, list[StageAllocation]]) -> None:
    spec, choices = plan
    profile = Profile({1: 2.0, 2: 1.5, 3: 1.2}, startup=3.0, checkpoint=1.0)
    dag = build_dag(spec, choices)
    ends = dag.finish_times(sample_task_seconds(dag, spec, profile, 2, np.random.default_rng(0)))
    expected, before = 0.0, None
    for stage, choice, nodes in zip(spec.stages, choices, dag.stages, strict=True):
        cloud, (at_a_time, workers) = choice.cloud, choice.allocation
        waits = machines_kept(before, choice) < choice.machines
        expected += waits * (cloud.queue_latency.mean + cloud.init_latency.mean)
        expected += stage.trials // at_a_time * (3.0 + stage.steps * profile.seconds(workers) + 1.0)
        assert ends[nodes.sync].tolist() == pytest.approx([expected, expected])
        before = choice


def totals(cloud: CloudProfile, profile: Profile, choices: Sequence[Allocation]) -> dict[str, float]:
    spec = JobSpec.of([(4, 10)] * len(choices))
    dag = build_dag(spec, [StageAllocation(cloud, 2, each) for each in choices])
    drawn = sample_task_seconds(dag, spec, profile, 4000, np.random.default_rng(0))
    return {
        kind: float(np.mean([drawn[at].mean() for at, node in enumerate(dag.tasks) if node.kind is kind]))
        for kind in TaskKind
    }


def test_each_kind_of_task_has_its_own_latency() -> None:
    cloud = CloudProfile(2, 1.0, queue=Latency(5.0, 2.0), init=Latency(15.0, 10.0), speed=2.0)
    result = totals(cloud, Profile({1: 4.0}, std=1.0, startup=3.0, checkpoint=2.0), [Allocation(4, 1)])
    expected = {SCALE: 5.0, INIT: 15.0, TRAIN: 3.0 + 10 * 4.0 / 2.0 + 2.0, SYNC: 0.0}
    assert result == pytest.approx(expected, rel=0.03)
