"""How far does a straight line get? Logistic regression on the paper's six features and the maximum price."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import expit

from thriftune.errors import SettingError
from thriftune.market.revocation.records import random_max_prices, records, training_times
from thriftune.market.revocation.steps import Floats, Series, Steps, answer, questions, revoked

_ROWS = 50_000
_RIDGE = 1e-4  # on the mean loss


class LogisticRegression:
    """The simplest baseline of SpotTune Fig. 10; trained on random maximum prices, one for each minute."""

    def __init__(self) -> None:
        self._weights: Floats | None = None
        self._centre = self._spread = np.zeros(0)

    def fit(self, series: Series, rng: np.random.Generator | None = None) -> LogisticRegression:
        rng = rng or np.random.default_rng(0)
        steps = Steps(series)
        t = training_times(steps, _ROWS, "LogisticRegression")
        max_price = random_max_prices(steps, t, rng)
        x, y = _inputs(steps, t, max_price), revoked(steps, t, max_price)
        self._centre, self._spread = x.mean(axis=0), x.std(axis=0)
        self._spread[self._spread == 0.0] = 1.0
        x = self._scaled(x)

        def loss(weights: Floats) -> tuple[float, Floats]:
            told = x @ weights
            value = (
                np.mean(np.logaddexp(0.0, np.where(y, -told, told))) + 0.5 * _RIDGE * weights[:-1] @ weights[:-1]
            )
            slope = x.T @ (expit(told) - y) / len(y)
            slope[:-1] += _RIDGE * weights[:-1]
            return float(value), slope

        self._weights = minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B").x
        return self

    def probability(self, series: Series, t: ArrayLike, max_price: ArrayLike) -> float | Floats:
        if self._weights is None:
            raise SettingError("LogisticRegression: not fitted yet; call fit(series) first")
        steps = Steps(series)
        when, most, shape = questions(steps, t, max_price)
        told = expit(self._scaled(_inputs(steps, when, most)) @ self._weights)
        return answer(steps, when, most, told, shape)

    def _scaled(self, x: Floats) -> Floats:
        return np.column_stack([(x - self._centre) / self._spread, np.ones(len(x))])


def _inputs(steps: Steps, t: Floats, max_price: Floats) -> Floats:
    return np.column_stack([records(steps, t), max_price])
