"""Measures the search with several objectives, and with constraints, compared with peers.

Two objectives: the hypervolume of the front after 50 evaluations, as a part of that of the best front there is.
It is measured from the reference point that is, in each objective, the worst of that front or the median random
configuration, whichever is worse. Constraints: the regret of the best feasible configuration after 25 and 50, 0
the optimum, 1 the median random configuration, or that nothing feasible is found. Mean over seeds, standard error.

Every method runs in its own environment, with one thread. These have NumPy and little else: hence late imports.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from benchmarks.search import problems, tables

if TYPE_CHECKING:
    from benchmarks.common import Row

Array = npt.NDArray[np.float64]
Config = Mapping[str, Any]
Run = list[list[float]]
"""The two values of every evaluation: two objectives, or an objective and a constrained metric."""

EVALUATIONS, SEEDS = 50, 10
DRAWS = 2000

METHODS: Mapping[str, str | None] = {
    "thriftune": None,
    "thriftune-random": None,
    "optuna-tpe": "optuna-gp",  # Optuna 5's default for several objectives
    "optuna-nsga2": "optuna-gp",  # the default of earlier versions
    "optuna-gp": "optuna-gp",
}
"""The methods with the names of their environments in benchmarks/peers.py; None for this environment."""


# --- the problems


@dataclass(frozen=True)
class Problem:
    """A problem with two minimised values; or, with a limit, one while the other is at most the limit."""

    parameters: problems.Parameters
    function: Callable[[Config], tuple[float, float]]
    best: Callable[[], Array]
    """Return the values (n, 2) of the best front, or of enough points to contain the optimum."""
    limit: float | None = None

    def random_values(self) -> Array:
        rng = np.random.default_rng(20260801)
        return np.array([self.function(problems.draw(self.parameters, rng)) for _ in range(DRAWS)])


def _cube(dimensions: int, high: float = 1.0) -> problems.Parameters:
    return {f"x{i}": {"type": "float", "low": 0.0, "high": high} for i in range(1, dimensions + 1)}


def _zdt1(c: Config) -> tuple[float, float]:
    """Return ZDT1 with its front away from the edge of the box, where searches look in any case."""
    g = 1 + 9 * float(np.mean([((c[f"x{i}"] - 0.3) / 0.7) ** 2 for i in range(2, 6)]))
    return float(c["x1"]), g * (1 - math.sqrt(c["x1"] / g))


def _zdt1_front() -> Array:
    x = np.linspace(0, 1, 2001)
    return np.stack([x, 1 - np.sqrt(x)], axis=1)


def _dtlz2(c: Config) -> tuple[float, float]:
    """Return DTLZ2, also moved away from the edge; its front is a quarter of a circle."""
    g = 1 + 4 * float(np.sum([(c[f"x{i}"] - 0.4) ** 2 for i in range(2, 6)]))
    angle = 0.5 * math.pi * float(c["x1"])
    return g * math.cos(angle), g * math.sin(angle)


def _dtlz2_front() -> Array:
    angle = np.linspace(0, 0.5 * math.pi, 2001)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _latency(depth: Any, width: Any) -> Any:
    """Return made-up milliseconds of a network; the levels of its width go from 16 to 1024 by equal factors."""
    return 0.2 + 2e-5 * (depth + 1) * (16.0 * 64.0 ** (width / 9)) ** 2


@cache
def _mlp() -> tables.Grid:
    return tables.mlp("segment")


def _mlp_values(c: Config) -> tuple[float, float]:
    return _mlp()(c), float(_latency(c["depth"], c["width"]))


def _mlp_all() -> Array:
    values = _mlp().values
    axes = np.indices(values.shape)
    names = list(tables.MLP)
    latency = _latency(axes[names.index("depth")], axes[names.index("width")])
    return np.stack([values.ravel(), latency.ravel()], axis=1)


def _narrow(c: Config) -> tuple[float, float]:
    """Return the second problem of Gardner et al. 2014; 2 % of the square are feasible."""
    return math.sin(c["x1"]) + c["x2"], math.sin(c["x1"]) * math.sin(c["x2"])


def _narrow_grid() -> Array:
    x, y = np.meshgrid(np.linspace(0, 6, 3001), np.linspace(0, 6, 3001))
    return np.stack([(np.sin(x) + y).ravel(), (np.sin(x) * np.sin(y)).ravel()], axis=1)


FRONTS = {
    "zdt1": Problem(_cube(5), _zdt1, _zdt1_front),
    "dtlz2": Problem(_cube(5), _dtlz2, _dtlz2_front),
    "mlp-segment, error and latency": Problem(tables.MLP, _mlp_values, _mlp_all),
}
CONSTRAINED = {
    "gardner": Problem(_cube(2, 6.0), _narrow, _narrow_grid, limit=-0.95),
    "mlp-segment, latency at most 0.25 ms": Problem(tables.MLP, _mlp_values, _mlp_all, limit=0.25),
}
NAMED = FRONTS | CONSTRAINED
WITHOUT_TABLES = ("zdt1", "dtlz2", "gardner")


# --- the methods; this part runs in the method's environment


class Method(Protocol):
    def ask(self) -> tuple[Any, Config]: ...

    def tell(self, key: Any, values: tuple[float, float]) -> None: ...


class Thriftune:
    def __init__(self, problem: Problem, seed: int, searcher: str) -> None:
        import thriftune as tt

        limit = problem.limit
        self._study = tt.Study(
            tt.Space.from_json(problem.parameters),
            minimize=["first", "second"] if limit is None else "first",
            constraints=None if limit is None else [f"second <= {limit!r}"],
            searcher=searcher,
            seed=seed,
        )

    def ask(self) -> tuple[int, Config]:
        trial = self._study.ask()
        return trial.id, trial.config

    def tell(self, key: int, values: tuple[float, float]) -> None:
        self._study.tell(key, {"first": values[0], "second": values[1]})


class Optuna:
    """Run an Optuna sampler; only for two objectives."""

    def __init__(self, problem: Problem, seed: int, sampler: str) -> None:
        import optuna

        from benchmarks.search import peer_optuna

        kinds = {"tpe": "TPESampler", "nsga2": "NSGAIISampler", "gp": "GPSampler"}
        self._adapter = peer_optuna.Method(problem.parameters, seed, EVALUATIONS, 1, {"sampler": "tpe"})
        self._adapter._study = optuna.create_study(
            directions=["minimize"] * 2, sampler=getattr(optuna.samplers, kinds[sampler])(seed=seed)
        )

    def ask(self) -> tuple[Any, Config]:
        return self._adapter.ask()

    def tell(self, key: Any, values: tuple[float, float]) -> None:
        self._adapter._study.tell(key, values)


def run(name: str, problem: Problem, seed: int, evaluations: int) -> Run:
    family, _, kind = name.partition("-")
    method: Method = (
        Thriftune(problem, seed, kind or "bayes") if family == "thriftune" else Optuna(problem, seed, kind)
    )
    found: Run = []
    for _ in range(evaluations):
        key, config = method.ask()
        values = problem.function(config)
        method.tell(key, values)
        found.append(list(values))
    return found


def print_runs(name: str, names: Sequence[str], seeds: int, evaluations: int) -> None:
    """Print a line of JSON for each problem; called in the method's own process."""
    import warnings

    warnings.simplefilter("ignore")
    for each in names:
        print(json.dumps([run(name, NAMED[each], seed, evaluations) for seed in range(seeds)]), flush=True)


# --- the figures


def hypervolume(values: Array, reference: Array) -> float:
    """Return the area between the reference point and points (n, 2) that minimise both values."""
    inside = values[(values < reference).all(axis=1)]
    area, lowest = 0.0, float(reference[1])
    for first, second in inside[np.lexsort((inside[:, 1], inside[:, 0]))]:
        if second < lowest:
            area += float((reference[0] - first) * (lowest - second))
            lowest = float(second)
    return area


def front(values: Array) -> Array:
    """Return the points (n, 2) that no other point dominates, sorted by the first value."""
    rising = values[np.lexsort((values[:, 1], values[:, 0]))]
    before = np.minimum.accumulate(np.append(math.inf, rising[:-1, 1]))
    return np.asarray(rising[rising[:, 1] < before])


def share_of(problem: Problem) -> Callable[[Array], float]:
    """Return the hypervolume of points as a share of the best front's."""
    best = front(problem.best())
    reference = np.maximum(best.max(axis=0), np.median(problem.random_values(), axis=0))
    most = hypervolume(best, reference)
    return lambda values: hypervolume(values, reference) / most


def regret_of(problem: Problem) -> Callable[[Array], float]:
    """Return the normalised regret of the best feasible point; 1 without a feasible point."""

    limit = math.inf if problem.limit is None else problem.limit

    def lowest(values: Array) -> float:
        return float(np.min(values[values[:, 1] <= limit][:, 0], initial=math.inf))

    optimum = lowest(problem.best())
    median = float(np.median(problem.random_values()[:, 0]))
    # A grid's best point may be a little above the optimum.
    return lambda values: min(max((lowest(values) - optimum) / (median - optimum), 0.0), 1.0)


# --- the benchmark


def runs_of(name: str, names: Sequence[str], seeds: int, evaluations: int) -> dict[str, list[Run]]:
    from benchmarks import peers
    from benchmarks.common import ROOT, say

    say(f"{name}: {len(names)} problems, {seeds} seeds")
    peer = METHODS[name]
    python = sys.executable if peer is None else str(peers.python(peer))
    code = (
        f"import sys; sys.path.append({str(ROOT)!r})\n"
        f"from benchmarks.search import multi\nmulti.print_runs({name!r}, {list(names)!r}, {seeds}, {evaluations})"
    )
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    # With -P, the peer's imports cannot find our modules by accident.
    done = subprocess.run(
        [python, "-P", "-c", code], capture_output=True, text=True, env=os.environ | one_thread, check=False
    )
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-4000:]}")
    return dict(zip(names, map(json.loads, done.stdout.splitlines()), strict=True))


def measure(options: argparse.Namespace) -> list[Row]:
    from benchmarks.search import make_tables

    seeds, evaluations = (2, 8) if options.quick else (SEEDS, EVALUATIONS)
    if not options.quick:
        make_tables.make()
    names = [name for name in NAMED if not options.quick or name in WITHOUT_TABLES]
    ours = [name for name, peer in METHODS.items() if peer is None]
    others = [] if options.without_peers else [name for name in METHODS if name not in ours]
    found = {name: runs_of(name, names, seeds, evaluations) for name in ours}
    found |= {name: runs_of(name, [n for n in names if n in FRONTS], seeds, evaluations) for name in others}
    half = evaluations // 2
    rows: list[Row] = []
    for problem in names:
        if problem in FRONTS:
            rows += _rows(problem, found, share_of(NAMED[problem]), (evaluations,), "hypervolume, of the best")
        else:
            rows += _rows(problem, found, regret_of(NAMED[problem]), (half, evaluations), "best feasible regret")
    return rows


def _rows(
    problem: str,
    found: Mapping[str, Mapping[str, list[Run]]],
    score: Callable[[Array], float],
    budgets: Sequence[int],
    what: str,
) -> Iterable[Row]:
    from benchmarks.common import Row

    at = " / ".join(map(str, budgets))
    for name, of in found.items():
        if problem not in of:
            continue
        scores = np.array([[score(np.array(run[:n])) for n in budgets] for run in of[problem]])
        error = scores.std(axis=0, ddof=1) / math.sqrt(len(scores))
        told = " / ".join(f"{m:.4f} ± {e:.4f}" for m, e in zip(scores.mean(axis=0), error, strict=True))
        data = {"method": name, "problem": problem, "scores": scores.tolist()}
        yield Row(f"{problem}: {what}, at {at}: {name}", told, data=data)


if __name__ == "__main__":
    from benchmarks.common import main

    raise SystemExit(main(measure))
