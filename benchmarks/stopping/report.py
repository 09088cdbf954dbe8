"""Comparison of finished runs: mean regret over time with an error, and the time to reach a regret.

Mean curves: over seeds, then over tables, so that each table counts the same. A mean curve has reached a regret
when it is at most 1e-9 above it. A method's time to its own final regret is when its own mean curve has first
reached that: the whole time, if it improves to the very end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from benchmarks.run_files import Runs

Array = npt.NDArray[np.float64]

TIMES = np.arange(1, 1001) / 1000
"""Shares of the time limit at which curves are evaluated."""
TOLERANCE = 1e-9


def over_time(at: Sequence[float], regret: Sequence[float]) -> Array:
    """Return a run's regret at TIMES, given the times at which it improved; 1 before the first."""
    known = np.concatenate([[1.0], np.asarray(regret, dtype=float)])
    return known[np.searchsorted(np.asarray(at, dtype=float), TIMES + TOLERANCE, side="right")]


def reached_at(curve: Array, goal: float) -> float:
    """Return the first of TIMES at which the curve is at most `goal`; infinity if it never is."""
    there = np.flatnonzero(curve <= goal + TOLERANCE)
    return float(TIMES[there[0]]) if len(there) else math.inf


def share_of_time(ours: Array, theirs: Array) -> float:
    """Return the time until `ours` reaches the final regret of `theirs`, as a share of the time of `theirs`."""
    return reached_at(ours, theirs[-1]) / reached_at(theirs, theirs[-1])


@dataclass(frozen=True)
class Comparison:
    """A comparison of methods; `regret` is (methods, tables, seeds, TIMES), NaN if any method lacks the run."""

    methods: list[str]
    tables: list[str]
    regret: Array

    @property
    def cases(self) -> int:
        """Return the number of pairs of table and seed that all methods have finished."""
        return int(np.sum(~np.isnan(self.regret[0, :, :, 0])))

    def only(self, kinds: Sequence[str]) -> Comparison:
        """Return the comparison on the tables of these kinds that have a finished seed."""
        there = np.asarray((~np.isnan(self.regret[0, :, :, 0])).any(axis=1))
        kept = [i for i, name in enumerate(self.tables) if name.partition("-")[0] in kinds and there[i]]
        return replace(self, tables=[self.tables[i] for i in kept], regret=self.regret[:, kept])

    def by_table(self, method: str) -> Array:
        """Return a method's mean over seeds, (tables, TIMES)."""
        return np.asarray(np.nanmean(self.regret[self.methods.index(method)], axis=1))

    def mean(self, method: str) -> Array:
        return np.asarray(self.by_table(method).mean(axis=0))

    def standard_error(self, method: str, time: float) -> float:
        """Return the standard error of the mean over seeds, independent for each table; NaN for a single seed."""
        errors = [standard_error(row) for row in self._at(method, time)]
        return float(np.sqrt(np.sum(np.square(errors))) / len(errors))

    def difference(self, method: str, other: str, table: str) -> tuple[float, float]:
        """Return the final regret minus that of another method on the same seeds, and its standard error."""
        row = self.tables.index(table)
        differences = self._at(method, 1.0)[row] - self._at(other, 1.0)[row]
        return float(np.nanmean(differences)), standard_error(differences)

    def final(self, method: str, table: str) -> tuple[float, float]:
        """Return the final regret, as a mean over seeds, and its standard error."""
        values = self._at(method, 1.0)[self.tables.index(table)]
        return float(np.nanmean(values)), standard_error(values)

    def _at(self, method: str, time: float) -> Array:
        return np.asarray(self.regret[self.methods.index(method), :, :, index_of(time)])


def index_of(time: float) -> int:
    return int(np.argmin(np.abs(TIMES - time)))


def standard_error(values: Array) -> float:
    """Return the standard error of the mean of the values that are not NaN."""
    known = values[~np.isnan(values)]
    return float(np.std(known, ddof=1) / np.sqrt(len(known))) if len(known) > 1 else math.nan


def compare(runs: Mapping[str, Runs], tables: Sequence[str], seeds: Sequence[int], workers: int) -> Comparison:
    """Compare methods at a number of workers, on the tables and seeds that all of them have finished."""
    regret = np.full((len(runs), len(tables), len(seeds), len(TIMES)), np.nan)
    for m, done in enumerate(runs.values()):
        for t, table in enumerate(tables):
            for s, seed in enumerate(seeds):
                if (run := done.get((table, seed, workers))) is not None:
                    regret[m, t, s] = over_time(run["at"], run["regret"])
    regret[:, np.isnan(regret).any(axis=(0, 3))] = np.nan
    return Comparison(list(runs), list(tables), regret)
