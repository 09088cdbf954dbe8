"""Tests of plans for the rest of a job: with initial machines, limited parallel trials and any deadline."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thriftune.planning import CloudProfile, JobSpec, Plan, Profile, hyperband, successive_halving
from thriftune.planning.allocation import Allocation, StageAllocation, fair_allocations
from thriftune.planning.cost_model import CostModel
from thriftune.planning.plan_finder import best_effort

CLOUDS = [
    CloudProfile(2, 1.0, queue=20.0, init=30.0, minimum=60.0, name="slow", max_machines=4),
    CloudProfile(1, 1.7, queue=20.0, init=40.0, minimum=60.0, name="quick", speed=2.0, max_machines=4),
]
PROFILE = Profile({1: 40.0}, startup=5.0, checkpoint=2.0)


def rest_of(plan: Plan, number: int) -> CostModel:
    """Return the model of the job from this stage on, with the machines of the stage before."""
    spec = plan.model.spec
    return replace(
        plan.model,
        spec=JobSpec(spec.stages[number:], spec.begins[number:]),
        initial=plan.choices[number - 1],
        _training_times={},
    )


@pytest.mark.parametrize("deadline", [400.0, 700.0, 1000.0, 1500.0, 2500.0, None])
@pytest.mark.parametrize("job", [successive_halving(8, 2, 14, 2), hyperband(1, 9, 3)], ids=["SHA", "hyperband"])
def test_the_rest_of_an_optimal_plan_is_optimal(job: JobSpec, deadline: float | None) -> None:
    clouds = [replace(cloud, minimum=0.0) for cloud in CLOUDS]  # machines below a minimum would cost extra
    plan = best_effort(CostModel(job, PROFILE, at_a_time=4), clouds, deadline)
    for number in range(1, len(job.stages)):
        stages = plan.stages[number:]
        left = None if deadline is None else deadline - stages[0].starts
        again = best_effort(rest_of(plan, number), clouds, left)
        if deadline is None or plan.duration <= deadline:
            assert again.cost == pytest.approx(math.fsum(stage.dollars for stage in stages))
        else:
            assert again.duration == pytest.approx(math.fsum(stage.seconds for stage in stages))


@settings(max_examples=40, deadline=None)
@given(
    stages=st.lists(st.tuples(st.integers(1, 7), st.integers(1, 4)), min_size=1, max_size=2),
    at_a_time=st.integers(1, 5),
    placed=st.integers(0, 4),
    kind=st.integers(0, 1),
    limit=st.floats(50.0, 3000.0),
)
def test_best_effort_agrees_with_brute_force(
    stages: list[tuple[int, int]], at_a_time: int, placed: int, kind: int, limit: float
) -> None:
    held = StageAllocation(CLOUDS[kind], placed, Allocation(1, 1)) if placed else None
    model = CostModel(JobSpec.of(stages), PROFILE, at_a_time, held)
    every = [
        [
            StageAllocation(cloud, machines, allocation)
            for cloud in CLOUDS
            for allocation in model.allocations(i)
            for machines in range(cloud.machines_needed(*allocation), 5)
        ]
        for i in range(len(stages))
    ]
    result = [model.predict(choices) for choices in itertools.product(*every)]
    totals = [(sum(each.dollars for each in one), sum(each.seconds for each in one)) for one in result]
    in_time = [dollars for dollars, seconds in totals if seconds <= limit]
    plan = best_effort(model, CLOUDS, limit)
    assert all(stage.at_a_time <= at_a_time for stage in plan.stages)
    if in_time:
        assert plan.cost == pytest.approx(min(in_time))
    else:
        assert plan.duration == pytest.approx(min(seconds for _, seconds in totals))


@given(trials=st.integers(1, 60), most=st.integers(1, 70))
def test_fair_allocations_cover_every_number_of_rounds(trials: int, most: int) -> None:
    found = fair_allocations(trials, 2, most)
    assert found == sorted(found, key=lambda each: each.slots)
    for at_a_time in range(1, min(trials, most) + 1):
        rounds = -(-trials // at_a_time)
        least = min(each.at_a_time for each in found if -(-trials // each.at_a_time) <= rounds)
        assert least <= at_a_time
    assert all(each.at_a_time <= most for each in found)
    assert all(each.workers == 1 or each.at_a_time == trials for each in found)
    assert {each.at_a_time for each in fair_allocations(trials, 1) if each.at_a_time <= most} <= {
        e.at_a_time for e in found
    }


def test_a_partial_last_round_takes_as_long_as_a_full_one() -> None:
    model = CostModel(JobSpec.of([(5, 2)]), PROFILE, at_a_time=2)
    choice = StageAllocation(CLOUDS[0], 1, Allocation(2, 1))
    (result,) = model.predict([choice])
    assert result.seconds == pytest.approx(50.0 + 3 * (5.0 + 80.0 + 2.0))
    assert CostModel(JobSpec.of([(6, 2)]), PROFILE).predict([choice])[0].seconds == pytest.approx(result.seconds)


def test_initial_machines_need_no_start() -> None:
    choice = StageAllocation(CLOUDS[0], 2, Allocation(4, 1))
    job = JobSpec.of([(4, 1)])
    (new,), (kept,) = (CostModel(job, PROFILE, initial=placed).predict([choice]) for placed in (None, choice))
    assert new.seconds - kept.seconds == pytest.approx(50.0)
    assert new.dollars - kept.dollars == pytest.approx(2 * 30.0 / 3600.0 + _short(new.seconds - 20.0))
    more = CostModel(job, PROFILE, initial=choice._replace(machines=9)).predict([choice])[0]
    assert more.dollars == pytest.approx(kept.dollars), "what is let go has been paid"
    other = CostModel(job, PROFILE, initial=StageAllocation(CLOUDS[1], 2, Allocation(1, 1))).predict([choice])[0]
    assert other == new, "another kind is no use"


def _short(lived: float) -> float:
    """Return the dollars that two machines cost for the time missing to their billed minimum."""
    return 2 * max(0.0, 60.0 - lived) / 3600.0
