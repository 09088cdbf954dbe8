"""A comparison of the exact planner with brute force on small problems, and with other planners on large ones.

The problems are random (problems.py). On small ones, brute force tries every fair allocation of every stage on
every sufficient number of machines, for deadlines and for budgets. Large ones have up to 256 trials, 64 workers
per trial and three machine types.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.common import Row, main, say
from benchmarks.planning.problems import Problem, large, small
from thriftune.errors import SettingError
from thriftune.planning import exact_planner
from thriftune.planning.plan_finder import Planner, plan
from thriftune.planning.plan_graph import PlanGraph

KINDS: dict[str, dict[str, object]] = {
    "one kind of machine": {},
    "two kinds": {"kinds": 2},
    "billed by function": {"billing": "per_function"},
    "a least that is billed": {"minimum_billed_seconds": True},
    "trials that differ, waits that do": {"noise": True, "random_waits": True},
}
OTHERS: tuple[Planner, ...] = ("greedy", "static", "naive_elastic")


def measure(options: argparse.Namespace) -> list[Row]:
    small_ones, large_ones = (5, 2) if options.quick else (500, 100)
    rows: list[Row] = []
    equal = looked_at = plans = 0
    for kind, settings in KINDS.items():
        rng = np.random.default_rng(len(rows))
        count = small_ones // len(KINDS)
        same = [_same(small(rng, **settings), rng) for _ in range(count)]  # type: ignore[arg-type]
        equal, looked_at = equal + sum(each for each, _ in same), looked_at + count
        plans += sum(number for _, number in same)
        rows.append(Row(f"small, {kind}", f"{sum(each for each, _ in same)} of {count} equal to brute force"))
        say(f"{kind}: done")
    figure = f"{equal} of {looked_at} problems, {plans} plans looked at"
    met = None if options.quick else equal == looked_at
    rows.append(Row("equal to brute force, by deadline and by budget", figure, "all", met))
    return rows + _against_others(large_ones, judge=not options.quick)


def _same(problem: Problem, rng: np.random.Generator) -> tuple[bool, int]:
    """Compare with brute force for a possible random deadline and budget; also return the number of plans."""
    totals, graph = problem.totals, PlanGraph.of(problem.model, problem.clouds)
    dollars, seconds = totals[rng.integers(len(totals))]
    by_deadline, by_budget = (
        exact_planner.find_best(graph, "seconds", seconds),
        exact_planner.find_best(graph, "dollars", dollars),
    )
    if by_deadline is None or by_budget is None:
        return False, len(totals)
    cost, _ = problem.total(by_deadline.choices)
    _, duration = problem.total(by_budget.choices)
    least = problem.least_dollars(seconds), problem.least_seconds(dollars)
    proven = by_deadline.lower_bound, by_budget.lower_bound
    return np.allclose((cost, duration), least, rtol=1e-9) and np.allclose(proven, least, rtol=1e-9), len(totals)


def _against_others(count: int, *, judge: bool) -> list[Row]:
    rng = np.random.default_rng(7)
    ratios: dict[str, list[float]] = {name: [] for name in OTHERS}
    refused = dict.fromkeys(OTHERS, 0)
    for number in range(count):
        problem = large(rng, noise=bool(number % 2))
        asked = problem.model.spec, problem.model.profile, problem.clouds
        quickest = exact_planner.find_best(PlanGraph.of(problem.model, problem.clouds), "dollars", float("inf"))
        assert quickest is not None
        deadline = quickest.lower_bound * float(rng.uniform(1.1, 3.0))
        try:
            ours = plan(*asked, deadline=deadline).cost
        except SettingError:  # no plan has the required probability
            continue
        for name in OTHERS:
            try:
                ratios[name].append(plan(*asked, deadline=deadline, planner=name).cost / ours)
            except SettingError:
                refused[name] += 1
        if number % 10 == 9:
            say(f"large: {number + 1} of {count} done")
    rows = []
    for name in OTHERS:
        each = ratios[name]
        found = np.array(each) if each else np.ones(1)
        figure = f"{np.median(found):.2f} times as dear in the middle, {found.mean():.2f} on average, "
        figure += f"{found.min():.4f} to {found.max():.1f}; cannot make it in {refused[name]} of {count}"
        met = bool(found.min() >= 1.0 - 1e-9) if judge else None
        rows.append(Row(f"large: {name} against exact, {len(each)} problems", figure, "never cheaper", met))
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure))
