"""The simplest baseline: logistic regression on SpotTune's features.

The inputs are SpotTune's six price features and the maximum price.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import expit

from thriftune.errors import SettingError
from thriftune.market.revocation.price_curve import (
    Floats,
    PriceCurve,
    Series,
    flat_queries,
    revoked,
    shaped_answer,
)
from thriftune.market.revocation.spottune_inputs import price_records, random_max_prices, training_times

_MAX_ROWS = 50_000  # minutes of the history that are fitted
_RIDGE = 1e-4  # weight of the squared coefficients beside the mean loss


class LogisticRegression:
    """The baseline of SpotTune Fig. 10.

    It is trained on one random maximum price per minute.
    """

    def __init__(self) -> None:
        self._weights: Floats | None = None
        self._means = self._scales = np.zeros(0)

    def fit(self, series: Series, rng: np.random.Generator | None = None) -> LogisticRegression:
        rng = rng or np.random.default_rng(0)
        curve = PriceCurve(series)
        t = training_times(curve, _MAX_ROWS, "LogisticRegression")
        max_price = random_max_prices(curve, t, rng)
        x, y = _inputs(curve, t, max_price), revoked(curve, t, max_price)
        self._means, self._scales = x.mean(axis=0), x.std(axis=0)
        self._scales[self._scales == 0.0] = 1.0
        x = self._scaled(x)

        def loss_and_gradient(weights: Floats) -> tuple[float, Floats]:
            log_odds = x @ weights
            log_loss = np.mean(np.logaddexp(0.0, np.where(y, -log_odds, log_odds)))
            loss = log_loss + 0.5 * _RIDGE * weights[:-1] @ weights[:-1]
            gradient = x.T @ (expit(log_odds) - y) / len(y)
            gradient[:-1] += _RIDGE * weights[:-1]
            return float(loss), gradient

        self._weights = minimize(loss_and_gradient, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B").x
        return self

    def probability(self, series: Series, t: ArrayLike, max_price: ArrayLike) -> float | Floats:
        if self._weights is None:
            raise SettingError("LogisticRegression: not fitted yet; call fit(series) first")
        curve = PriceCurve(series)
        times, max_prices, shape = flat_queries(curve, t, max_price)
        probability = expit(self._scaled(_inputs(curve, times, max_prices)) @ self._weights)
        return shaped_answer(curve, times, max_prices, probability, shape)

    def _scaled(self, x: Floats) -> Floats:
        """Return standardised features with a column of ones for the intercept."""
        return np.column_stack([(x - self._means) / self._scales, np.ones(len(x))])


def _inputs(curve: PriceCurve, t: Floats, max_price: Floats) -> Floats:
    return np.column_stack([price_records(curve, t), max_price])
