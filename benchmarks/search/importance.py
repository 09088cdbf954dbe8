"""Measures the error and the time of parameter importances, compared with Optuna's fANOVA.

On functions whose Sobol indices are known, sampled at random. Thriftune's shares are total effects, Optuna's are
main effects: each is compared with the exact shares of its own kind. The error is the mean absolute one over
parameters and seeds.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Sequence
from statistics import mean, median
from typing import NamedTuple

import numpy as np

import thriftune as tt
from benchmarks.common import Row, main, say
from thriftune.state import events as ev

Array = np.typing.NDArray[np.float64]

_TRIALS, _SEEDS = (30, 100, 300), 5


class Problem(NamedTuple):
    """A function of numbers between `low` and `high`, with the exact effect of each as a share of its variance."""

    name: str
    low: float
    high: float
    function: Callable[[Array], float]
    main: Sequence[float]
    total: Sequence[float]


def _ishigami(x: Array) -> float:
    return float(math.sin(x[0]) + 7 * math.sin(x[1]) ** 2 + 0.1 * x[2] ** 4 * math.sin(x[0]))


def _additive(x: Array) -> float:
    return float(4 * x[0] + 2 * x[1] + x[2])


_A = np.array([0.0, 1.0, 4.5, 9.0, 99.0, 99.0])


def _g(x: Array) -> float:
    """Return Sobol's g-function."""
    return float(np.prod((np.abs(4 * x - 2) + _A) / (1 + _A)))


def _g_effects() -> tuple[list[float], list[float]]:
    alone = 1 / (3 * (1 + _A) ** 2)
    variance = float(np.prod(1 + alone)) - 1
    totals = [float(each * np.prod(np.delete(1 + alone, i))) / variance for i, each in enumerate(alone)]
    return (alone / variance).tolist(), totals


PROBLEMS = (
    Problem(
        "Ishigami and a dummy", -math.pi, math.pi, _ishigami, (0.3139, 0.4424, 0, 0), (0.5576, 0.4424, 0.2437, 0)
    ),
    Problem("additive and three dummies", 0.0, 1.0, _additive, (16, 4, 1, 0, 0, 0), (16, 4, 1, 0, 0, 0)),
    Problem("Sobol's g", 0.0, 1.0, _g, *_g_effects()),
)


def _error(found: dict[str, float], exact: Sequence[float]) -> float:
    shares = [each / sum(exact) for each in exact]
    return mean(abs(float(found[f"x{i}"]) - share) for i, share in enumerate(shares))


def _ours(problem: Problem, points: Array, values: Sequence[float]) -> tuple[float, float]:
    """Return the error and the seconds."""
    space = {f"x{i}": tt.Float(problem.low, problem.high) for i in range(points.shape[1])}
    study = tt.Study(space, minimize="loss")
    for row, value in zip(points.tolist(), values, strict=True):
        study.history.apply(ev.ResultAdded(1.0, {f"x{i}": x for i, x in enumerate(row)}, {"loss": value}))
    started = time.perf_counter()
    found = study.importance()
    return _error(found, problem.total), time.perf_counter() - started


def _optuna(problem: Problem, points: Array, values: Sequence[float]) -> tuple[float, float]:
    """Return the error and the seconds."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    kind = optuna.distributions.FloatDistribution(problem.low, problem.high)
    study = optuna.create_study()
    for row, value in zip(points.tolist(), values, strict=True):
        params = {f"x{i}": x for i, x in enumerate(row)}
        trial = optuna.trial.create_trial(params=params, distributions=dict.fromkeys(params, kind), value=value)
        study.add_trial(trial)
    started = time.perf_counter()
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return _error(found, problem.main), time.perf_counter() - started


def measure(options: argparse.Namespace) -> list[Row]:
    warnings.filterwarnings("ignore", category=Warning, module="optuna")
    rows = []
    for problem in PROBLEMS:
        for trials in _TRIALS[:1] if options.quick else _TRIALS:
            say(f"{problem.name}, {trials} trials")
            ours, theirs = [], []
            for seed in range(1 if options.quick else _SEEDS):
                rng = np.random.default_rng(seed)
                points = rng.uniform(problem.low, problem.high, (trials, len(problem.main)))
                values = [problem.function(row) for row in points]
                ours.append(_ours(problem, points, values))
                if not options.without_peers:
                    theirs.append(_optuna(problem, points, values))
            figures = [
                f"{name} {mean(error for error, _ in each):.3f} in {median(took for _, took in each):.2f} s"
                for name, each in (("thriftune", ours), ("Optuna's fANOVA", theirs))
                if each
            ]
            data = {"thriftune": ours, "optuna": theirs}
            rows.append(Row(f"{problem.name}, {trials} trials", ", ".join(figures), data=data))
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure))
