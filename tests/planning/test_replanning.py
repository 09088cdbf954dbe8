"""Plans of what is left: with the machines that are there, so many trials at a time, by whatever time there is."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thriftune.planning import CloudProfile, JobSpec, Plan, Profile, hyperband, successive_halving
from thriftune.planning.allocation import Allocation, StageAllocation, fair
from thriftune.planning.choosing import best_effort
from thriftune.planning.cost_model import CostModel

CLOUDS = [
    CloudProfile(2, 1.0, queue=20.0, init=30.0, minimum=60.0, name="slow", max_machines=4),
    CloudProfile(1, 1.7, queue=20.0, init=40.0, minimum=60.0, name="quick", speed=2.0, max_machines=4),
]
PROFILE = Profile({1: 40.0}, startup=5.0, checkpoint=2.0)


def rest_of(plan: Plan, number: int) -> CostModel:
    """From that stage on, with what the one before leaves."""
    spec = plan.model.spec
    return replace(
        plan.model,
        spec=JobSpec(spec.stages[number:], spec.begins[number:]),
        there=plan.choices[number - 1],
        _known={},
    )


@pytest.mark.parametrize("deadline", [400.0, 700.0, 1000.0, 1500.0, 2500.0, None])
@pytest.mark.parametrize("job", [successive_halving(8, 2, 14, 2), hyperband(1, 9, 3)], ids=["SHA", "hyperband"])
def test_where_all_went_as_planned_the_rest_of_the_plan_is_still_the_best(
    job: JobSpec, deadline: float | None
) -> None:
    clouds = [replace(cloud, minimum=0.0) for cloud in CLOUDS]  # what is young would owe something
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
    there=st.integers(0, 4),
    kind=st.integers(0, 1),
    limit=st.floats(50.0, 3000.0),
)
def test_it_is_the_best_of_all_that_there_are(
    stages: list[tuple[int, int]], at_a_time: int, there: int, kind: int, limit: float
) -> None:
    held = StageAllocation(CLOUDS[kind], there, Allocation(1, 1)) if there else None
    model = CostModel(JobSpec.of(stages), PROFILE, at_a_time, held)
    every = [
        [
            StageAllocation(cloud, machines, allocation)
            for cloud in CLOUDS
            for allocation in model.allocations(i)
            for machines in range(cloud.machines_for(*allocation), 5)
        ]
        for i in range(len(stages))
    ]
    told = [model.predict(choices) for choices in itertools.product(*every)]
    totals = [(sum(each.dollars for each in one), sum(each.seconds for each in one)) for one in told]
    in_time = [dollars for dollars, seconds in totals if seconds <= limit]
    plan = best_effort(model, CLOUDS, limit)
    assert all(stage.at_a_time <= at_a_time for stage in plan.stages)
    if in_time:
        assert plan.cost == pytest.approx(min(in_time))
    else:
        assert plan.duration == pytest.approx(min(seconds for _, seconds in totals))


@given(trials=st.integers(1, 60), most=st.integers(1, 70))
def test_of_so_many_at_a_time_every_number_of_turns_that_there_can_be(trials: int, most: int) -> None:
    found = fair(trials, 2, most)
    assert found == sorted(found, key=lambda each: each.slots)
    for at_a_time in range(1, min(trials, most) + 1):
        turns = -(-trials // at_a_time)
        least = min(each.at_a_time for each in found if -(-trials // each.at_a_time) <= turns)
        assert least <= at_a_time
    assert all(each.at_a_time <= most for each in found)
    assert all(each.workers == 1 or each.at_a_time == trials for each in found)
    assert {each.at_a_time for each in fair(trials, 1) if each.at_a_time <= most} <= {e.at_a_time for e in found}


def test_a_last_turn_that_is_not_full_takes_as_long_as_one_that_is() -> None:
    model = CostModel(JobSpec.of([(5, 2)]), PROFILE, at_a_time=2)
    choice = StageAllocation(CLOUDS[0], 1, Allocation(2, 1))
    (told,) = model.predict([choice])
    assert told.seconds == pytest.approx(50.0 + 3 * (5.0 + 80.0 + 2.0))
    assert CostModel(JobSpec.of([(6, 2)]), PROFILE).predict([choice])[0].seconds == pytest.approx(told.seconds)


def test_machines_that_are_there_need_not_come_and_cost_what_they_cost() -> None:
    choice = StageAllocation(CLOUDS[0], 2, Allocation(4, 1))
    job = JobSpec.of([(4, 1)])
    (new,), (kept,) = (CostModel(job, PROFILE, there=there).predict([choice]) for there in (None, choice))
    assert new.seconds - kept.seconds == pytest.approx(50.0)
    assert new.dollars - kept.dollars == pytest.approx(2 * 30.0 / 3600.0 + _short(new.seconds - 20.0))
    more = CostModel(job, PROFILE, there=choice._replace(machines=9)).predict([choice])[0]
    assert more.dollars == pytest.approx(kept.dollars), "what is let go has been paid"
    other = CostModel(job, PROFILE, there=StageAllocation(CLOUDS[1], 2, Allocation(1, 1))).predict([choice])[0]
    assert other == new, "another kind is no use"


def _short(lived: float) -> float:
    """What two machines cost beyond their lives."""
    return 2 * max(0.0, 60.0 - lived) / 3600.0
