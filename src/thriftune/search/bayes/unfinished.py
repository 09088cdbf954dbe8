"""What would have come of trials that were cut? Guesses, by how those that came further went on, and how sure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from thriftune.search.bayes.kernel import Array
from thriftune.search.bayes.observations import CUT, Level, arrivals
from thriftune.search.bayes.outputs import normalised
from thriftune.state.trial_record import TrialRecord

LEAST_VARIANCE = 1e-9
"""Of a guess that is handed on; 0 would say that it is measured."""


class Guesses(NamedTuple):
    X: Array  # (g, D)
    y: Array  # (g,)
    variance: Array  # (g,)


def guesses(lower: Sequence[Level], there: Mapping[int, float], *, robust: bool) -> Guesses:
    """For each trial that was cut after it had come to one of these levels, rising.

    `there`: by trial, the value of those that came further, as it is modelled. The variance is large where a level
    tells little, where few have gone on from it, and far from where these stood.
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


class Finals(NamedTuple):
    """The final value of each trial and its variance, keyed by trial id; or the values at `step`."""

    values: dict[int, tuple[float, float]]
    step: int | None


def final_values(trials: Sequence[TrialRecord], metric: str | None, *, maximize: bool) -> Finals:
    """Return the final value of each trial and its variance; guesses for trials that were cut.

    Called when another study starts from these trials. The variance of a measured value is 0; that of a guess is
    relative to the variance of the measured values, as they are modelled. A trial of which nothing can be said is
    left out. `metric`: None for the first objective of the trials' own study. Where too few trials have finished
    to compare them, the values are those at the last step that enough have come to.
    """
    sign = -1.0 if maximize else 1.0
    ended = sorted(trials, key=lambda trial: (trial.ended_at or 0.0, trial.id))
    *lower, (step, final) = arrivals(trials, ended, metric)
    if not final:
        return Finals({}, None)
    values = sign * np.array([each.value for each in final])
    y = normalised(values, robust=True)
    levels = [
        Level(
            [each.trial for each in those],
            np.array([[each.trial.id] for each in those], dtype=float),  # which trial each guess is of
            sign * np.array([[each.value] for each in those]),
        )
        for _, those in lower
    ]
    found = guesses(levels, {each.trial.id: float(at) for each, at in zip(final, y, strict=True)}, robust=True)
    order = np.argsort(values)
    known = {each.trial.id: (each.value, 0.0) for each in final}
    for row, mean, variance in zip(found.X, found.y, found.variance, strict=True):
        value = sign * float(np.interp(mean, y[order], values[order]))
        known[int(row[0])] = value, max(float(variance), LEAST_VARIANCE)
    return Finals(known, step)


class _Line:
    """How the value at a level follows from what comes of a trial, by least squares; read backwards.

    Not the other way round: where a level tells nothing, the best guess of what comes of a trial would be the
    middle of all, as if that were news of the trial. Read backwards, the guess is then infinitely unsure.
    """

    def __init__(self, further: Array) -> None:
        """`further` (n, 2): the value at the level and what came of it, for each trial that went on."""
        self._n = len(further)
        self.known = self._n > 2 and float(np.ptp(further[:, 1])) > 1e-9
        if self.known:
            self._middle = further.mean(axis=0)
            x, y = (further - self._middle).T
            self._spread = float(y @ y)
            self._slope = float(x @ y) / self._spread
            rest = x - self._slope * y
            self._rest = float(rest @ rest) / (self._n - 2)
            self._best, self._worst = float(further[:, 1].min()), float(further[:, 1].max())
            # One that falls, or all but does, tells nothing.
            self.known = self._slope > 1e-3

    def at(self, x: float) -> tuple[float, float]:
        """What will have come of a trial, within what was seen so far, and the variance."""
        away = (x - self._middle[0]) / self._slope
        y = min(max(float(self._middle[1] + away), self._best), self._worst)
        variance = self._rest / self._slope**2 * (1.0 + 1.0 / self._n + (y - self._middle[1]) ** 2 / self._spread)
        return y, float(variance)
