"""What does a study expect where? A Gaussian process of one metric, fitted to the trials that ended.

It is the model of Bayesian search, whatever searcher the study has. Trials that failed, or that have no value of
the metric, are left out; of those that were cut it takes a guess of their final value and how sure that is.
"""

from __future__ import annotations

import math

import numpy as np

from thriftune.common.formatting import plural
from thriftune.errors import SettingError, ThriftuneError
from thriftune.search.bayes.cube import Cube
from thriftune.search.bayes.hyperparameters import LEARNED_FROM, Sampling, learned
from thriftune.search.bayes.kernel import Array
from thriftune.search.bayes.posterior import Posterior
from thriftune.search.bayes.threads import one_thread
from thriftune.search.bayes.unfinished import final_values
from thriftune.state.history import History
from thriftune.state.trial_record import State

FEWEST = 10
"""Trials with a value that a model needs; and twice as many as there are parameters that vary."""

_LARGEST = 1e100
"""Squares of larger values are no numbers any more."""

MOST = 500
"""Trials in the model at most, evenly from all: more cost much and change little."""

_FENCE, _FURTHEST = 1.5, 1.5
"""Interquartile ranges beyond the quartiles, as in box plots, from which on only the logarithm of a value's
distance counts; and interquartile ranges beyond that fence that it counts for at most."""


class Surrogate:
    """A model of one metric over the whole space. Its predictions are deterministic."""

    def __init__(self, history: History, metric: str | None = None) -> None:
        """`metric`: by default the first objective. Raises ThriftuneError if too few trials have a value of it."""
        self.space = history.space
        self.metric = checked_metric(history, metric)
        configs, values, variances = _observed(history, self.metric)
        varying = sum(axis.count != 1 for axis in self.space.axes.values())
        fewest = max(FEWEST, 2 * varying)
        if len(configs) < fewest:
            raise ThriftuneError(
                f"a model of {self.metric!r} over {plural(varying, 'parameter')} needs {fewest} trials with a "
                f"value; there {'is' if len(configs) == 1 else 'are'} {len(configs)}"
            )
        if float(np.abs(values).max()) > _LARGEST:
            raise ThriftuneError(f"{self.metric!r} has values beyond {_LARGEST:g}, which no model can be made of")
        y = tamed(values)
        self._middle, self._scale = float(y.mean()), float(y.std())
        if self._scale <= 1e-12 * max(1e-300, float(np.abs(values).max())):
            raise ThriftuneError(
                f"all {len(configs)} trials have the same {self.metric!r}: nothing sets them apart"
            )
        self.cube = Cube(self.space)
        X = np.array([self.space.encode(config) for config in configs])
        y = (y - self._middle) / self._scale
        with one_thread():
            # How f varies is learned from what was measured, evenly and not mostly from the best.
            measured = np.flatnonzero(variances == 0.0)
            measured = measured[_evenly(len(measured), LEARNED_FROM)]
            layout, rng = self.cube.layout, np.random.default_rng(0)
            thetas = learned(layout, X[measured], y[measured], Sampling(), rng).alone
            self._model = Posterior(layout, thetas, X, y, unsure=variances)

    def predict(self, U: Array) -> Array:
        """Return the expected values at points (m, parameters), numbers as Space.from_unit() takes them."""
        with one_thread():
            X, _ = self.cube.columns(self.cube.snap(U))
            rows = np.array_split(X, max(1, len(X) // 2000))
            mean = np.concatenate([self._model.mean(each).mean(axis=0) for each in rows])
        expected: Array = self._middle + self._scale * mean
        return expected


def checked_metric(history: History, metric: str | None) -> str:
    """Return the metric, by default the first objective; raise SettingError if no trial has reported it."""
    if metric is None:
        return history.metric
    known = {objective.metric: None for objective in history.objectives}
    for trial in history.trials:
        known.update(dict.fromkeys(trial.metrics))
    if metric not in known:
        raise SettingError(f"metric: {metric!r} was not reported; there is {', '.join(known)}")
    return metric


def tamed(values: Array) -> Array:
    """Return the values with far outliers pulled in: one diverged training must not outweigh all others."""
    low, high = np.quantile(values, (0.25, 0.75))
    between = high - low
    if between <= 0.0:
        return values
    inside = np.clip(values, low - _FENCE * between, high + _FENCE * between)
    beyond = values - inside
    pulled = between * np.minimum(np.log1p(np.abs(beyond) / between), _FURTHEST)
    found: Array = inside + np.sign(beyond) * pulled
    return found


def _observed(history: History, metric: str) -> tuple[list[dict[str, object]], Array, Array]:
    """Return configurations, values and variances of the trials that tell something of the metric."""
    own = None if metric == history.metric else metric

    def finite(value: float | None) -> bool:
        return value is not None and math.isfinite(value)

    over = (trial for trial in history.trials if trial.state.ended or trial.state is State.PAUSED)
    trials = [
        trial
        for trial in over
        if trial.state is not State.FAILED and finite(trial.value if own is None else trial.metrics.get(own))
    ]
    maximize = any(each.metric == metric and each.maximize for each in history.objectives)
    found = final_values(trials, own, maximize=maximize).values if trials else {}
    known = [trial for trial in trials if trial.id in found]
    known = [known[i] for i in _evenly(len(known), MOST)]
    values = np.array([found[trial.id][0] for trial in known], dtype=float)
    variances = np.array([found[trial.id][1] for trial in known], dtype=float)
    return [dict(trial.config) for trial in known], values, variances


def _evenly(count: int, most: int) -> np.typing.NDArray[np.intp]:
    """Return the indices of at most so many of `count` things, evenly from all."""
    return np.linspace(0, count - 1, min(count, most)).round().astype(np.intp)
