"""Tests of RubberBand's planner and its baselines: their rules, and that the optimum never costs more."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import thriftune as tt
from benchmarks.planning.problems import Problem, large, small
from thriftune.planning import CloudProfile, JobSpec, Profile, exact_planner, greedy_planner
from thriftune.planning.allocation import StageAllocation, fair_allocations
from thriftune.planning.greedy_planner import PlanRequest
from thriftune.planning.plan_graph import PlanGraph

PLANNERS: dict[str, Callable[[PlanRequest], list[StageAllocation] | None]] = {
    "static": greedy_planner.static,
    "naive_elastic": greedy_planner.naive_elastic,
    "greedy": greedy_planner.greedy,
}


def make_request(problem: Problem, seconds: float = math.inf, dollars: float = math.inf) -> PlanRequest:
    """Return a request for the fewest dollars, or with a budget, for the fewest seconds."""
    by = 0 if math.isinf(dollars) else 1
    return PlanRequest(
        problem.model,
        problem.clouds,
        lambda _, totals: totals[0] <= dollars * (1.0 + 1e-9) and totals[1] <= seconds * (1.0 + 1e-9),
        lambda totals: totals[by],
    )


def quickest(problem: Problem) -> float:
    found = exact_planner.find_best(PlanGraph.of(problem.model, problem.clouds), "dollars", math.inf)
    assert found is not None
    return problem.total(found.choices)[1]


def fixed_plans(problem: Problem) -> list[Sequence[StageAllocation]]:
    """Return a plan for every fixed number of machines, with the fastest allocation that fits."""
    found: list[Sequence[StageAllocation]] = []
    for cloud in problem.clouds:
        for machines in range(1, (cloud.max_machines or 0) + 1):
            choices = []
            for i, stage in enumerate(problem.model.spec.stages):
                room = [
                    each
                    for each in fair_allocations(stage.trials, problem.model.profile.most_workers)
                    if cloud.machines_needed(*each) <= machines
                ]
                best = min(room, key=lambda each, i=i: problem.model.train_seconds(i, cloud, each))  # type: ignore[misc]
                choices.append(StageAllocation(cloud, machines, best))
            found.append(choices)
    return found


def test_static_is_the_best_fixed_cluster() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        problem = small(rng, kinds=2)
        totals = np.array([problem.total(choices) for choices in fixed_plans(problem)])
        seconds = float(rng.uniform(totals[:, 1].min(), totals[:, 1].max()))
        result = greedy_planner.static(make_request(problem, seconds))
        assert result is not None
        assert len({(choice.cloud.name, choice.machines) for choice in result}) == 1
        assert problem.total(result)[0] == pytest.approx(totals[totals[:, 1] <= seconds, 0].min())
        dollars = float(rng.uniform(totals[:, 0].min(), totals[:, 0].max()))
        within = greedy_planner.static(make_request(problem, dollars=dollars))
        assert within is not None
        assert problem.total(within)[1] == pytest.approx(totals[totals[:, 0] <= dollars, 1].min())
        assert greedy_planner.static(make_request(problem, totals[:, 1].min() * 0.999)) is None


def test_naive_elastic_never_changes_the_workers_of_a_trial() -> None:
    rng = np.random.default_rng(1)
    tried = 0
    for _ in range(40):
        problem = large(rng)
        result = greedy_planner.naive_elastic(make_request(problem, 3.0 * quickest(problem)))
        if result is None:
            continue
        tried += 1
        assert len({choice.allocation.workers for choice in result}) == 1
        assert len({choice.cloud.name for choice in result}) == 1
        for choice, stage in zip(result, problem.model.spec.stages, strict=True):
            assert choice.allocation.at_a_time == stage.trials
            assert choice.machines == choice.cloud.machines_needed(*choice.allocation)
    assert tried > 10


def test_greedy_stops_when_no_stage_can_release_a_machine() -> None:
    """No smaller allocation that releases a machine is allowed and cheaper, or the fixed cluster is best."""
    rng = np.random.default_rng(2)
    for _ in range(15):
        problem = large(rng)
        request = make_request(problem, float(rng.uniform(1.05, 3.0)) * quickest(problem))
        start, result = greedy_planner.static(request), greedy_planner.greedy(request)
        if start is None:
            assert result is None
            continue
        assert result is not None
        dollars, _ = problem.total(result)
        assert dollars <= problem.total(start)[0] * (1.0 + 1e-9)  # RubberBand 4.3, solution guarantees
        if result == start:
            continue
        for i, choice in enumerate(result):
            smaller = [
                each
                for each in fair_allocations(
                    problem.model.spec.stages[i].trials, problem.model.profile.most_workers
                )
                if each.slots < choice.allocation.slots
                and (
                    choice.cloud.machines_needed(*each) < choice.machines or choice.cloud.billing == "per_function"
                )
            ]
            if smaller:
                less = StageAllocation(choice.cloud, choice.cloud.machines_needed(*smaller[-1]), smaller[-1])
                candidate = [*result[:i], less, *result[i + 1 :]]
                totals = problem.total(candidate)
                assert not request.allows(candidate, totals) or totals[0] >= dollars * (1.0 - 1e-9)


def test_greedy_skips_allocations_that_release_no_machine() -> None:
    """The last trial starts with 8 workers on 2 machines. 7, 6 and 5 workers also need 2; 4 need 1."""
    spec = JobSpec.of([(8, 4), (1, 40)])
    profile = Profile({workers: 2.0 + 8.0 / workers for workers in range(1, 9)})
    cloud = CloudProfile(4, 12.0, max_machines=2)
    result = tt.plan(spec, profile, cloud, deadline=210.0, planner="greedy")
    assert [stage.machines for stage in result.stages] == [2, 1]
    assert result.stages[1].workers == 4
    assert result.cost == pytest.approx(tt.plan(spec, profile, cloud, deadline=210.0).cost)


def test_greedy_takes_the_smallest_step_per_function() -> None:
    spec = JobSpec.of([(8, 4), (1, 40)])
    profile = Profile({workers: 2.0 + 8.0 / workers for workers in range(1, 9)})
    cloud = CloudProfile(4, 12.0, max_machines=2, billing="per_function")
    quickest = tt.plan(spec, profile, cloud, deadline=200.0, planner="static")
    result = tt.plan(spec, profile, cloud, deadline=quickest.duration + 20.0, planner="greedy")
    assert 4 < result.stages[1].workers < 8
    assert result.cost < quickest.cost


def test_greedy_gains_from_its_warm_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    gains = []
    for _ in range(25):
        problem = large(rng)
        request = make_request(problem, float(rng.uniform(1.05, 3.0)) * quickest(problem))
        result = greedy_planner.greedy(request)
        with monkeypatch.context() as patch:
            patch.setattr(greedy_planner, "WARM_START_FACTORS", (1,))
            alone = greedy_planner.greedy(request)
        assert (result is None) == (alone is None)
        if result is not None and alone is not None:
            gains.append(problem.total(alone)[0] / problem.total(result)[0])
    assert min(gains) >= 1.0 - 1e-9
    assert max(gains) > 1.01


@pytest.mark.parametrize("seed", range(12))
def test_the_optimum_never_costs_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = large(rng)
    graph = PlanGraph.of(problem.model, problem.clouds)
    shortest = quickest(problem)
    for factor in (1.01, float(rng.uniform(1.0, 4.0))):
        found = exact_planner.find_best(graph, "seconds", factor * shortest)
        assert found is not None
        dollars = problem.total(found.choices)[0]
        for planner in PLANNERS.values():
            result = planner(make_request(problem, factor * shortest))
            assert result is None or dollars <= problem.total(result)[0] * (1.0 + 1e-9)


@pytest.mark.parametrize("planner", ["static", "naive_elastic"])
def test_the_optimum_is_never_slower_within_a_budget(planner: str) -> None:
    rng = np.random.default_rng(3)
    for _ in range(6):
        problem = large(rng)
        graph = PlanGraph.of(problem.model, problem.clouds)
        cheapest = exact_planner.find_best(graph, "seconds", math.inf)
        assert cheapest is not None
        dollars = float(rng.uniform(1.0, 3.0)) * problem.total(cheapest.choices)[0]
        found, result = (
            exact_planner.find_best(graph, "dollars", dollars),
            PLANNERS[planner](make_request(problem, dollars=dollars)),
        )
        assert found is not None
        assert result is None or problem.total(found.choices)[1] <= problem.total(result)[1] * (1.0 + 1e-9)


def test_all_planners_respect_max_machines() -> None:
    rng = np.random.default_rng(4)
    for _ in range(10):
        problem = large(rng)
        for planner in PLANNERS.values():
            for choice in planner(make_request(problem)) or []:
                assert choice.machines <= (choice.cloud.max_machines or math.inf)
                assert choice.machines >= choice.cloud.machines_needed(*choice.allocation)
