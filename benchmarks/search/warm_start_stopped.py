"""Compare warm starts from parent studies with and without early stopping, on recorded learning curves.

The parent is a study of 50 trials that replay the curves of a table under a stopping rule. The child has 25
trials on another table of the same kind; each trains to its last step. Related: the parent's table as it is.
Unrelated: the parent's curves belong to other configurations, shuffled, or mirrored along every parameter. The
regret of a child is that of its best: 0 at the lowest last value of its table, 1 at the median of the last values.

The parent's cut trials are treated in three ways: by a guess of their final values, which is what thriftune does;
left out; and with their last value taken for the final one.
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
from thriftune.replay.simulation_loop import run
from thriftune.search.bayes.observations import CUT_SHORT
from thriftune.state.trial_record import State
from thriftune.stopping import STOPPERS
from thriftune.study.result import Result

PARENT_TRIALS, TRIALS, WORKERS = 50, 25, 2
RULES = ("auto", "asha")
TREATMENTS = {"guess": None, "left out": State.WAITING, "last value": State.COMPLETED}
"""The state that the parent's trials that were cut short get; None does not change it."""
OTHER_TREATMENTS = ("left out", "last value")
PARENTS = ("none", *(f"{rule}, {treatment}" for rule in RULES for treatment in TREATMENTS))
RELATIONS = ("related", "shuffled", "mirrored")
UNRELATED_OVER_COLD = 1.05
NO_WORSE, AT_MOST = "<= 1, within noise", f"<= {UNRELATED_OVER_COLD}"
"""Bars. Noise is the 95 % interval of the ratio."""
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
    """Return the child's regrets, keyed by relation and parent; "cold": without a parent."""
    source, target, seed = job
    table = tables.get(target)
    found = {"cold": child_regret(table, seed, [])}
    for relation in RELATIONS:
        past_table = parent_table(source, relation)
        found[f"{relation}, none"] = child_regret(table, seed, [parent_study(past_table, "none", 1000 + seed)])
        for rule in RULES:
            past = parent_study(past_table, rule, 1000 + seed)
            cut = [trial for trial in past.history.trials if trial.state in CUT_SHORT]
            for treatment, state in TREATMENTS.items():
                for trial in cut:
                    trial.state = state or trial.state
                found[f"{relation}, {rule}, {treatment}"] = child_regret(table, seed, [past])
    return found


def measure(options: argparse.Namespace) -> list[Row]:
    pairs = [
        pair
        for kind in KINDS
        for pair in itertools.permutations([name for name in tables.names() if name.startswith(kind)], 2)
    ]
    jobs = [(source, target, seed) for seed, (source, target) in enumerate(pairs[:: 29 if options.quick else 1])]
    for name in {name for source, target, _ in jobs for name in (source, target)}:
        tables.get(name)  # made once here, not in each process
    say(f"{len(jobs)} runs of a cold start and {len(RELATIONS) * len(PARENTS)} warm ones")
    with ProcessPoolExecutor(max_workers=2) as pool:
        found = list(pool.map(run_one, jobs))
    regrets = {key: np.array([each[key] for each in found]) for key in found[0]}
    rows = []
    for parent in PARENTS[1:]:
        warm, whole = regrets[f"related, {parent}"], regrets["related, none"]
        bar = "" if parent.endswith(OTHER_TREATMENTS) else NO_WORSE
        rows.append(_row(f"related, parent with {parent}, over parent with none", warm, whole, bar))
    for relation, parent in itertools.product(RELATIONS, PARENTS):
        bar = "" if relation == "related" or parent.endswith(OTHER_TREATMENTS) else AT_MOST
        rows.append(
            _row(
                f"{relation}, parent with {parent}, over cold",
                regrets[f"{relation}, {parent}"],
                regrets["cold"],
                bar,
            )
        )
    return [replace(row, met=None) for row in rows] if options.quick else rows


def _row(what: str, warm: Array, other: Array, bar: str) -> Row:
    """Return the ratio of mean regrets, and whether it meets the bar, if there is one."""
    ratio, (low, high) = warm.mean() / other.mean(), interval(warm, other)
    met = {"": None, NO_WORSE: bool(low <= 1.0), AT_MOST: bool(ratio <= UNRELATED_OVER_COLD)}[bar]
    figure = f"{ratio:.2f} ({low:.2f} to {high:.2f}): {warm.mean():.4f} over {other.mean():.4f}"
    return Row(f"regret at {TRIALS}: {what}", figure, bar, met, {"warm": warm.tolist(), "other": other.tolist()})


if __name__ == "__main__":
    raise SystemExit(main(measure))
