"""The default revocation model: boosted trees on the price history of one market."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from thriftune.errors import SettingError
from thriftune.market.revocation.features import DIRECTIONS, features
from thriftune.market.revocation.price_curve import (
    DAY,
    HOUR,
    Floats,
    PriceCurve,
    Series,
    flat_queries,
    revoked,
    shaped_answer,
)
from thriftune.market.revocation.spottune_inputs import HIGHEST_DELTA, LOWEST_DELTA
from thriftune.market.revocation.trees import Growth, Trees, boost

MIN_DAYS = 2.0
_WARM_UP_SECONDS = 6 * HOUR  # at the start of the series, without training times: their past is too short
_SPACING_SECONDS = 450.0  # between training times; times nearer to each other are nearly identical
_MAX_TIMES = 9000
_MAX_TREES = 160
_VALIDATION_SHARE = 0.4  # the last part of the history, which decides the number of trees
_MORE_TREES = 1.2  # the whole history supports this many times the trees of its first part
_GROWTH = Growth()


class RevocationModel:
    """Boosted trees on recent prices and the time of day.

    The probability never rises with the maximum price. The number of trees comes from a fit to the earlier part of
    the series, validated on the later part. The final fit uses the whole series. The same series gives the same
    model unless another `rng` is given.

    The log loss without class weights keeps the probabilities calibrated. A correction by Platt's method, fitted
    on the later part, made them worse: the final fit has already seen that part.
    """

    def __init__(self) -> None:
        self._trees: Trees | None = None
        self._min_probability = 0.0

    def fit(self, series: Series, rng: np.random.Generator | None = None) -> RevocationModel:
        """Fit the model to the prices of one market, and return it.

        The series must have at least two days. A longer one improves the model, up to a few weeks.
        """
        rng = rng or np.random.default_rng(0)
        curve = PriceCurve(series)
        days = (curve.end - curve.start) / DAY
        if days < MIN_DAYS:
            raise SettingError(
                f"RevocationModel: a price series of {days:.2f} days is too short; give it {MIN_DAYS:g} or more"
            )
        first, last = curve.start + _WARM_UP_SECONDS, curve.end - HOUR
        count = min(round((last - first) / _SPACING_SECONDS), _MAX_TIMES)
        t, max_price = _training_queries(curve, np.linspace(first, last, count), rng)
        x, y = features(curve, t, max_price), revoked(curve, t, max_price)
        cut = last - _VALIDATION_SHARE * (last - first)
        early, late = t + HOUR <= cut, t > cut  # the labels of the hour before the cut depend on prices after it
        validation = x[late], y[late]
        validated = boost(x[early], y[early], DIRECTIONS, rng, _MAX_TREES, _GROWTH, validation)
        tree_count = round(_MORE_TREES * len(validated.values))
        self._trees = boost(x, y, DIRECTIONS, rng, tree_count, _GROWTH)
        # An event not seen in n hours may still come in the next one, so no probability is nearer to 0 or 1.
        self._min_probability = 0.1 * HOUR / (curve.end - curve.start)
        return self

    def probability(self, series: Series, t: ArrayLike, max_price: ArrayLike) -> float | Floats:
        """Return the probability of a preemption in the hour after `t`.

        A machine is preempted when the price rises above `max_price`. The probability is 1 where the price is
        already above. `t` and `max_price` are broadcast; only prices up to `t` are used. After the end of the
        series its last price is assumed to hold.
        """
        if self._trees is None:
            raise SettingError("RevocationModel: not fitted yet; call fit(series) first")
        curve = PriceCurve(series)
        times, max_prices, shape = flat_queries(curve, t, max_price)
        probability = expit(self._trees.log_odds(features(curve, times, max_prices)))
        probability = np.clip(probability, self._min_probability, 1.0 - self._min_probability)
        return shaped_answer(curve, times, max_prices, probability, shape)


def _training_queries(curve: PriceCurve, t: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return four training queries for each time, as two arrays: times and maximum prices.

    Each element of `t` occurs four times in a row. Two of its maximum prices are slightly above the price at that
    time, one is a multiple of that price, and one is a multiple of the median price. Users choose similar ones.
    """
    price = curve.price(t)
    deltas = rng.uniform(LOWEST_DELTA, HIGHEST_DELTA, t.shape)
    small_deltas = np.exp(rng.uniform(np.log(LOWEST_DELTA), np.log(HIGHEST_DELTA), t.shape))
    ratios = rng.uniform(1.05, 2.0, t.shape)
    # On-demand prices are some multiple of the usual spot price. Where the price is above that level, the
    # multiple is taken of the price itself.
    multiples = np.exp(rng.uniform(0.0, np.log(10.0), t.shape))
    levels = multiples * np.median(price)
    levels = np.where(levels > price, levels, multiples * price)
    max_prices = np.stack([price + deltas, price + small_deltas, ratios * price, levels], axis=1)
    return np.repeat(t, max_prices.shape[1]), max_prices.ravel()
