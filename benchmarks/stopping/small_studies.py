"""Measures the cost of stopping early in studies of few trials: regret and steps at the same number of trials.

Over time a greedy rule makes up by the number of trials for those that it wrongly gives up on. Where the number is
given, as most users give it, it cannot. Random search, two trials at a time, on the tables of benchmarks.stopping.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.common import Row, main, say
from benchmarks.stopping import tables
from benchmarks.stopping.peer_thriftune import study
from benchmarks.stopping.report import standard_error
from thriftune.replay.simulation_loop import run
from thriftune.stopping import STOPPERS

RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("none", {}),
    "auto": ("auto", {}),
    "asha": ("asha", {}),
    "asha, eta 2, set aside": ("asha", {"eta": 2, "how": "pause"}),
    "median": ("median", {}),
    "halving": ("halving", {}),
}
TRIALS, SEEDS = (12, 24, 60), 20


def measure(options: argparse.Namespace) -> list[Row]:
    named = [tables.TOY] if options.quick else tables.named("")
    counts, seeds = ((12,), 2) if options.quick else (TRIALS, SEEDS)
    rows = []
    for trials in counts:
        for kind in dict.fromkeys(name.partition("-")[0] for name in named):
            those = [tables.get(name) for name in named if name.partition("-")[0] == kind]
            whole = np.zeros(0)
            for label, rule in RULES.items():
                told = np.array([[_once(table, rule, trials, seed) for seed in range(seeds)] for table in those])
                regret, share = told[:, :, 0], float(told[:, :, 1].mean())
                whole = regret if label == "none" else whole
                worse = (regret - whole).mean(axis=0)  # for each seed, the mean over the tables
                figure = f"regret {regret.mean():.3f} ({worse.mean():+.3f} ± {standard_error(worse):.3f})"
                rows.append(Row(f"{trials} trials, {kind}: {label}", f"{figure}, {share:.0%} of the steps"))
            say(f"{trials} trials, {kind}: done")
    return rows


def _once(
    table: tables.CurveTable, rule: tuple[str, dict[str, Any]], trials: int, seed: int
) -> tuple[float, float]:
    """Return the regret of the best trial, and the share of all steps that were done."""
    spec, curve, searcher, _ = study(table, seed, 2, {"searcher": ("random", {}), "rule": rule})
    spec = replace(spec, trials=trials, deadline_seconds=None)
    result = run(spec, curve, searcher, STOPPERS.make(*rule))
    values = [trial.value for trial in result.trials if trial.value is not None and np.isfinite(trial.value)]
    steps = sum(len(trial.reports) for trial in result.trials)
    return table.regret(min(values)), steps / (trials * table.steps)


if __name__ == "__main__":
    raise SystemExit(main(measure))
