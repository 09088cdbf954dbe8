"""Compare warm starts from parent studies with and without early stopping, on recorded learning curves.

The parent is a study of 50 trials that replay the curves of a table under a stopping rule. The child has 25
trials on another table of the same kind; each trains to its last step. Related: the parent's table as it is.
Unrelated: the parent's curves belong to other configurations, shuffled, or mirrored along every parameter. The
regret of a child is that of its best: 0 at the lowest last value of its table, 1 at the median of the last values.
"""

from __future__ import annotations

import argparse
import itertools
import math
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

import thriftune as tt
from benchmarks.common import Row, main, say
from benchmarks.search.warm_start import interval
from benchmarks.stopping import tables
from benchmarks.stopping.peer_thriftune import study
from benchmarks.stopping.tables import Array, CurveTable
from thriftune.result import Result
from thriftune.simulation import run
from thriftune.stopping import STOPPERS

PARENT_TRIALS, TRIALS, WORKERS = 50, 25, 2
RULES = ("none", "auto", "asha")
RELATIONS = ("related", "shuffled", "mirrored")
UNRELATED_OVER_COLD = 1.05
KINDS = ("taskset", "lcbench")


@cache
def parent_table(name: str, relation: str) -> CurveTable:
    table = tables.get(name)
    if relation == "shuffled":
        order = np.random.default_rng(0).permutation(len(table.configs))
        return replace(table, configs=[table.configs[i] for i in order])
    if relation == "mirrored":
        return replace(table, configs=[mirrored(table, config) for config in table.configs])
    return table


def mirrored(table: CurveTable, config: dict[str, Any]) -> dict[str, Any]:
    space = tt.Space.from_json(table.parameters)
    return space.from_unit([1.0 - u for u in space.to_unit(config)])


def parent_study(table: CurveTable, rule: str, seed: int) -> Result:
    spec, curve, searcher, _ = study(table, seed, WORKERS, {"searcher": ("bayes", {}), "rule": (rule, {})})
    spec = replace(spec, trials=PARENT_TRIALS, deadline_seconds=None)
    return run(spec, curve, searcher, STOPPERS.make(rule, {}))


def child_regret(table: CurveTable, seed: int, warm_start: list[Result]) -> float:
    spec, curve, searcher, _ = study(table, seed, 1, {"searcher": ("bayes", {}), "rule": ("none", {})})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = tt.Study(spec.space, minimize="loss", seed=seed, searcher=searcher, warm_start=warm_start)
    for _ in range(TRIALS):
        trial = child.ask()
        found = curve(trial.config)
        child.tell(trial, failed=found.error) if found.error else child.tell(trial, found.metrics[-1])
    last = table.values[:, -1]
    best = float(np.nanmin(last))
    return (float(child.best.value or math.nan) - best) / (table.median - best)


def run_one(job: tuple[str, str, int]) -> dict[str, float]:
    """Return the child's regrets, keyed by relation and the parent's rule; "cold": without a parent."""
    source, target, seed = job
    table = tables.get(target)
    found = {"cold": child_regret(table, seed, [])}
    for relation, rule in itertools.product(RELATIONS, RULES):
        past = parent_study(parent_table(source, relation), rule, 1000 + seed)
        found[f"{relation}, {rule}"] = child_regret(table, seed, [past])
    return found


def measure(options: argparse.Namespace) -> list[Row]:
    pairs = [
        pair
        for kind in KINDS
        for pair in itertools.permutations([name for name in tables.names() if name.startswith(kind)], 2)
    ]
    jobs = [(source, target, seed) for seed, (source, target) in enumerate(pairs[:: 29 if options.quick else 1])]
    for name in {name for source, target, _ in jobs for name in (source, target)}:
        tables.get(name)  # made here once, not by each process
    say(f"{len(jobs)} runs of a cold start and {len(RELATIONS) * len(RULES)} warm ones")
    with ProcessPoolExecutor(max_workers=2) as pool:
        found = list(pool.map(run_one, jobs))
    regrets = {key: np.array([each[key] for each in found]) for key in found[0]}
    rows = [
        _row(f"related, parent with {rule!r} over parent with 'none'", regrets[f"related, {rule}"], whole, None)
        for whole in [regrets["related, none"]]
        for rule in RULES[1:]
    ]
    for relation, rule in itertools.product(RELATIONS, RULES):
        most = None if relation == "related" else UNRELATED_OVER_COLD
        rows.append(
            _row(
                f"{relation}, parent with {rule!r} over cold",
                regrets[f"{relation}, {rule}"],
                regrets["cold"],
                most,
            )
        )
    return [replace(row, met=None) for row in rows] if options.quick else rows


def _row(what: str, warm: Array, other: Array, most: float | None) -> Row:
    """Return the ratio of mean regrets and its bar: `most`, or if None, that 1 is not below its 95 % interval."""
    ratio, (low, high) = warm.mean() / other.mean(), interval(warm, other)
    figure = f"{ratio:.2f} ({low:.2f} to {high:.2f}): {warm.mean():.4f} over {other.mean():.4f}"
    met, bar = (low <= 1.0, "<= 1, within noise") if most is None else (ratio <= most, f"<= {most}")
    return Row(
        f"regret at {TRIALS}: {what}", figure, bar, bool(met), {"warm": warm.tolist(), "other": other.tolist()}
    )


if __name__ == "__main__":
    raise SystemExit(main(measure))
