"""Tests of the exact planner against all plans of small problems."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.planning.problems import Problem, large, small
from thriftune.planning import CloudProfile, JobSpec, Latency, Profile, exact_planner
from thriftune.planning.cost_model import CostModel
from thriftune.planning.exact_planner import BestPath, Limited
from thriftune.planning.plan_graph import PlanGraph

KINDS: dict[str, dict[str, Any]] = {
    "one kind of machine": {},
    "two kinds": {"kinds": 2},
    "per function": {"billing": "per_function", "kinds": 2},
    "a least that is billed": {"minimum_billed_seconds": True},
    "noise": {"noise": True},
    "random waits": {"random_waits": True},
    "all of it": {"kinds": 2, "minimum_billed_seconds": True, "noise": True, "random_waits": True},
}


def graph(problem: Problem) -> PlanGraph:
    return PlanGraph.of(problem.model, problem.clouds)


def in_time(problem: Problem, seconds: float) -> tuple[float, BestPath]:
    """Return the dollars of the best plan within the deadline, and the plan."""
    found = exact_planner.find_best(graph(problem), "seconds", seconds)
    assert found is not None
    dollars, took = problem.total(found.choices)
    assert took <= seconds * (1.0 + 2e-9)
    return dollars, found


def in_budget(problem: Problem, dollars: float) -> tuple[float, BestPath]:
    found = exact_planner.find_best(graph(problem), "dollars", dollars)
    assert found is not None
    cost, seconds = problem.total(found.choices)
    assert cost <= dollars * (1.0 + 2e-9)
    return seconds, found


def front(problem: Problem) -> list[tuple[float, float]]:
    """Return (dollars, seconds) of the Pareto-optimal plans."""
    ordered = sorted(map(tuple, problem.totals.tolist()), key=lambda each: (each[1], each[0]))
    found: list[tuple[float, float]] = []
    for dollars, seconds in ordered:
        if not found or dollars < found[-1][0] * (1.0 - 1e-9):
            found.append((dollars, seconds))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_no_plan_is_cheaper_within_the_deadline_or_faster_within_the_budget(kind: str) -> None:
    """Test each limit at which another plan becomes the best, and one limit between."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        problem = small(rng, **KINDS[kind])
        points = front(problem)
        (dearest, quickest), (cheapest, slowest) = points[0], points[-1]
        between = rng.uniform(cheapest, 1.1 * dearest), rng.uniform(quickest, 1.1 * slowest)
        for dollars, seconds in [*points, between]:
            cost, result = in_time(problem, seconds)
            assert cost == pytest.approx(problem.least_dollars(seconds), rel=1e-9)
            assert result.lower_bound == pytest.approx(cost, rel=1e-9)
            took, result = in_budget(problem, dollars)
            assert took == pytest.approx(problem.least_seconds(dollars), rel=1e-9)
            assert result.lower_bound == pytest.approx(took, rel=1e-9)
        assert exact_planner.find_best(graph(problem), "seconds", quickest * (1.0 - 1e-6)) is None
        assert exact_planner.find_best(graph(problem), "dollars", cheapest * (1.0 - 1e-6)) is None


def test_without_a_limit_the_cheapest_and_the_fastest_plan_are_found() -> None:
    rng = np.random.default_rng(3)
    for _ in range(25):
        problem = small(rng, kinds=2)
        assert in_time(problem, math.inf)[0] == pytest.approx(problem.totals[:, 0].min(), rel=1e-9)
        assert in_budget(problem, math.inf)[0] == pytest.approx(problem.totals[:, 1].min(), rel=1e-9)


# --- numbers of machines that no stage needs


def test_machines_may_be_held_to_wait_for_fewer_new_ones() -> None:
    """The slowest of several new machines takes longer than a single one.

    A deadline that is just missed with 1 machine held through the long stage is met with 6, though no stage needs
    6.
    """
    spec = JobSpec.of([(7, 1), (1, 1000), (7, 100)])
    cloud = CloudProfile(1, 10.0, init=Latency(60.0, 20.0), max_machines=7)
    problem = Problem(CostModel(spec, Profile({1: 1.0})), [cloud])
    for dollars, seconds in front(problem):
        cost, result = in_time(problem, seconds)
        assert result.lower_bound <= dollars * (1.0 + 1e-9)
        assert cost == pytest.approx(dollars, rel=1e-9)


@pytest.mark.parametrize(
    ("stages", "data_gb", "data_price"),
    [([(3, 300), (5, 26), (3, 27), (5, 22)], 1.0, 0.1), ([(3, 50), (5, 27), (3, 145), (5, 100)], 0.0, 0.0)],
)
def test_machines_below_the_billed_minimum_may_be_held(
    stages: list[tuple[int, int]], data_gb: float, data_price: float
) -> None:
    """A machine below the billed minimum costs the same whether it is held or released.

    A plan may therefore hold a number of machines that no stage needs.
    """
    cloud = CloudProfile(1, 10.0, init=10.0, minimum=200.0, max_machines=5, data_price=data_price)
    problem = Problem(CostModel(JobSpec.of(stages), Profile({1: 1.0}, data_gb=data_gb)), [cloud])
    for dollars, seconds in front(problem):
        cost, result = in_time(problem, seconds)
        assert result.lower_bound <= dollars * (1.0 + 1e-9)
        assert cost == pytest.approx(dollars, rel=1e-9)


# --- bounds


@pytest.mark.parametrize("most", [1, 3, 10])
@pytest.mark.parametrize("kind", ["two kinds", "per function", "a least that is billed"])
def test_the_lower_bound_holds_when_labels_are_cut(kind: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_planner, "_MAX_LABELS", most)
    rng = np.random.default_rng(4)
    for _ in range(12):
        problem = small(rng, **KINDS[kind])
        points = front(problem)
        for dollars, seconds in points[:: max(1, len(points) // 4)]:
            limits: list[tuple[Limited, float]] = [("seconds", seconds), ("dollars", dollars)]
            for limited, limit in limits:
                result = exact_planner.find_best(graph(problem), limited, limit)
                if (
                    result is None
                ):  # with cut labels, a plan whose billed minimums exceed the budget may hide all others
                    assert limited == "dollars"
                    continue
                reached = problem.total(result.choices)[0 if limited == "seconds" else 1]
                least = problem.least_dollars(limit) if limited == "seconds" else problem.least_seconds(limit)
                assert result.lower_bound <= least * (1.0 + 1e-9)
                assert reached >= least * (1.0 - 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_more_time_never_costs_more(seed: int) -> None:
    problem = large(np.random.default_rng(seed))
    found = graph(problem)
    quickest = exact_planner.find_best(found, "dollars", math.inf)
    assert quickest is not None
    shortest = problem.total(quickest.choices)[1]
    costs = []
    for factor in (1.0, 1.1, 1.3, 1.7, 2.5, 5.0, math.inf):
        best = exact_planner.find_best(found, "seconds", shortest * factor)
        assert best is not None
        costs.append(problem.total(best.choices)[0])
        assert best.lower_bound == pytest.approx(costs[-1], rel=1e-9)
        # Conversely, the fastest plan for these dollars takes at most this long.
        back = exact_planner.find_best(found, "dollars", costs[-1])
        assert back is not None
        assert problem.total(back.choices)[1] <= shortest * factor * (1.0 + 1e-9)
    assert costs == sorted(costs, reverse=True)


def test_the_plan_does_not_depend_on_the_currency() -> None:
    """Prices in another currency must give the same plan."""
    rng = np.random.default_rng(5)
    for _ in range(10):
        problem = small(rng, kinds=2)
        seconds = float(np.quantile(problem.totals[:, 1], 0.3))
        result = [
            in_time(Problem(problem.model, [_times(cloud, part) for cloud in problem.clouds]), seconds)[0]
            for part in (1.0, 1e-9)
        ]
        assert result[1] == pytest.approx(1e-9 * result[0], rel=1e-6)


def _times(cloud: CloudProfile, part: float) -> CloudProfile:
    return replace(cloud, price_per_hour=part * cloud.price_per_hour, data_price=part * cloud.data_price)


# --- nodes and prices


def test_dominated_allocations_are_left_out() -> None:
    """For 4 trials on machines of 4 slots, allocations that take longer on as many machines are left out."""
    model = CostModel(JobSpec.of([(4, 10)]), Profile({1: 4.0, 2: 2.2, 4: 1.3}))
    nodes = graph(Problem(model, [CloudProfile(4, 1.0)])).nodes[0]
    assert {tuple(node.allocation) for node in nodes} == {(4, 1), (4, 2), (4, 4)}


def test_the_graph_agrees_with_the_model() -> None:
    """The sums along any path are those of the model, without billed minimums."""
    rng = np.random.default_rng(6)
    for kind in ("two kinds", "per function", "random waits"):
        problem = small(rng, **KINDS[kind])
        found = graph(problem)
        for _ in range(20):
            path = [int(rng.integers(len(nodes))) for nodes in found.nodes]
            steps = list(zip([0, *path], path, strict=False))
            result = [
                sum(float(matrix[step]) for matrix, step in zip(matrices, steps, strict=True))
                for matrices in (found.dollars, found.seconds)
            ]
            assert result == pytest.approx(problem.total(found.choices(path)))


@pytest.mark.parametrize("kind", ["noise", "random waits", "all of it"])
def test_variance_counts_as_time_with_risk(kind: str) -> None:
    """Compare with all plans, by their seconds plus weighted variance."""
    rng = np.random.default_rng(5)
    for _ in range(6):
        problem = small(rng, **KINDS[kind])
        plans = list(itertools.product(*problem.choices))
        risk = float(rng.uniform(0.001, 0.1))
        weighed = problem.totals[:, 1] + [risk * problem.model.total_variance(each) for each in plans]
        limit = float(np.quantile(weighed, rng.uniform(0.0, 0.5)))
        found = exact_planner.find_best(graph(problem), "seconds", limit, risk)
        assert found is not None
        assert problem.total(found.choices)[0] == pytest.approx(problem.totals[weighed <= limit, 0].min())
        steadiest = exact_planner.find_best(graph(problem), "dollars", math.inf, risk)
        assert steadiest is not None
        _, seconds = problem.total(steadiest.choices)
        assert seconds + risk * problem.model.total_variance(steadiest.choices) == pytest.approx(weighed.min())


def test_the_cache_does_not_change_results() -> None:
    problem = small(np.random.default_rng(6), kinds=2, minimum_billed_seconds=True)
    known: exact_planner.PathCache = {}
    for _, seconds in front(problem) * 2:
        found = exact_planner.find_best(graph(problem), "seconds", seconds, cache=known)
        assert found is not None
        assert problem.total(found.choices)[0] == pytest.approx(in_time(problem, seconds)[0])
    assert known
