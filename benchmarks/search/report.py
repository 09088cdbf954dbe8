"""Comparison of finished runs: simple regret, its mean over problems with an error, and average ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.run_files import Runs

Array = npt.NDArray[np.float64]

DIGITS = 9
"""Normalised regrets that agree in this many decimals are a tie: both methods have found the optimum."""


def best_so_far(values: Sequence[float], observed: Sequence[float] | None = None) -> Array:
    """Return after each evaluation the value of the configuration with the best observed value.

    With noise, it may not be the best configuration.
    """
    seen = np.asarray(values if observed is None else observed, dtype=float)
    leaders = [0]
    for i in range(1, len(seen)):
        leaders.append(i if seen[i] < seen[leaders[-1]] else leaders[-1])
    return np.asarray(values, dtype=float)[leaders]


def ranks(values: npt.ArrayLike) -> Array:
    """Return ranks, 1 for the lowest value; ties share the mean of their ranks."""
    array = np.round(np.asarray(values, dtype=float), DIGITS)
    below = np.sum(array[None, :] < array[:, None], axis=1)
    equal = np.sum(array[None, :] == array[:, None], axis=1)
    return np.asarray(below + (equal + 1) / 2)


class Comparison:
    """A comparison of methods on the problems and seeds that all of them have finished with this parallelism.

    `regret[n]` has shape (methods, problems, seeds): normalised simple regret after n evaluations, NaN where any
    method lacks the run.
    """

    def __init__(
        self,
        runs: Mapping[str, Runs],
        scales: Mapping[str, tuple[float, float]],
        seeds: Sequence[int],
        parallel: int,
        budgets: Sequence[int],
    ) -> None:
        """Compare runs; `scales` has the optimum and the median random value of each problem."""
        self.methods = list(runs)
        self.problems = list(scales)
        self.seeds = list(seeds)
        shape = (len(self.methods), len(self.problems), len(self.seeds))
        self.regret = {n: np.full(shape, np.nan) for n in budgets}
        seconds: dict[str, list[float]] = {name: [] for name in self.methods}
        for m, name in enumerate(self.methods):
            for p, problem in enumerate(self.problems):
                for s, seed in enumerate(self.seeds):
                    done = runs[name].get((problem, seed, parallel))
                    if done is not None:
                        seconds[name].append(float(np.mean(done["ask_seconds"])))
                        self._enter((m, p, s), done, *scales[problem])
        for array in self.regret.values():
            array[:, np.isnan(array).any(axis=0)] = np.nan
        self.seconds = {name: float(np.mean(times)) if times else np.nan for name, times in seconds.items()}

    def _enter(self, place: tuple[int, int, int], done: Mapping[str, Any], optimum: float, median: float) -> None:
        best = best_so_far(done["values"], done.get("observed"))
        for n, array in self.regret.items():
            if n <= len(best):
                array[place] = (best[n - 1] - optimum) / (median - optimum)

    @property
    def cases(self) -> int:
        """Return the number of pairs of problem and seed that all methods have finished."""
        return min(int(np.sum(~np.isnan(array[0]))) for array in self.regret.values())

    def average_rank(self, n: int) -> Array:
        """Return the average rank of each method over problems and seeds."""
        flat = self.regret[n].reshape(len(self.methods), -1)
        flat = flat[:, ~np.isnan(flat).any(axis=0)]
        return np.asarray(np.mean([ranks(column) for column in flat.T], axis=0))

    def mean_regret(self, n: int) -> Array:
        """Return each method's mean over seeds, then over problems, so that each problem counts the same."""
        return _mean(self.regret[n])

    def standard_error(self, n: int, draws: int = 500) -> Array:
        """Return the standard error of mean_regret() by bootstrap, with the same seeds for all problems and
        methods."""
        rng = np.random.default_rng(0)
        array = self.regret[n]
        drawn = [_mean(array[:, :, rng.integers(array.shape[2], size=array.shape[2])]) for _ in range(draws)]
        return np.asarray(np.nanstd(drawn, axis=0))

    def by_problem(self, n: int) -> Array:
        """Return the mean over seeds, (methods, problems)."""
        return _over_seeds(self.regret[n])


def _over_seeds(array: Array) -> Array:
    known = ~np.isnan(array)
    count = known.sum(axis=2)
    total = np.where(known, array, 0.0).sum(axis=2)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))


def _mean(array: Array) -> Array:
    each = _over_seeds(array)
    known = ~np.isnan(each)
    return np.asarray(np.where(known, each, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1))
