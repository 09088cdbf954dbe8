"""Estimates of the final values of trials that were cut short, with their variances.

The estimates follow the trials that went on: their values at an early step are compared with their later ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from thriftune.search.bayes.kernel import Array
from thriftune.search.bayes.normalization import normalise
from thriftune.search.bayes.observations import CUT_SHORT, StepLevel, values_at_levels
from thriftune.state.trial_record import TrialRecord

MIN_ESTIMATE_VARIANCE = 1e-9
"""The smallest variance of an estimate that final_values() returns; 0 would mark it as measured."""

_MIN_SLOPE = 1e-3
"""With a smaller slope, a value at a level says nothing about the final one."""

_MIN_RANGE = 1e-9
"""If the later values differ by less, they say nothing."""


class Estimates(NamedTuple):
    """Estimated values of trials that were cut short."""

    X: Array  # (g, D)
    y: Array  # (g,)
    variance: Array  # (g,)


def estimate_cut_short(lower: Sequence[StepLevel], target: Mapping[int, float], *, robust: bool) -> Estimates:
    """Estimate the value at the target level for each trial that was cut short at a lower level.

    `lower` holds the lower levels by ascending step; `target` the modelled values at the target level by trial id.
    Each trial is estimated from the highest level that it reached. The variance is large if the level's values say
    little, if few trials went on from it, and far from the values of those that did.
    """
    seen = set(target)
    rows, means, variances = [], [], []
    for level in reversed(lower):
        level_values = normalise(level.values[:, 0], robust=robust)
        pairs = [
            (value, target[trial.id])
            for value, trial in zip(level_values, level.trials, strict=True)
            if trial.id in target
        ]
        regression = _InverseRegression(np.array(pairs).reshape(len(pairs), 2))
        for row, value, trial in zip(level.X, level_values, level.trials, strict=True):
            if regression.is_usable and trial.state in CUT_SHORT and trial.id not in seen:
                mean, variance = regression.predict(float(value))
                rows.append(row)
                means.append(mean)
                variances.append(variance)
            seen.add(trial.id)
    return Estimates(np.array(rows), np.array(means), np.array(variances))


class FinalValues(NamedTuple):
    """The final value of each trial and its variance, keyed by trial id; or the values at `step`."""

    values: dict[int, tuple[float, float]]
    step: int | None


def final_values(trials: Sequence[TrialRecord], metric: str | None, *, maximize: bool) -> FinalValues:
    """Return the final value of each trial and its variance; estimates for trials that were cut short.

    Called when another study starts from these trials, and for plots. The variance of a measured value is 0. The
    variance of an estimate is relative to the variance of the measured values after normalisation. A trial without
    a usable value is left out. `metric` is None for the first objective of the trials' own study. If too few
    trials have finished to compare them, the values are those at the last step that enough trials reached.
    """
    sign = -1.0 if maximize else 1.0
    ended = sorted(trials, key=lambda trial: (trial.ended_at or 0.0, trial.id))
    *lower, (step, final) = values_at_levels(trials, ended, metric)
    if not final:
        return FinalValues({}, None)
    values = sign * np.array([each.value for each in final])
    y = normalise(values, robust=True)
    levels = [
        StepLevel(
            [each.trial for each in reached],
            np.array([[each.trial.id] for each in reached], dtype=float),  # ids in place of points
            sign * np.array([[each.value] for each in reached]),
        )
        for _, reached in lower
    ]
    target = {each.trial.id: float(value) for each, value in zip(final, y, strict=True)}
    estimates = estimate_cut_short(levels, target, robust=True)
    order = np.argsort(values)
    result = {each.trial.id: (each.value, 0.0) for each in final}
    for row, mean, variance in zip(estimates.X, estimates.y, estimates.variance, strict=True):
        value = sign * float(np.interp(mean, y[order], values[order]))
        result[int(row[0])] = value, max(float(variance), MIN_ESTIMATE_VARIANCE)
    return FinalValues(result, step)


class _InverseRegression:
    """A least-squares line of the value at a level, as a function of the later value; used backwards.

    A line in the other direction would be wrong. Where a level's values say nothing, it would predict the mean of
    all later values, with a small variance. Used backwards, the line predicts with an infinite variance there.
    """

    def __init__(self, pairs: Array) -> None:
        """Fit the line to `pairs` (n, 2): value at the level and later value of each trial that went on."""
        self._n = len(pairs)
        self.is_usable = self._n > 2 and float(np.ptp(pairs[:, 1])) > _MIN_RANGE
        if self.is_usable:
            self._centre = pairs.mean(axis=0)
            x, y = (pairs - self._centre).T
            self._y_squares = float(y @ y)
            self._slope = float(x @ y) / self._y_squares
            residual = x - self._slope * y
            self._residual_variance = float(residual @ residual) / (self._n - 2)
            self._lowest, self._highest = float(pairs[:, 1].min()), float(pairs[:, 1].max())
            self.is_usable = self._slope > _MIN_SLOPE

    def predict(self, x: float) -> tuple[float, float]:
        """Return the later value for value x at the level, within the later values seen, and its variance."""
        offset = (x - self._centre[0]) / self._slope
        y = min(max(float(self._centre[1] + offset), self._lowest), self._highest)
        leverage = 1.0 + 1.0 / self._n + (y - self._centre[1]) ** 2 / self._y_squares
        variance = self._residual_variance / self._slope**2 * leverage
        return y, float(variance)
