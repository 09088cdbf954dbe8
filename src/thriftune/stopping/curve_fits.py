"""Prediction of a learning curve's last value, and detection of its plateau.

Only the curve itself is used: the recent part of its last stage (curve_stages.py), since what a curve did at the
start says little about how it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from thriftune.stopping.curve_process import MIN_FITTED, expected_change
from thriftune.stopping.curve_stages import Array, calm_start, level_starts
from thriftune.stopping.one_stage_fit import fit_eq_4

Steps = Sequence[int] | npt.NDArray[np.int_] | Array
Values = Sequence[float] | Array

_FITTED_FROM = 0.4  # the share of a stage's steps before which nothing is fitted
_MAX_READ, _MAX_FITTED = 128, 32  # values; longer curves are thinned to means of neighbours
_FOLLOWED_SHARE = 0.9  # the share of a certain change that is predicted: learning rates fade, and trends with them
_STD_FACTOR = 0.75
"""The factor on the process's standard deviation combined with the change. With it, about 68 % of the last values
of real curves (TaskSet, LCBench and others) lie within one predicted standard deviation."""
_SINGLE_VALUE_STD = 0.7  # the std predicted from a single value, as a share of it


@dataclass(frozen=True, slots=True)
class Prediction:
    """A predicted value. About 68 % of such values lie within one `std` of `mean`."""

    mean: float
    std: float


def predict(steps: Steps, values: Values, at: int) -> Prediction:
    """Return the value expected at step `at`, from forms fitted to the last stage of the curve.

    The metric may be minimised or maximised. Values that are not finite are ignored; if none is finite, the mean
    is NaN. At a step that was seen, return the value there.
    """
    x, y = _seen(steps, values)
    known = _known(x, y, at)
    if known is not None:
        return known
    if len(y) == 1:
        return Prediction(float(y[0]), _SINGLE_VALUE_STD * float(abs(y[0])))
    unit = float(np.abs(y).max())
    x, z, counts = _thinned(x, y / unit, np.ones(len(x)), _MAX_READ)
    start, origin = _last_stage(x, z)
    x, horizon = x - origin, at - origin
    recent = min(int(np.searchsorted(x, _FITTED_FROM * x[-1])), len(x) - MIN_FITTED)
    recent = max(start, recent, start + calm_start(z[start:]))
    fitted_x, fitted_z, counts = _thinned(x[recent:], z[recent:], counts[recent:], _MAX_FITTED)
    change, std = expected_change(fitted_x, fitted_z - fitted_z[-1], counts, horizon)
    # A change that is hardly larger than its error is followed less: the present value misleads less.
    uncertain = change**2 + std**2 / 4
    followed = _FOLLOWED_SHARE * change * change**2 / uncertain if uncertain else 0.0
    most = float(np.ptp(z))  # no change is larger than the range of the values
    followed = min(max(followed, -most), most)
    return _prediction(float(fitted_z[-1]) + followed, _STD_FACTOR * float(np.hypot(std, change)), unit, y)


def predict_one_stage(steps: Steps, values: Values, at: int) -> Prediction:
    """Return the value expected at step `at`, from one fit of Eq. 4 to the whole curve.

    SLAQ predicts in this way; SpotTune compares itself with it.
    """
    x, y = _seen(steps, values)
    known = _known(x, y, at)
    if known is not None:
        return known
    unit = float(np.abs(y).max())
    origin = _origin(x)
    x, z, counts = _thinned(x - origin, y / unit, np.ones(len(x)), _MAX_READ)
    mean, std = fit_eq_4(x, z, counts, at - origin)
    return _prediction(mean, std, unit, y)


def plateau(steps: Steps, values: Values, tolerance: float = 0.01, fewest: int = 10) -> bool:
    """Return whether a curve has converged, so that more steps would hardly change it (SpotTune III-C).

    It has converged if twice the steps would change the value by at most `tolerance` of the range of all values,
    at the rate of the latter half of its last stage plus two standard errors. That half must have `fewest` values.
    A curve that is all noise has not moved yet, so it has not converged. A learning rate that has yet to drop is
    not foreseen: such a curve may move again.
    """
    x, y = _seen(steps, values)
    if len(y) < fewest:
        return False
    z = y / (float(np.abs(y).max()) or 1.0)
    x, z, _ = _thinned(x, z, np.ones(len(x)), _MAX_READ)
    start, origin = _last_stage(x, z)
    x = x - origin
    first = max(start, int(np.searchsorted(x, x[-1] / 2)))
    t, half_values = np.log(x[first:]), z[first:]
    if len(half_values) < fewest:
        return False
    t, deviations = t - t.mean(), half_values - half_values.mean()
    slope = t @ deviations / (t @ t)
    error = np.sqrt(np.sum((deviations - slope * t) ** 2) / (len(t) - 2) / (t @ t))
    return bool((abs(slope) + 2 * error) * np.log(2) <= tolerance * np.ptp(z))


def _seen(steps: Steps, values: Values) -> tuple[Array, Array]:
    """Return steps and finite values, ascending by step; the last of several values at a step."""
    x, y = np.asarray(steps, dtype=float), np.asarray(values, dtype=float)
    x, y = x[np.isfinite(y)], y[np.isfinite(y)]
    if np.all(x[1:] > x[:-1]):
        return x, y
    unique, last = np.unique(x[::-1], return_index=True)
    return unique, y[::-1][last]


def _known(x: Array, y: Array, at: int) -> Prediction | None:
    """Return the prediction for a curve that cannot be fitted."""
    if len(y) == 0:
        return Prediction(float("nan"), float("inf"))
    if at <= x[-1]:
        return Prediction(float(np.interp(at, x, y)), 0.0)
    return Prediction(0.0, 0.0) if not y.any() else None


def _prediction(mean: float, std: float, unit: float, y: Array) -> Prediction:
    if y.min() >= 0:
        mean = max(mean, 0.0)  # Eq. 4's coefficients are not negative: no loss falls below 0
    most = float(np.finfo(float).max)
    return Prediction(float(np.clip(unit * mean, -most, most)), float(min(unit * std, most)))


def _origin(x: Array) -> float:
    """Return the number to subtract from each step, so that all steps of the curve are above 0.

    It is 0, unless the first step is less than the median distance between steps. It is then the first step minus
    that distance.
    """
    return min(0.0, float(x[0] - (np.median(np.diff(x)) if len(x) > 1 else 1.0)))


def _last_stage(x: Array, z: Array) -> tuple[int, float]:
    """Return the index at which the last stage begins, and the step from which its steps count."""
    starts = level_starts(z)
    return (starts[-1], float(x[starts[-1] - 1])) if starts else (0, _origin(x))


def _thinned(x: Array, z: Array, counts: Array, most: int) -> tuple[Array, Array, Array]:
    """Return at most `most` points, each the mean of equally many neighbours.

    `counts`: how many values each point is the mean of.
    """
    size = -(-len(x) // most)
    if size == 1:
        return x, z, counts
    # Counted from the end, so that only the first point has fewer neighbours.
    starts = np.unique(np.maximum(np.arange(len(x), -size, -size)[1:], 0))
    total = np.add.reduceat(counts, starts)
    return np.add.reduceat(x * counts, starts) / total, np.add.reduceat(z * counts, starts) / total, total
