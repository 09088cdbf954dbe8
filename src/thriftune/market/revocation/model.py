"""How likely does the price rise above this maximum within the hour? The default: boosted trees on the history."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from thriftune.errors import SettingError
from thriftune.market.revocation.features import DIRECTIONS, features
from thriftune.market.revocation.records import HIGHEST_DELTA, LOWEST_DELTA
from thriftune.market.revocation.steps import DAY, HOUR, Floats, Series, Steps, answer, questions, revoked
from thriftune.market.revocation.trees import Growth, Trees, boost

LEAST_DAYS = 2.0
_WARM_UP = 6 * HOUR  # of the series, before the first question of the training
_APART = 450.0  # seconds between the times that are asked about; nearer ones tell nearly the same
_MOST_TIMES = 9000
_MOST_TREES = 160
_JUDGED = 0.4  # the last share of the history, which tells when to stop
_MORE_TREES = 1.2  # the whole history carries more of them than its first part
_GROWTH = Growth()


class RevocationModel:
    """Boosted trees on what the market did lately and at this time of day, never rising with the maximum price.

    Fitted on the earlier part of the series until its later part is told no better, then with as many trees on all
    of it. The same series gives the same model unless another `rng` is given.

    The log loss with no class weights is what keeps the probabilities true. A correction (Platt's) found on the
    later part made them worse: the fit on all of the series knows already what had changed there.
    """

    def __init__(self) -> None:
        self._trees: Trees | None = None
        self._surest = 0.0

    def fit(self, series: Series, rng: np.random.Generator | None = None) -> RevocationModel:
        """Learns this market; needs two days of prices, and gets better up to some weeks."""
        rng = rng or np.random.default_rng(0)
        steps = Steps(series)
        days = (steps.end - steps.start) / DAY
        if days < LEAST_DAYS:
            raise SettingError(
                f"RevocationModel: a price series of {days:.2f} days is too short; give it {LEAST_DAYS:g} or more"
            )
        first, last = steps.start + _WARM_UP, steps.end - HOUR
        times = min(round((last - first) / _APART), _MOST_TIMES)
        t, max_price = _asked(steps, np.linspace(first, last, times), rng)
        x, y = features(steps, t, max_price), revoked(steps, t, max_price)
        cut = last - _JUDGED * (last - first)
        early, late = t + HOUR <= cut, t > cut  # the hour before the cut would tell of what is after it
        tried = boost(x[early], y[early], DIRECTIONS, rng, _MOST_TREES, _GROWTH, (x[late], y[late]))
        self._trees = boost(x, y, DIRECTIONS, rng, round(_MORE_TREES * len(tried.values)), _GROWTH)
        # No more certain than the history is long: what was not seen in n hours may come in the next.
        self._surest = 0.1 * HOUR / (steps.end - steps.start)
        return self

    def probability(self, series: Series, t: ArrayLike, max_price: ArrayLike) -> float | Floats:
        """That the price rises above `max_price` in the hour after `t`; 1 where it is above already.

        `t` and `max_price` are broadcast; only prices up to `t` are looked at. After the end of the series its
        last price is taken to hold.
        """
        if self._trees is None:
            raise SettingError("RevocationModel: not fitted yet; call fit(series) first")
        steps = Steps(series)
        when, most, shape = questions(steps, t, max_price)
        told = expit(self._trees.log_odds(features(steps, when, most)))
        return answer(steps, when, most, np.clip(told, self._surest, 1.0 - self._surest), shape)


def _asked(steps: Steps, t: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Four maximum prices for each time, as users choose them: a little more, a multiple, and a fixed level."""
    price = steps.price(t)
    deltas = rng.uniform(LOWEST_DELTA, HIGHEST_DELTA, t.shape)
    small = np.exp(rng.uniform(np.log(LOWEST_DELTA), np.log(HIGHEST_DELTA), t.shape))
    times = rng.uniform(1.05, 2.0, t.shape)
    # Machines on demand cost some multiple of the usual spot price; where spot is dearer, of the price itself.
    many = np.exp(rng.uniform(0.0, np.log(10.0), t.shape))
    level = many * np.median(price)
    level = np.where(level > price, level, many * price)
    most = np.stack([price + deltas, price + small, times * price, level], axis=1)
    return np.repeat(t, most.shape[1]), most.ravel()
