"""How well is it foretold where a learning curve ends, and which is the best of sixteen? SpotTune Fig. 8 (c), 11.

Groups of 16 configurations are drawn from one task; at theta of the steps, the value at the last step is
predicted, and the three best go on. The truly best should be among them. A relative error counts as 1 at most:
diverged curves end anywhere.
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
"""The value to be expected at a step, from steps and the values there."""

GROUP, TOP, THETA = 16, 3, 0.7
CURVES = 200  # of a table, that all methods are fitted to


# --- the predictions --------------------------------------------------------------------------------------


def ours(steps: Array, values: Array, at: int) -> float:
    return predict(steps, values, at).mean


def last_value(_steps: Array, values: Array, _at: int) -> float:
    return float(values[-1])


def one_stage(steps: Array, values: Array, at: int) -> float:
    """SLAQ's."""
    return predict_one_stage(steps, values, at).mean


def as_printed(steps: Array, values: Array, at: int) -> float:
    """SpotTune's: Eq. 4 fitted to the last stage, where stages begin by Eq. 7."""
    start = stage_starts(values)[-1]
    return predict_one_stage(steps[start:], values[start:], at).mean


def power_law(steps: Array, values: Array, at: int) -> float:
    """c + b k^-g by least squares: linear but in g, of which there is a grid."""
    if len(values) < 3:
        return float(values[-1])
    powers = np.linspace(0.05, 3, 60)[:, None]
    bases, there = steps**-powers, at ** -powers[:, 0]
    centred, level = bases - bases.mean(axis=1, keepdims=True), values.mean()
    b = centred @ (values - level) / np.sum(centred**2, axis=1)
    errors = np.sum((values - level - b[:, None] * centred) ** 2, axis=1)
    best = int(np.argmin(errors))
    return float(level + b[best] * (there[best] - bases[best].mean()))


# --- how good they are ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Foretold:
    """Of one task at one theta."""

    top_1: float
    top_3: float
    last_top_1: float  # ranked by the last value seen
    last_top_3: float
    error: float
    baselines: Mapping[str, float]  # their errors, on the same curves as `error`
    within: float  # one standard deviation


def foretold(curves: Array, sign: int, theta: float, groups: int, baselines: Mapping[str, Method]) -> Foretold:
    """`curves`: (configurations, steps). `groups`: how many are drawn."""
    steps, seen, at = _split(curves, theta)
    alive = np.isfinite(curves[:, :seen]).all(axis=1)
    found = [predict(steps[:seen], curve[:seen], at) for curve in curves]
    means, stds = np.array([each.mean for each in found]), np.array([each.std for each in found])
    means[~alive] = np.inf
    last = np.where(alive, curves[:, seen - 1], np.inf)
    by_mean, by_last = (tops(guess, curves[:, -1], sign, groups) for guess in (means, last))
    whole = np.flatnonzero(np.isfinite(curves).all(axis=1))[:CURVES]
    true = curves[whole, -1]
    errors = {
        name: float(relative_errors(method, curves[whole], theta).mean()) for name, method in baselines.items()
    }
    within = float(np.mean(np.abs(means[whole] - true) <= stds[whole]))
    return Foretold(*by_mean, *by_last, float(_relative(means[whole], true).mean()), errors, within)


def relative_errors(method: Method, curves: Array, theta: float) -> Array:
    """Of the predicted last value of each curve, 1 at most."""
    steps, seen, at = _split(curves, theta)
    return _relative(np.array([method(steps[:seen], curve[:seen], at) for curve in curves]), curves[:, -1])


def tops(guesses: Array, true: Array, sign: int, groups: int) -> tuple[float, float]:
    """How often the truly best of a group is the best by the guesses, and among the best three."""
    random = np.random.default_rng(0)
    size = min(GROUP, len(true))
    drawn = np.array([random.choice(len(true), size, replace=False) for _ in range(groups)])
    guessed = np.where(np.isfinite(guesses), sign * guesses, np.inf)[drawn]
    best = np.argmin(np.where(np.isfinite(true), sign * true, np.inf)[drawn], axis=1)
    order = np.argsort(guessed, axis=1, kind="stable")
    hits = order[:, :TOP] == best[:, None]
    return float(np.mean(hits[:, 0])), float(np.mean(hits.any(axis=1)))


def _split(curves: Array, theta: float) -> tuple[Array, int, int]:
    """The steps, how many of them are seen, and the last one."""
    at = curves.shape[1]
    return np.arange(1.0, at + 1), int(np.ceil(theta * at - 1e-9)), at


def _relative(guesses: Array, true: Array) -> Array:
    with np.errstate(all="ignore"):
        errors = np.abs(guesses - true) / np.abs(true)
    return np.minimum(np.nan_to_num(errors, nan=1.0), 1.0)
