"""The optimum: against every plan that there is, on problems small enough to look at all of them."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.planning.problems import Problem, large, small
from thriftune.planning import CloudProfile, JobSpec, Latency, Profile, exact
from thriftune.planning.cost_model import CostModel
from thriftune.planning.exact import Best, Limited
from thriftune.planning.plan_graph import PlanGraph

KINDS: dict[str, dict[str, Any]] = {
    "one kind of machine": {},
    "two kinds": {"kinds": 2},
    "per function": {"billing": "per_function", "kinds": 2},
    "a least that is billed": {"least_billed": True},
    "noise": {"noise": True},
    "random waits": {"random_waits": True},
    "all of it": {"kinds": 2, "least_billed": True, "noise": True, "random_waits": True},
}


def graph(problem: Problem) -> PlanGraph:
    return PlanGraph.of(problem.model, problem.clouds)


def in_time(problem: Problem, seconds: float) -> tuple[float, Best]:
    """The dollars of the plan that was found, and the plan."""
    found = exact.best(graph(problem), "seconds", seconds)
    assert found is not None
    dollars, took = problem.total(found.choices)
    assert took <= seconds * (1.0 + 2e-9)
    return dollars, found


def in_budget(problem: Problem, dollars: float) -> tuple[float, Best]:
    found = exact.best(graph(problem), "dollars", dollars)
    assert found is not None
    cost, seconds = problem.total(found.choices)
    assert cost <= dollars * (1.0 + 2e-9)
    return seconds, found


def front(problem: Problem) -> list[tuple[float, float]]:
    """Dollars and seconds of the plans that none is better than in both."""
    ordered = sorted(map(tuple, problem.totals.tolist()), key=lambda each: (each[1], each[0]))
    found: list[tuple[float, float]] = []
    for dollars, seconds in ordered:
        if not found or dollars < found[-1][0] * (1.0 - 1e-9):
            found.append((dollars, seconds))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_no_plan_is_cheaper_in_time_nor_quicker_in_budget(kind: str) -> None:
    """For the limits at which another plan becomes the best, and for one between those."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        problem = small(rng, **KINDS[kind])
        points = front(problem)
        (dearest, quickest), (cheapest, slowest) = points[0], points[-1]
        between = rng.uniform(cheapest, 1.1 * dearest), rng.uniform(quickest, 1.1 * slowest)
        for dollars, seconds in [*points, between]:
            cost, told = in_time(problem, seconds)
            assert cost == pytest.approx(problem.least_dollars(seconds), rel=1e-9)
            assert told.lower_bound == pytest.approx(cost, rel=1e-9)
            took, told = in_budget(problem, dollars)
            assert took == pytest.approx(problem.least_seconds(dollars), rel=1e-9)
            assert told.lower_bound == pytest.approx(took, rel=1e-9)
        assert exact.best(graph(problem), "seconds", quickest * (1.0 - 1e-6)) is None
        assert exact.best(graph(problem), "dollars", cheapest * (1.0 - 1e-6)) is None


def test_without_a_limit_it_is_the_cheapest_and_the_quickest_there_is() -> None:
    rng = np.random.default_rng(3)
    for _ in range(25):
        problem = small(rng, kinds=2)
        assert in_time(problem, math.inf)[0] == pytest.approx(problem.totals[:, 0].min(), rel=1e-9)
        assert in_budget(problem, math.inf)[0] == pytest.approx(problem.totals[:, 1].min(), rel=1e-9)


# --- numbers of machines that no stage needs


def test_machines_that_are_held_to_wait_for_fewer_new_ones() -> None:
    """The more new ones, the longer the slowest of them takes: where the deadline is just missed with 1 machine
    held through the long stage, it is made with 6, though no stage needs 6."""
    spec = JobSpec.of([(7, 1), (1, 1000), (7, 100)])
    cloud = CloudProfile(1, 10.0, init=Latency(60.0, 20.0), max_machines=7)
    problem = Problem(CostModel(spec, Profile({1: 1.0})), [cloud])
    for dollars, seconds in front(problem):
        cost, told = in_time(problem, seconds)
        assert told.lower_bound <= dollars * (1.0 + 1e-9)
        assert cost == pytest.approx(dollars, rel=1e-9)


@pytest.mark.parametrize(
    ("stages", "data_gb", "data_price"),
    [([(3, 300), (5, 26), (3, 27), (5, 22)], 1.0, 0.1), ([(3, 50), (5, 27), (3, 145), (5, 100)], 0.0, 0.0)],
)
def test_machines_that_are_held_since_they_are_paid_for_anyway(
    stages: list[tuple[int, int]], data_gb: float, data_price: float
) -> None:
    """What is young is billed to the minimum, held or not, and what is old is not: a plan holds as many as are
    young, though no stage needs that number."""
    cloud = CloudProfile(1, 10.0, init=10.0, minimum=200.0, max_machines=5, data_price=data_price)
    problem = Problem(CostModel(JobSpec.of(stages), Profile({1: 1.0}, data_gb=data_gb)), [cloud])
    for dollars, seconds in front(problem):
        cost, told = in_time(problem, seconds)
        assert told.lower_bound <= dollars * (1.0 + 1e-9)
        assert cost == pytest.approx(dollars, rel=1e-9)


# --- bounds


@pytest.mark.parametrize("most", [1, 3, 10])
@pytest.mark.parametrize("kind", ["two kinds", "per function", "a least that is billed"])
def test_the_lower_bound_holds_when_labels_are_cut(kind: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "_MOST_LABELS", most)
    rng = np.random.default_rng(4)
    for _ in range(12):
        problem = small(rng, **KINDS[kind])
        points = front(problem)
        for dollars, seconds in points[:: max(1, len(points) // 4)]:
            limits: list[tuple[Limited, float]] = [("seconds", seconds), ("dollars", dollars)]
            for limited, limit in limits:
                told = exact.best(graph(problem), limited, limit)
                if told is None:  # a budget that minimums may break has no plan that is sure to be known
                    assert limited == "dollars"
                    continue
                reached = problem.total(told.choices)[0 if limited == "seconds" else 1]
                least = problem.least_dollars(limit) if limited == "seconds" else problem.least_seconds(limit)
                assert told.lower_bound <= least * (1.0 + 1e-9)
                assert reached >= least * (1.0 - 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_with_more_time_it_is_never_dearer(seed: int) -> None:
    problem = large(np.random.default_rng(seed))
    found = graph(problem)
    quickest = exact.best(found, "dollars", math.inf)
    assert quickest is not None
    shortest = problem.total(quickest.choices)[1]
    costs = []
    for factor in (1.0, 1.1, 1.3, 1.7, 2.5, 5.0, math.inf):
        best = exact.best(found, "seconds", shortest * factor)
        assert best is not None
        costs.append(problem.total(best.choices)[0])
        assert best.lower_bound == pytest.approx(costs[-1], rel=1e-9)
        # And back: for that much money, nothing is quicker than what takes that long at most.
        back = exact.best(found, "dollars", costs[-1])
        assert back is not None
        assert problem.total(back.choices)[1] <= shortest * factor * (1.0 + 1e-9)
    assert costs == sorted(costs, reverse=True)


def test_small_change_is_counted_as_exactly_as_large() -> None:
    """Prices in another currency: the plan is the same."""
    rng = np.random.default_rng(5)
    for _ in range(10):
        problem = small(rng, kinds=2)
        seconds = float(np.quantile(problem.totals[:, 1], 0.3))
        told = [
            in_time(Problem(problem.model, [_times(cloud, part) for cloud in problem.clouds]), seconds)[0]
            for part in (1.0, 1e-9)
        ]
        assert told[1] == pytest.approx(1e-9 * told[0], rel=1e-6)


def _times(cloud: CloudProfile, part: float) -> CloudProfile:
    return replace(cloud, price_per_hour=part * cloud.price_per_hour, data_price=part * cloud.data_price)


# --- nodes and prices


def test_only_what_nothing_beats_is_looked_at() -> None:
    """Of a stage of 4 trials on machines with 4 slots: what takes as many machines and longer is left out."""
    model = CostModel(JobSpec.of([(4, 10)]), Profile({1: 4.0, 2: 2.2, 4: 1.3}))
    nodes = graph(Problem(model, [CloudProfile(4, 1.0)])).nodes[0]
    assert {tuple(node.allocation) for node in nodes} == {(4, 1), (4, 2), (4, 4)}


def test_the_graph_tells_what_the_model_tells() -> None:
    """Whatever the path through it, but for what is owed for machines that are let go too early."""
    rng = np.random.default_rng(6)
    for kind in ("two kinds", "per function", "random waits"):
        problem = small(rng, **KINDS[kind])
        found = graph(problem)
        for _ in range(20):
            path = [int(rng.integers(len(nodes))) for nodes in found.nodes]
            steps = list(zip([0, *path], path, strict=False))
            told = [
                sum(float(matrix[step]) for matrix, step in zip(matrices, steps, strict=True))
                for matrices in (found.dollars, found.seconds)
            ]
            assert told == pytest.approx(problem.total(found.choices(path)))


@pytest.mark.parametrize("kind", ["noise", "random waits", "all of it"])
def test_what_varies_counts_as_time(kind: str) -> None:
    """Against every plan that there is, by its seconds and some of its variance."""
    rng = np.random.default_rng(5)
    for _ in range(6):
        problem = small(rng, **KINDS[kind])
        plans = list(itertools.product(*problem.choices))
        risk = float(rng.uniform(0.001, 0.1))
        weighed = problem.totals[:, 1] + [risk * problem.model.total_variance(each) for each in plans]
        limit = float(np.quantile(weighed, rng.uniform(0.0, 0.5)))
        found = exact.best(graph(problem), "seconds", limit, risk)
        assert found is not None
        assert problem.total(found.choices)[0] == pytest.approx(problem.totals[weighed <= limit, 0].min())
        steadiest = exact.best(graph(problem), "dollars", math.inf, risk)
        assert steadiest is not None
        _, seconds = problem.total(steadiest.choices)
        assert seconds + risk * problem.model.total_variance(steadiest.choices) == pytest.approx(weighed.min())


def test_what_is_known_of_other_limits_changes_nothing() -> None:
    problem = small(np.random.default_rng(6), kinds=2, least_billed=True)
    known: exact.Known = {}
    for _, seconds in front(problem) * 2:
        found = exact.best(graph(problem), "seconds", seconds, known=known)
        assert found is not None
        assert problem.total(found.choices)[0] == pytest.approx(in_time(problem, seconds)[0])
    assert known
