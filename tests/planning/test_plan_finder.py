"""Tests of plans for deadlines and budgets, of frontiers, and of the limits that errors name."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import thriftune as tt
from benchmarks.planning.problems import Problem, large, small
from tests.market.known_lifetimes import Exponential
from thriftune.errors import SettingError
from thriftune.planning import CloudProfile, JobSpec, Latency, Plan, Profile, frontier, successive_halving
from thriftune.planning.cost_model import CostModel

SPEC = successive_halving(16, 2, 62)
PROFILE = Profile({1: 4.0, 2: 2.4, 4: 1.6}, startup=3.0, checkpoint=1.0)
NOISY = replace(PROFILE, std=1.2)
CLOUD = CloudProfile(4, 12.24, queue=5.0, init=15.0, minimum=60.0, max_machines=16)
RANDOM = replace(CLOUD, queue=Latency(5.0, 2.0), init=Latency(15.0, 6.0))
ON_DEMAND = CloudProfile(1, 3.0, queue=10.0, init=20.0, max_machines=32, name="on demand")
SPOT = replace(ON_DEMAND, price_per_hour=1.0, survival=Exponential(rate=0.2), name="spot")


def planned(problem: Problem, **limits: Any) -> Plan:
    return tt.plan(problem.model.spec, problem.model.profile, problem.clouds, **limits)


def points(problem: Problem, count: int = 40) -> list[Plan]:
    return frontier(problem.model.spec, problem.model.profile, problem.clouds, points=count)


def quickest(profile: Profile = PROFILE, cloud: CloudProfile = CLOUD) -> float:
    return frontier(SPEC, profile, cloud)[0].duration


# --- the contents of a plan


def test_a_plan_describes_each_stage() -> None:
    plan = tt.plan(SPEC, PROFILE, CLOUD, deadline=1.3 * quickest())
    shape = [(stage.trials, stage.begins, stage.steps) for stage in plan.stages]
    assert shape == [(16, 0, 2), (8, 2, 4), (4, 6, 8), (2, 14, 16), (1, 30, 32)]
    starts = np.cumsum([0.0, *(stage.seconds for stage in plan.stages)])
    assert [stage.starts for stage in plan.stages] == pytest.approx(starts[:-1].tolist())
    assert plan.duration == pytest.approx(starts[-1])
    assert plan.cost == pytest.approx(sum(stage.dollars for stage in plan.stages))
    assert plan.duration <= 1.3 * quickest()
    assert (plan.planner, plan.on_time, plan.gap, plan.fall_back_at) == ("exact", 1.0, 0.0, None)
    for stage, choice in zip(plan.stages, plan.choices, strict=True):
        assert (stage.machines, stage.offer) == (choice.machines, "machine")
        assert CLOUD.machines_needed(stage.at_a_time, stage.workers) <= stage.machines <= 16


def test_simulate_executes_the_plan() -> None:
    plan = tt.plan(SPEC, PROFILE, CLOUD, deadline=1.3 * quickest())
    result = plan.simulate(5)
    assert result.seconds == pytest.approx(plan.duration)
    assert result.dollars == pytest.approx(plan.cost)
    random = tt.plan(SPEC, NOISY, RANDOM, deadline=2.0 * quickest())
    np.testing.assert_array_equal(random.simulate(9, seed=3).seconds, random.simulate(9, seed=3).seconds)
    assert (random.simulate(9, seed=3).seconds != random.simulate(9, seed=4).seconds).all()


def test_a_plan_is_written_as_json() -> None:
    plan = tt.plan(SPEC, PROFILE, [ON_DEMAND, SPOT], deadline="30m")
    result = json.loads(json.dumps(plan.to_json()))
    assert result["cost"] == plan.cost
    assert result["deadline"] == 1800.0
    assert result["stages"][0]["trials"] == 16
    assert len(result["fall_back_at"]) == len(plan.stages)
    assert result["budget"] is None


def test_a_deadline_may_be_text() -> None:
    assert tt.plan(SPEC, PROFILE, CLOUD, deadline="20m").deadline == 1200.0


# --- optimality


def test_no_plan_within_the_limits_is_better() -> None:
    rng = np.random.default_rng(0)
    for _ in range(15):
        problem = small(rng, kinds=2)
        dollars, seconds = (float(np.quantile(problem.totals[:, i], 0.3)) for i in (0, 1))
        in_time, in_budget = planned(problem, deadline=seconds), planned(problem, budget=dollars)
        assert in_time.cost == pytest.approx(problem.least_dollars(seconds))
        assert in_time.lower_bound == pytest.approx(in_time.cost)
        assert in_budget.duration == pytest.approx(problem.least_seconds(dollars))
        assert in_budget.lower_bound == pytest.approx(in_budget.duration)
        assert in_time.gap == pytest.approx(0.0, abs=1e-9)
        assert in_budget.gap == pytest.approx(0.0, abs=1e-9)


def test_of_equally_cheap_plans_the_fastest_is_found() -> None:
    """Without waits, parallel trials cost no more than sequential ones."""
    plan = tt.plan(JobSpec.of([(8, 10)]), Profile({1: 4.0}), CloudProfile(1, 3.6, max_machines=8), deadline="1h")
    assert plan.cost == pytest.approx(8 * 40.0 * 1e-3)
    assert plan.duration == pytest.approx(40.0)


def test_of_equally_fast_plans_the_cheapest_is_found() -> None:
    rng = np.random.default_rng(1)
    for _ in range(25):
        problem = small(rng, kinds=2)
        plan = planned(problem, budget=2.0 * float(problem.totals[:, 0].max()))
        assert plan.duration == pytest.approx(problem.totals[:, 1].min())
        assert plan.cost == pytest.approx(problem.least_dollars(plan.duration))


def test_both_limits_are_met_or_rejected() -> None:
    deadline = 1.3 * quickest()
    least = tt.plan(SPEC, PROFILE, CLOUD, deadline=deadline)
    plan = tt.plan(SPEC, PROFILE, CLOUD, deadline=deadline, budget=1.01 * least.cost)
    assert (plan.cost, plan.deadline, plan.budget) == (least.cost, deadline, 1.01 * least.cost)
    assert plan.gap == 0.0  # relative to the dollars
    with pytest.raises(SettingError, match=r"is not enough for the deadline of .*: the cheapest exact plan"):
        tt.plan(SPEC, PROFILE, CLOUD, deadline=deadline, budget=0.99 * least.cost)


@pytest.mark.parametrize("noise", [False, True])
def test_no_other_planner_is_cheaper(noise: bool) -> None:
    rng = np.random.default_rng(2)
    tried = 0
    for _ in range(6):
        problem = large(rng, noise=noise)
        if noise and sum(stage.trials for stage in problem.model.spec.stages) > 150:
            continue  # the greedy planner would simulate thousands of large plans
        deadline = float(rng.uniform(1.3, 2.5)) * points(problem, 2)[0].duration
        plan = planned(problem, deadline=deadline)
        for planner in ("greedy", "static", "naive_elastic"):
            try:
                other = planned(problem, deadline=deadline, planner=planner)
            except SettingError:
                continue
            tried += 1
            assert (other.planner, other.lower_bound, other.gap) == (planner, None, None)
            assert plan.cost <= other.cost * (1.0 + 1e-9)
    assert tried > 3


# --- probabilities


@pytest.mark.parametrize("factor", [1.35, 1.5, 3.0])
@pytest.mark.parametrize("probability", [0.5, 0.95, 0.99])
def test_the_probability_holds_for_other_draws(factor: float, probability: float) -> None:
    deadline = factor * quickest(NOISY, RANDOM)
    plan = tt.plan(SPEC, NOISY, RANDOM, deadline=deadline, probability=probability)
    assert plan.on_time is not None
    assert plan.on_time >= probability
    fresh, error = plan.simulate(4000, seed=77), math.sqrt(probability * (1.0 - probability))
    # The plan is the luckiest of about a dozen by 1,000 draws: allow two standard errors for that.
    assert fresh.probability(deadline) >= probability - 4.0 * error / math.sqrt(4000) - 2.0 * error / math.sqrt(
        1000
    )
    assert plan.on_time == pytest.approx(fresh.probability(deadline), abs=0.05)
    assert plan.duration <= deadline


def test_a_higher_probability_costs_more() -> None:
    deadline = 1.5 * quickest(NOISY, RANDOM)
    plans = [tt.plan(SPEC, NOISY, RANDOM, deadline=deadline, probability=p) for p in (0.0, 0.9, 0.99)]
    costs = [plan.cost for plan in plans]
    assert costs == sorted(costs)
    assert plans[0].cost < plans[-1].cost
    assert [plan.lower_bound for plan in plans] == pytest.approx([plans[0].cost] * 3)
    assert plans[0].gap == pytest.approx(0.0, abs=1e-9)


def test_without_randomness_the_probability_is_one() -> None:
    assert tt.plan(SPEC, PROFILE, CLOUD, deadline=quickest(), probability=0.999).on_time == 1.0
    assert tt.plan(SPEC, PROFILE, CLOUD, budget=100.0).on_time is None


# --- limits that errors name


def named(error: SettingError) -> tuple[float, float]:
    """Return the seconds and dollars that an error names as possible."""
    result = str(error).rpartition(": ")[2]
    hours, minutes, seconds = (re.search(rf"([\d.]+) {unit}\b", result) for unit in ("h", "min", "s"))
    total = sum(
        float(found.group(1)) * each
        for found, each in ((hours, 3600.0), (minutes, 60.0), (seconds, 1.0))
        if found is not None
    )
    dollars = re.search(r"\$([\d.]+)", result)
    assert dollars is not None
    return total, float(dollars.group(1))


def refused(spec: JobSpec, profile: Profile, cloud: Any, **limits: Any) -> tuple[float, float]:
    with pytest.raises(SettingError) as result:
        tt.plan(spec, profile, cloud, **limits)
    return named(result.value)


@pytest.mark.parametrize("slower", [0.1, 1.0, 3.7, 41.3])
def test_the_deadline_named_by_an_error_can_be_met(slower: float) -> None:
    profile = Profile({1: 4.77 * slower, 2: 2.41 * slower})
    least = quickest(profile)
    seconds, _ = refused(SPEC, profile, CLOUD, deadline=0.999 * least)
    assert seconds == pytest.approx(least, rel=0.02)
    assert tt.plan(SPEC, profile, CLOUD, deadline=seconds).duration == pytest.approx(least)


@pytest.mark.parametrize("price", [0.0123, 1.234, 12.24, 97.77])
def test_the_budget_named_by_an_error_is_enough(price: float) -> None:
    cloud = replace(CLOUD, price_per_hour=price)
    least = tt.plan(SPEC, PROFILE, cloud, deadline="10h").cost
    _, dollars = refused(SPEC, PROFILE, cloud, budget=0.99 * least)
    assert dollars == pytest.approx(least, rel=0.02, abs=1e-4)
    assert least <= tt.plan(SPEC, PROFILE, cloud, budget=dollars).cost <= dollars
    _, dollars = refused(SPEC, PROFILE, cloud, budget=0.99 * least, deadline="10h")
    assert tt.plan(SPEC, PROFILE, cloud, budget=dollars, deadline="10h").cost == pytest.approx(least)


@pytest.mark.parametrize("probability", [0.2, 0.5, 0.95, 0.9505])
def test_the_deadline_named_by_an_error_can_be_met_with_randomness(probability: float) -> None:
    """The error rounds the deadline up to the next second."""
    profile = Profile({1: 4.0}, std=1.2)
    seconds, _ = refused(SPEC, profile, RANDOM, deadline=10.0, probability=probability)
    plan = tt.plan(SPEC, profile, RANDOM, deadline=seconds + 1.0, probability=probability)
    assert plan.on_time is not None
    assert plan.on_time >= probability


def test_a_planner_that_finds_no_plan_is_named() -> None:
    alone = CloudProfile(4, 12.24, max_machines=4)  # too few for all trials at a time
    with pytest.raises(SettingError, match="cannot be met: no naive_elastic plan does; the fastest plan needs"):
        tt.plan(successive_halving(64, 4, 508), PROFILE, alone, deadline="1d", planner="naive_elastic")
    with pytest.raises(SettingError, match="greedy needs a deadline; for a budget, use exact or static"):
        tt.plan(SPEC, PROFILE, CLOUD, budget=10.0, planner="greedy")


def test_without_a_limit_the_possible_range_is_named() -> None:
    with pytest.raises(SettingError, match=r"give a deadline or a budget: the fastest plan takes .* cheapest"):
        tt.plan(SPEC, PROFILE, CLOUD)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"deadline": 0.0}, r"deadline: 0\.0 must be a finite number, above 0"),
        ({"deadline": math.nan}, "deadline: nan must be"),
        ({"deadline": "soon"}, "deadline: 'soon' is not a duration"),
        ({"budget": -1.0}, r"budget: -1\.0 must be"),
        ({"budget": math.inf}, "budget: inf must be"),
        ({"budget": "15"}, "budget: '15' must be"),
        (
            {"deadline": 100, "planner": "best"},
            "planner: 'best' must be one of exact, greedy, static",
        ),
        ({"deadline": 100, "probability": 1.0}, r"probability: 1\.0 must be at least 0 and below 1"),
        ({"deadline": 100, "probability": -0.1}, r"probability: -0\.1"),
        ({"deadline": 100, "probability": "95%"}, "probability: '95%'"),
        ({"deadline": 100, "cloud": []}, "cloud: give a CloudProfile, or a list of them"),
        ({"deadline": 100, "cloud": None}, "cloud: give a CloudProfile, or a list of them"),
        ({"deadline": 100, "cloud": [CLOUD, "p3"]}, "cloud: give a CloudProfile"),
        (
            {"deadline": 100, "cloud": [CLOUD, RANDOM]},
            "machine, machine: give each machine type a name=",
        ),
    ],
)
def test_invalid_values_are_rejected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        tt.plan(SPEC, PROFILE, **{"cloud": CLOUD, **changes})


# --- the frontier


def test_the_frontier_goes_from_the_fastest_to_the_cheapest() -> None:
    rng = np.random.default_rng(3)
    for _ in range(6):
        problem = large(rng)
        result = points(problem)
        durations, costs = [plan.duration for plan in result], [plan.cost for plan in result]
        assert durations == sorted(durations)
        assert costs == sorted(costs, reverse=True)
        assert len(set(costs)) == len(costs)
        cheapest = planned(problem, deadline=10.0 * durations[-1])
        assert costs[-1] == pytest.approx(cheapest.cost)
        fastest = planned(problem, budget=10.0 * costs[0])
        assert durations[0] == pytest.approx(fastest.duration)


def test_plans_of_the_frontier_are_optimal() -> None:
    """No plan is cheaper within the same time, or faster for the same dollars."""
    rng = np.random.default_rng(4)
    for _ in range(15):
        problem = small(rng, kinds=2)
        for plan in points(problem, 8):
            assert plan.cost == pytest.approx(problem.least_dollars(plan.duration))
            assert plan.duration == pytest.approx(problem.least_seconds(plan.cost))
            assert plan.gap == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("count", [1, 0, 2.5, True, None])
def test_a_frontier_needs_two_points(count: Any) -> None:
    with pytest.raises(SettingError, match=r"points: .* (must be a whole number, at least|is too small; use) 2"):
        frontier(SPEC, PROFILE, CLOUD, points=count)


# --- spot machines


def test_fall_back_at_is_the_latest_start_that_meets_the_deadline() -> None:
    plan = tt.plan(SPEC, PROFILE, [ON_DEMAND, SPOT], deadline="20m")
    assert plan.fall_back_at is not None
    assert {stage.offer for stage in plan.stages} >= {"spot"}
    for i, (latest, stage) in enumerate(zip(plan.fall_back_at, plan.stages, strict=True)):
        if stage.offer != "spot":
            assert latest is None
            continue
        assert latest is not None
        rest = JobSpec(SPEC.stages[i:], SPEC.begins[i:])
        assert tt.plan(rest, PROFILE, ON_DEMAND, deadline=1200.0 - latest + 0.01).on_time == 1.0
        with pytest.raises(SettingError, match="cannot be met"):
            tt.plan(rest, PROFILE, ON_DEMAND, deadline=1200.0 - latest - 0.01)
        assert stage.starts < latest < 1200.0


def test_fall_back_at_is_negative_if_on_demand_is_always_too_slow() -> None:
    """Only spot machines, which are twice as fast here, can meet this deadline."""
    fast = replace(SPOT, speed=2.0, survival=Exponential(rate=1e-3))
    deadline = 0.8 * quickest(PROFILE, ON_DEMAND)
    plan = tt.plan(SPEC, PROFILE, [ON_DEMAND, fast], deadline=deadline)
    assert plan.fall_back_at is not None
    assert plan.fall_back_at[0] is not None
    assert plan.fall_back_at[0] < 0.0


def test_without_on_demand_machines_there_is_no_fall_back() -> None:
    plan = tt.plan(SPEC, PROFILE, SPOT, deadline="30m")
    assert plan.fall_back_at == [None] * len(plan.stages)
    assert tt.plan(SPEC, PROFILE, SPOT, budget=10.0).fall_back_at is None
    assert tt.plan(SPEC, PROFILE, ON_DEMAND, deadline="30m").fall_back_at is None


def test_an_allocation_that_outlives_spot_machines_is_left_out() -> None:
    """Sixty-four machines never live long enough at the same time; a single one does."""
    profile = Profile({1: 600.0, 64: 20.0}, startup=10.0, checkpoint=5.0)
    short = CloudProfile(1, 1.0, survival=Exponential(rate=20.0), name="spot", max_machines=64)
    stays = CloudProfile(1, 3.0, name="on demand", max_machines=64)
    spec = successive_halving(4, 1, 15)
    alone = tt.plan(spec, profile, stays, deadline="20h")
    assert tt.plan(spec, profile, [short, stays], deadline="20h").cost <= alone.cost


def test_preemptions_are_part_of_the_cost() -> None:
    calm, rough = (replace(SPOT, survival=Exponential(rate=rate)) for rate in (1e-9, 4.0))
    spec = successive_halving(4, 50, 750)
    plans = [tt.plan(spec, PROFILE, cloud, deadline="10h") for cloud in (calm, rough)]
    assert plans[0].cost < plans[1].cost
    result = plans[1].simulate(3000, seed=5)
    error = 4.0 * float(result.dollars.std()) * math.sqrt(1 / 3000 + 1 / 200)
    assert plans[1].cost == pytest.approx(result.dollars.mean(), abs=error)


def test_a_plan_keeps_its_model() -> None:
    plan = tt.plan(SPEC, PROFILE, CLOUD, deadline="20m")
    assert plan.model == CostModel(SPEC, PROFILE)
    assert "choices" not in repr(plan)


def test_machines_that_live_too_briefly_are_rejected() -> None:
    with pytest.raises(SettingError, match="stage 1: no allowed number of machines that live long enough"):
        tt.plan(SPEC, PROFILE, replace(SPOT, survival=Exponential(rate=5000.0)), deadline="300h")


def test_spec_and_profile_are_checked() -> None:
    with pytest.raises(SettingError, match=r"spec: \[\(4, 10\)\] must be a JobSpec"):
        tt.plan([(4, 10)], PROFILE, CLOUD, deadline="20m")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="profile: None must be a Profile"):
        frontier(SPEC, None, CLOUD)  # type: ignore[arg-type]


def test_simulate_needs_at_least_one_execution() -> None:
    plan = tt.plan(SPEC, PROFILE, CLOUD, deadline="20m")
    for times in (0, -1, 1.5):
        with pytest.raises(SettingError, match=r"n: .* (must be a whole number, at least|is too small; use) 1"):
            plan.simulate(times)  # type: ignore[arg-type]
    assert plan.simulate(3).probability("20m") == 1.0
    with pytest.raises(SettingError, match="deadline: 'soon' is not a duration"):
        plan.simulate(3).probability("soon")


def test_a_deadline_that_only_a_steadier_plan_meets_is_met() -> None:
    """The plan that is fastest on average varies, because its machines sometimes take long to start."""
    quick = CloudProfile(1, 1.0, init=Latency(60.0, 200.0), name="quick", max_machines=1)
    steady = CloudProfile(1, 1.0, init=70.0, name="steady", max_machines=1)
    job, profile = JobSpec.of([(1, 100)]), Profile({1: 1.0})
    assert tt.plan(job, profile, [quick, steady], deadline=180.0, probability=0.0).stages[0].offer == "quick"
    assert tt.plan(job, profile, [quick, steady], deadline=180.0).stages[0].offer == "steady"
    with pytest.raises(SettingError, match=r"the fastest plan needs 2 min 50 s"):
        tt.plan(job, profile, [quick, steady], deadline=165.0)


def test_a_type_that_lives_too_briefly_makes_no_planner_worse() -> None:
    job = JobSpec.of([(4, 10), (2, 20), (1, 10)])
    profile = Profile({1: 20.0, 2: 11.0, 4: 6.0}, startup=30.0, checkpoint=1.0)
    short = CloudProfile(4, 30.0, name="short", survival=Exponential(0.001))
    ok, cheap = CloudProfile(4, 10.0, name="ok"), CloudProfile(2, 3.0, name="cheap")
    for planner in ("exact", "static", "greedy", "naive_elastic"):
        request: Any = {"deadline": 3600.0, "planner": planner}
        with_it = tt.plan(job, profile, [ok, short, cheap], **request)
        assert with_it.cost == tt.plan(job, profile, [ok, cheap], **request).cost


def test_no_other_planner_is_cheaper_with_random_latencies() -> None:
    job = JobSpec.of([(6, 40), (6, 5)])
    profile = Profile({1: 3.0, 2: 2.4367571890687065, 3: 1.0, 4: 1.98, 6: 0.418}, std=0.3, checkpoint=4.0)
    cloud = CloudProfile(1, 3.0, queue=Latency(20.0, std=20.0), minimum=300.0)
    request: Any = {"deadline": 155.0, "probability": 0.99}
    found = tt.plan(job, profile, cloud, **request)
    for planner in ("static", "greedy"):
        assert found.cost <= tt.plan(job, profile, cloud, planner=planner, **request).cost * (1.0 + 1e-9)


def test_of_equally_cheap_plans_the_fastest_is_found_even_for_free() -> None:
    free = tt.plan(JobSpec.of([(16, 4), (8, 8)]), Profile({1: 4.0, 2: 2.2}), CloudProfile(4, 0.0), deadline="30m")
    quick = tt.plan(JobSpec.of([(16, 4), (8, 8)]), Profile({1: 4.0, 2: 2.2}), CloudProfile(4, 0.0), budget=1.0)
    assert free.duration == quick.duration
    job, profile = JobSpec.of([(12, 40), (4, 10)]), Profile({1: 3.0}, startup=20.0, checkpoint=4.0)
    held = CloudProfile(2, 3.0, minimum=3600.0, speed=0.5, max_machines=3, name="held")
    other = CloudProfile(3, 3.0, speed=0.5, max_machines=2, name="other")
    found = tt.plan(job, profile, [held, other], deadline=2283.3)
    assert found.duration == tt.plan(job, profile, [held, other], budget=found.cost * (1.0 + 1e-7)).duration


@pytest.mark.parametrize("wrong", [{"survival": 5}, {"name": [1]}])
def test_fields_of_wrong_types_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=rf"cloud: {next(iter(wrong))}: .* must be"):
        CloudProfile(1, 1.0, **wrong)


def test_an_empty_job_and_a_missing_deadline_are_rejected() -> None:
    with pytest.raises(SettingError, match=r"spec: .* must be a JobSpec"):
        tt.plan(JobSpec([], []), PROFILE, CLOUD, deadline="20m")
    with pytest.raises(SettingError, match="deadline: give seconds"):
        tt.plan(SPEC, PROFILE, CLOUD, deadline="20m").simulate(3).probability(None)  # type: ignore[arg-type]
