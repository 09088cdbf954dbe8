"""A Gaussian process of one metric over the space, fitted to a study's trials.

It is the model of Bayesian search, whatever searcher the study has. Trials that failed, or that have no value of
the metric, are left out. A trial that was cut short counts with an estimate of its final value and the estimate's
variance.
"""

from __future__ import annotations

import math

import numpy as np

from thriftune.common.formatting import plural
from thriftune.errors import SettingError, ThriftuneError
from thriftune.search.bayes.final_values import final_values
from thriftune.search.bayes.hyperparameters import MAX_LEARNED_FROM, Sampling, draw_thetas
from thriftune.search.bayes.kernel import Array
from thriftune.search.bayes.one_thread import one_thread
from thriftune.search.bayes.posterior import Posterior
from thriftune.search.bayes.unit_cube import Cube
from thriftune.state.history import History
from thriftune.state.trial_record import State

MIN_TRIALS = 10
"""A model needs this many trials with a value, and at least TRIALS_PER_PARAMETER for each varying parameter."""

TRIALS_PER_PARAMETER = 2

_LARGEST = 1e100
"""The sum of squares of larger values may overflow."""

MAX_TRIALS = 500
"""The most trials in the model, evenly spaced in order of creation. More take long and change little."""

_FENCE = 1.5
"""Values up to this many interquartile ranges beyond the quartiles do not change; the convention of box plots."""

_MAX_BEYOND_FENCE = 1.5
"""Values further out are moved to at most this many interquartile ranges beyond the fence."""

_MAX_ROWS = 2000
"""The most points that are predicted at once, to limit the memory."""


class Surrogate:
    """A model of one metric over the whole space. Its predictions are deterministic."""

    def __init__(self, history: History, metric: str | None = None) -> None:
        """Fit the model of a metric, by default of the first objective.

        Raises ThriftuneError if too few trials have a value of it, or if their values cannot be modelled.
        """
        self.space = history.space
        self.metric = checked_metric(history, metric)
        configs, values, variances = _observed(history, self.metric)
        varying = sum(scale.count != 1 for scale in self.space.scales.values())
        needed = max(MIN_TRIALS, TRIALS_PER_PARAMETER * varying)
        if len(configs) < needed:
            raise ThriftuneError(
                f"a model of {self.metric!r} over {plural(varying, 'parameter')} needs {needed} trials with a "
                f"value; the study has {len(configs)}"
            )
        if float(np.abs(values).max()) > _LARGEST:
            raise ThriftuneError(f"{self.metric!r} has values beyond {_LARGEST:g}, which cannot be modelled")
        y = compress_outliers(values)
        self._centre, self._scale = float(y.mean()), float(y.std())
        if self._scale <= 1e-12 * max(1e-300, float(np.abs(values).max())):
            raise ThriftuneError(
                f"all {len(configs)} trials have the same {self.metric!r}, so no parameter has an effect"
            )
        self.cube = Cube(self.space)
        X = np.array([self.space.encode(config) for config in configs])
        y = (y - self._centre) / self._scale
        with one_thread():
            # Learn the hyperparameters from measured values, evenly from all trials and not mostly from the best.
            measured = np.flatnonzero(variances == 0.0)
            measured = measured[_evenly_spaced(len(measured), MAX_LEARNED_FROM)]
            layout, rng = self.cube.layout, np.random.default_rng(0)
            thetas = draw_thetas(layout, X[measured], y[measured], Sampling(), rng).without_trend
            self._model = Posterior(layout, thetas, X, y, extra_variance=variances)

    def predict(self, U: Array) -> Array:
        """Return the expected values (m,) at points (m, parameters), numbers as Space.from_unit() takes them."""
        with one_thread():
            X, _ = self.cube.encode(self.cube.snap(U))
            chunks = np.array_split(X, max(1, len(X) // _MAX_ROWS))
            mean = np.concatenate([self._model.mean(chunk).mean(axis=0) for chunk in chunks])
        expected: Array = self._centre + self._scale * mean
        return expected


def checked_metric(history: History, metric: str | None) -> str:
    """Return the metric, by default the first objective; raise SettingError if no trial has reported it."""
    if metric is None:
        return history.metric
    known = {objective.metric: None for objective in history.objectives}
    for trial in history.trials:
        known.update(dict.fromkeys(trial.metrics))
    if metric not in known:
        raise SettingError(f"metric: {metric!r} was not reported; use one of {', '.join(known)}")
    return metric


def compress_outliers(values: Array) -> Array:
    """Return the values with far outliers moved closer, so that one diverged trial does not dominate the model."""
    low, high = np.quantile(values, (0.25, 0.75))
    quartile_range = high - low
    if quartile_range <= 0.0:
        return values
    clipped = np.clip(values, low - _FENCE * quartile_range, high + _FENCE * quartile_range)
    beyond = values - clipped
    compressed = quartile_range * np.minimum(np.log1p(np.abs(beyond) / quartile_range), _MAX_BEYOND_FENCE)
    result: Array = clipped + np.sign(beyond) * compressed
    return result


def _observed(history: History, metric: str) -> tuple[list[dict[str, object]], Array, Array]:
    """Return configurations, values and variances of the trials with a usable value of the metric."""
    own = None if metric == history.metric else metric

    def finite(value: float | None) -> bool:
        return value is not None and math.isfinite(value)

    candidates = (trial for trial in history.trials if trial.state.ended or trial.state is State.PAUSED)
    trials = [
        trial
        for trial in candidates
        if trial.state is not State.FAILED and finite(trial.value if own is None else trial.metrics.get(own))
    ]
    maximize = any(each.metric == metric and each.maximize for each in history.objectives)
    finals = final_values(trials, own, maximize=maximize).values if trials else {}
    usable = [trial for trial in trials if trial.id in finals]
    usable = [usable[i] for i in _evenly_spaced(len(usable), MAX_TRIALS)]
    values = np.array([finals[trial.id][0] for trial in usable], dtype=float)
    variances = np.array([finals[trial.id][1] for trial in usable], dtype=float)
    return [dict(trial.config) for trial in usable], values, variances


def _evenly_spaced(count: int, most: int) -> np.typing.NDArray[np.intp]:
    """Return at most `most` evenly spaced indices below `count`."""
    return np.linspace(0, count - 1, min(count, most)).round().astype(np.intp)
