"""Predictions of learning curves, and their scores.

SpotTune's Figures 8 (c) and 11 use them. Groups of 16 configurations are drawn from one task. At theta of the
steps, a method predicts the value at the last step, and the three best configurations continue. The truly best one
should be among them. A relative error counts as at most 1, because diverged curves may end at any value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from thriftune.stopping.curve_fits import predict, predict_one_stage
from thriftune.stopping.curve_stages import stage_starts

Array = npt.NDArray[np.float64]
Method = Callable[[Array, Array, int], float]
"""A function of the observed steps, the values there, and a later step; it predicts the value at that step."""

GROUP, TOP, THETA = 16, 3, 0.7
MAX_CURVES = 200  # of a table, on which errors are measured


# --- the predictions --------------------------------------------------------------------------------------


def ours(steps: Array, values: Array, at: int) -> float:
    return predict(steps, values, at).mean


def last_value(_steps: Array, values: Array, _at: int) -> float:
    return float(values[-1])


def one_stage(steps: Array, values: Array, at: int) -> float:
    """Predict by SLAQ's method."""
    return predict_one_stage(steps, values, at).mean


def as_printed(steps: Array, values: Array, at: int) -> float:
    """Predict by SpotTune's method.

    Eq. 4 is fitted to the last stage, and Eq. 7 finds the stages.
    """
    start = stage_starts(values)[-1]
    return predict_one_stage(steps[start:], values[start:], at).mean


def power_law(steps: Array, values: Array, at: int) -> float:
    """Predict by a least-squares fit of c + b k^-g; g is searched on a grid."""
    if len(values) < 3:
        return float(values[-1])
    powers = np.linspace(0.05, 3, 60)[:, None]
    bases, bases_at = steps**-powers, at ** -powers[:, 0]
    centred, level = bases - bases.mean(axis=1, keepdims=True), values.mean()
    b = centred @ (values - level) / np.sum(centred**2, axis=1)
    errors = np.sum((values - level - b[:, None] * centred) ** 2, axis=1)
    best = int(np.argmin(errors))
    return float(level + b[best] * (bases_at[best] - bases[best].mean()))


# --- their scores ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PredictionScores:
    """The scores of our predictions for one task at one theta."""

    top_1: float  # how often the best configuration of a group is predicted to be the best
    top_3: float  # how often the best configuration is among the predicted three
    last_top_1: float  # the same two shares if configurations are ranked by their last observed value
    last_top_3: float
    error: float  # mean relative error of the predicted last value
    baselines: Mapping[str, float]  # errors of other methods on the same curves
    within: float  # how often the error is at most the predicted standard deviation


def score_predictions(
    curves: Array, sign: int, theta: float, groups: int, baselines: Mapping[str, Method]
) -> PredictionScores:
    """Score our predictions for an array of curves (configurations, steps).

    `sign` is 1 if values are minimised, -1 if they are maximised. `groups` groups are drawn.
    """
    steps, seen, at = _split(curves, theta)
    alive = np.isfinite(curves[:, :seen]).all(axis=1)
    predictions = [predict(steps[:seen], curve[:seen], at) for curve in curves]
    means, stds = np.array([each.mean for each in predictions]), np.array([each.std for each in predictions])
    means[~alive] = np.inf
    last = np.where(alive, curves[:, seen - 1], np.inf)
    by_mean, by_last = (tops(guess, curves[:, -1], sign, groups) for guess in (means, last))
    whole = np.flatnonzero(np.isfinite(curves).all(axis=1))[:MAX_CURVES]
    true = curves[whole, -1]
    errors = {
        name: float(relative_errors(method, curves[whole], theta).mean()) for name, method in baselines.items()
    }
    within = float(np.mean(np.abs(means[whole] - true) <= stds[whole]))
    return PredictionScores(*by_mean, *by_last, float(_relative(means[whole], true).mean()), errors, within)


def relative_errors(method: Method, curves: Array, theta: float) -> Array:
    """Return the relative error of the predicted last value of each curve, at most 1."""
    steps, seen, at = _split(curves, theta)
    return _relative(np.array([method(steps[:seen], curve[:seen], at) for curve in curves]), curves[:, -1])


def tops(guesses: Array, true: Array, sign: int, groups: int) -> tuple[float, float]:
    """Return how often the best of a group has the best guess.

    Also return how often it has one of the best three guesses.
    """
    random = np.random.default_rng(0)
    size = min(GROUP, len(true))
    drawn = np.array([random.choice(len(true), size, replace=False) for _ in range(groups)])
    guessed = np.where(np.isfinite(guesses), sign * guesses, np.inf)[drawn]
    best = np.argmin(np.where(np.isfinite(true), sign * true, np.inf)[drawn], axis=1)
    order = np.argsort(guessed, axis=1, kind="stable")
    hits = order[:, :TOP] == best[:, None]
    return float(np.mean(hits[:, 0])), float(np.mean(hits.any(axis=1)))


def _split(curves: Array, theta: float) -> tuple[Array, int, int]:
    """Return all steps, the number of observed steps, and the last step."""
    at = curves.shape[1]
    return np.arange(1.0, at + 1), int(np.ceil(theta * at - 1e-9)), at


def _relative(guesses: Array, true: Array) -> Array:
    with np.errstate(all="ignore"):
        errors = np.abs(guesses - true) / np.abs(true)
    return np.minimum(np.nan_to_num(errors, nan=1.0), 1.0)
