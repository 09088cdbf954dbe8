"""RubberBand's planner and its baselines: what they are allowed to do, and that the optimum is never dearer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import thriftune as tt
from benchmarks.planning.problems import Problem, large, small
from thriftune.planning import CloudProfile, JobSpec, Profile, exact, planners
from thriftune.planning.allocation import StageAllocation, fair
from thriftune.planning.plan_graph import PlanGraph
from thriftune.planning.planners import PlanRequest

WAYS: dict[str, Callable[[PlanRequest], list[StageAllocation] | None]] = {
    "static": planners.static,
    "naive_elastic": planners.naive_elastic,
    "greedy": planners.greedy,
}


def asked(problem: Problem, seconds: float = math.inf, dollars: float = math.inf) -> PlanRequest:
    """For the least dollars, or with a budget, the least seconds."""
    by = 0 if math.isinf(dollars) else 1
    return PlanRequest(
        problem.model,
        problem.clouds,
        lambda _, totals: totals[0] <= dollars * (1.0 + 1e-9) and totals[1] <= seconds * (1.0 + 1e-9),
        lambda totals: totals[by],
    )


def quickest(problem: Problem) -> float:
    found = exact.best(PlanGraph.of(problem.model, problem.clouds), "dollars", math.inf)
    assert found is not None
    return problem.total(found.choices)[1]


def fixed_plans(problem: Problem) -> list[Sequence[StageAllocation]]:
    """On every number of machines, with the quickest allocation that there is room for."""
    found: list[Sequence[StageAllocation]] = []
    for cloud in problem.clouds:
        for machines in range(1, (cloud.max_machines or 0) + 1):
            choices = []
            for i, stage in enumerate(problem.model.spec.stages):
                room = [
                    each
                    for each in fair(stage.trials, problem.model.profile.most_workers)
                    if cloud.machines_for(*each) <= machines
                ]
                best = min(room, key=lambda each, i=i: problem.model.train_seconds(i, cloud, each))  # type: ignore[misc]
                choices.append(StageAllocation(cloud, machines, best))
            found.append(choices)
    return found


def test_no_fixed_cluster_is_better_than_the_static_one() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        problem = small(rng, kinds=2)
        totals = np.array([problem.total(choices) for choices in fixed_plans(problem)])
        seconds = float(rng.uniform(totals[:, 1].min(), totals[:, 1].max()))
        told = planners.static(asked(problem, seconds))
        assert told is not None
        assert len({(choice.cloud.name, choice.machines) for choice in told}) == 1
        assert problem.total(told)[0] == pytest.approx(totals[totals[:, 1] <= seconds, 0].min())
        dollars = float(rng.uniform(totals[:, 0].min(), totals[:, 0].max()))
        within = planners.static(asked(problem, dollars=dollars))
        assert within is not None
        assert problem.total(within)[1] == pytest.approx(totals[totals[:, 0] <= dollars, 1].min())
        assert planners.static(asked(problem, totals[:, 1].min() * 0.999)) is None


def test_naive_elastic_never_changes_the_workers_of_a_trial() -> None:
    rng = np.random.default_rng(1)
    tried = 0
    for _ in range(40):
        problem = large(rng)
        told = planners.naive_elastic(asked(problem, 3.0 * quickest(problem)))
        if told is None:
            continue
        tried += 1
        assert len({choice.allocation.workers for choice in told}) == 1
        assert len({choice.cloud.name for choice in told}) == 1
        for choice, stage in zip(told, problem.model.spec.stages, strict=True):
            assert choice.allocation.at_a_time == stage.trials
            assert choice.machines == choice.cloud.machines_for(*choice.allocation)
    assert tried > 10


def test_greedy_stops_where_no_stage_can_give_up_a_machine() -> None:
    """No next smaller allocation that frees a machine is allowed and saves money; or the fixed cluster is best."""
    rng = np.random.default_rng(2)
    for _ in range(15):
        problem = large(rng)
        asking = asked(problem, float(rng.uniform(1.05, 3.0)) * quickest(problem))
        start, told = planners.static(asking), planners.greedy(asking)
        if start is None:
            assert told is None
            continue
        assert told is not None
        dollars, _ = problem.total(told)
        assert dollars <= problem.total(start)[0] * (1.0 + 1e-9)  # RubberBand 4.3, solution guarantees
        if told == start:
            continue
        for i, choice in enumerate(told):
            smaller = [
                each
                for each in fair(problem.model.spec.stages[i].trials, problem.model.profile.most_workers)
                if each.slots < choice.allocation.slots
                and (choice.cloud.machines_for(*each) < choice.machines or choice.cloud.billing == "per_function")
            ]
            if smaller:
                less = StageAllocation(choice.cloud, choice.cloud.machines_for(*smaller[-1]), smaller[-1])
                candidate = [*told[:i], less, *told[i + 1 :]]
                totals = problem.total(candidate)
                assert not asking.allows(candidate, totals) or totals[0] >= dollars * (1.0 - 1e-9)


def test_greedy_steps_over_allocations_that_free_no_machine() -> None:
    """The last trial starts with 8 workers on 2 machines; 7, 6 and 5 need 2 machines as well, 4 need 1."""
    spec = JobSpec.of([(8, 4), (1, 40)])
    profile = Profile({workers: 2.0 + 8.0 / workers for workers in range(1, 9)})
    cloud = CloudProfile(4, 12.0, max_machines=2)
    told = tt.plan(spec, profile, cloud, deadline=210.0, planner="greedy")
    assert [stage.machines for stage in told.stages] == [2, 1]
    assert told.stages[1].workers == 4
    assert told.cost == pytest.approx(tt.plan(spec, profile, cloud, deadline=210.0).cost)


def test_greedy_steps_by_the_smallest_allocation_where_functions_are_billed() -> None:
    spec = JobSpec.of([(8, 4), (1, 40)])
    profile = Profile({workers: 2.0 + 8.0 / workers for workers in range(1, 9)})
    cloud = CloudProfile(4, 12.0, max_machines=2, billing="per_function")
    quickest = tt.plan(spec, profile, cloud, deadline=200.0, planner="static")
    told = tt.plan(spec, profile, cloud, deadline=quickest.duration + 20.0, planner="greedy")
    assert 4 < told.stages[1].workers < 8
    assert told.cost < quickest.cost


def test_greedy_gains_by_starting_from_larger_clusters_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    gains = []
    for _ in range(25):
        problem = large(rng)
        asking = asked(problem, float(rng.uniform(1.05, 3.0)) * quickest(problem))
        told = planners.greedy(asking)
        with monkeypatch.context() as patch:
            patch.setattr(planners, "WARM_STARTS", (1,))
            alone = planners.greedy(asking)
        assert (told is None) == (alone is None)
        if told is not None and alone is not None:
            gains.append(problem.total(alone)[0] / problem.total(told)[0])
    assert min(gains) >= 1.0 - 1e-9
    assert max(gains) > 1.01


@pytest.mark.parametrize("seed", range(12))
def test_the_optimum_is_never_dearer(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = large(rng)
    graph = PlanGraph.of(problem.model, problem.clouds)
    shortest = quickest(problem)
    for factor in (1.01, float(rng.uniform(1.0, 4.0))):
        found = exact.best(graph, "seconds", factor * shortest)
        assert found is not None
        dollars = problem.total(found.choices)[0]
        for way in WAYS.values():
            told = way(asked(problem, factor * shortest))
            assert told is None or dollars <= problem.total(told)[0] * (1.0 + 1e-9)


@pytest.mark.parametrize("way", ["static", "naive_elastic"])
def test_nor_slower_for_a_budget(way: str) -> None:
    rng = np.random.default_rng(3)
    for _ in range(6):
        problem = large(rng)
        graph = PlanGraph.of(problem.model, problem.clouds)
        cheapest = exact.best(graph, "seconds", math.inf)
        assert cheapest is not None
        dollars = float(rng.uniform(1.0, 3.0)) * problem.total(cheapest.choices)[0]
        found, told = exact.best(graph, "dollars", dollars), WAYS[way](asked(problem, dollars=dollars))
        assert found is not None
        assert told is None or problem.total(found.choices)[1] <= problem.total(told)[1] * (1.0 + 1e-9)


def test_a_limit_of_machines_is_kept_by_all() -> None:
    rng = np.random.default_rng(4)
    for _ in range(10):
        problem = large(rng)
        for way in WAYS.values():
            for choice in way(asked(problem)) or []:
                assert choice.machines <= (choice.cloud.max_machines or math.inf)
                assert choice.machines >= choice.cloud.machines_for(*choice.allocation)
