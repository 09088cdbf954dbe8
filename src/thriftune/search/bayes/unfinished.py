"""What would have come of trials that were cut? Guesses, by how those that came further went on, and how sure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from thriftune.search.bayes.kernel import Array
from thriftune.search.bayes.observations import CUT, Level
from thriftune.search.bayes.outputs import normalised


class Guesses(NamedTuple):
    X: Array  # (g, D)
    y: Array  # (g,)
    variance: Array  # (g,)


def guesses(lower: Sequence[Level], there: Mapping[int, float], *, robust: bool) -> Guesses:
    """For each trial that was cut after it had come to one of these levels, rising.

    `there`: by trial, the value of those that came further, as it is modelled. It is regressed on their values at
    the level that the trial came to. The variance is that of a prediction, so it is large where a level tells
    little, where few have gone on from it, and far from where these stood.
    """
    seen = set(there)
    rows, means, variances = [], [], []
    for level in reversed(lower):
        x = normalised(level.values[:, 0], robust=robust)
        further = [(at, there[trial.id]) for at, trial in zip(x, level.trials, strict=True) if trial.id in there]
        line = _Line(np.array(further).reshape(len(further), 2))
        for row, at, trial in zip(level.X, x, level.trials, strict=True):
            if line.known and trial.state in CUT and trial.id not in seen:
                mean, variance = line.at(float(at))
                rows.append(row)
                means.append(mean)
                variances.append(variance)
            seen.add(trial.id)
    return Guesses(np.array(rows), np.array(means), np.array(variances))


class _Line:
    """By least squares, through (x, y) of n > 2 points. It never falls: being worse is no good sign."""

    def __init__(self, points: Array) -> None:
        self._n = len(points)
        self.known = self._n > 2 and float(np.ptp(points[:, 0])) > 1e-9
        if self.known:
            self._middle = points.mean(axis=0)
            x, y = (points - self._middle).T
            self._spread = float(x @ x)
            self._slope = max(0.0, float(x @ y) / self._spread)
            rest = y - self._slope * x
            self._rest = float(rest @ rest) / (self._n - 2)

    def at(self, x: float) -> tuple[float, float]:
        """What is to be expected, and its variance."""
        away = x - self._middle[0]
        variance = self._rest * (1.0 + 1.0 / self._n + away**2 / self._spread)
        return float(self._middle[1] + self._slope * away), float(variance)
