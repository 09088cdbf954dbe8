"""What does the history say about this maximum price? The features of the default model, of times up to t only.

Those that depend on the maximum price each rise with it or each fall, so that trees which are monotone in each of
them are monotone in the price.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from thriftune.market.revocation.steps import DAY, HOUR, Floats, Steps

Narrow = NDArray[np.float32]

_OF_PRICE = {  # feature: whether more of it makes a revocation more likely (1) or less (-1)
    "margin": -1,
    "margin_by_volatility": -1,
    "over_highest_1h": -1,
    "over_highest_6h": -1,
    "over_highest_1d": -1,
    "over_highest_7d": -1,
    "over_mean_1d": -1,
    "hours_since_above": -1,
    "exceeded_1d": 1,
    "exceeded_by_ratio_1d": 1,
    "exceeded_7d": 1,
    "exceeded_by_ratio_7d": 1,
    "exceeded_near_this_price": 1,
    "exceeded_by_ratio_near_this_price": 1,
    "exceeded_this_time_2d": 1,
    "exceeded_by_ratio_this_time_2d": 1,
    "exceeded_this_time_7d": 1,
    "exceeded_by_ratio_this_time_7d": 1,
}
_OF_TIME = (
    "price_over_mean_1h",
    "price_over_mean_6h",
    "price_over_mean_1d",
    "price_over_mean_7d",
    "changes_1h",
    "changes_6h",
    "changes_1d",
    "rises_1h",
    "volatility_1h",
    "volatility_1d",
    "minutes_since_change",
    "last_change",
    "hour_of_day",
)
NAMES = (*_OF_PRICE, *_OF_TIME)
DIRECTIONS: NDArray[np.int8] = np.array([*_OF_PRICE.values(), *([0] * len(_OF_TIME))], np.int8)

# The past is looked up at moments on a grid, each with the highest price of the hour that followed it.
_GRID = 300.0  # seconds
_HOUR, _DAY = round(HOUR / _GRID), round(DAY / _GRID)  # moments
_WEEK = np.arange(_HOUR, 7 * _DAY, _HOUR // 2)  # moments ago: half-hourly, from the last whose next hour is over
_DAYS = np.arange(1, 8)[:, None] * _DAY
_AT_THIS_TIME = (_DAYS + np.arange(-2, 3)).ravel()
_AT_ONCE = 2048  # questions, so that the past of all of them stays in the processor's cache


def features(steps: Steps, t: Floats, max_price: Floats) -> Narrow:
    """One row a question, one column a name."""
    if not t.size:
        return np.empty((0, len(NAMES)), np.float32)
    past = _Past(steps, t)
    parts = (slice(i, i + _AT_ONCE) for i in range(0, len(t), _AT_ONCE))
    return np.concatenate([_features(steps, past, t[part], max_price[part]) for part in parts])


def _features(steps: Steps, past: _Past, t: Floats, max_price: Floats) -> Narrow:
    at = steps.index(t)
    price, most = steps.logs[at], np.log(max_price)
    changes_1h, rises_1h, moved_1h = steps.changes(t - HOUR, t)
    changes_6h = steps.changes(t - 6 * HOUR, t)[0]
    changes_1d, _, moved_1d = steps.changes(t - DAY, t)
    moved_hourly = moved_1d / np.clip((t - steps.start) / HOUR, 1.0, 24.0)
    mean_1h, mean_6h, mean_1d, mean_7d = (np.log(steps.mean(t - s, t)) for s in (HOUR, 6 * HOUR, DAY, 7 * DAY))
    columns = [
        most - price,
        (most - price) / (moved_hourly + 0.01),
        *(most - np.log(steps.highest(t - s, t)) for s in (HOUR, 6 * HOUR, DAY, 7 * DAY)),
        most - mean_1d,
        np.minimum(steps.seconds_since_above(max_price, t), 7 * DAY),
        *past.exceeded(t, price.astype(np.float32), most.astype(np.float32)),
        price - mean_1h,
        price - mean_6h,
        price - mean_1d,
        price - mean_7d,
        changes_1h,
        changes_6h,
        changes_1d,
        rises_1h,
        moved_1h,
        moved_hourly,
        t - steps.times[at],
        price - steps.logs[np.maximum(at - 1, 0)],
        np.floor(t % DAY / HOUR),
    ]
    return np.stack([column.astype(np.float32) for column in columns], axis=1)


class _Past:
    """Moments whose following hour is over: from how many of them was this maximum price exceeded?"""

    def __init__(self, steps: Steps, t: Floats) -> None:
        first = max(np.floor(t.min() / _GRID) - _DAYS[-1, 0] - 2, np.ceil(steps.start / _GRID))
        self._before = round(first) - 1  # stands for all that was before the series, or before any question
        over = max(round(np.floor(t.max() / _GRID)) - _HOUR, self._before)  # the last whose hour is
        moments = np.arange(self._before, over + 1) * _GRID
        now = steps.price(moments)
        self._price: Narrow = np.log(now).astype(np.float32)
        self._highest: Narrow = np.log(np.maximum(steps.highest_after(moments, HOUR), now)).astype(np.float32)

    def exceeded(self, t: Floats, price: Narrow, most: Narrow) -> list[Narrow]:
        """Shares of the moments before `t`, in pairs: above the maximum, and by its ratio to the price then."""
        above, by_ratio, known, away = self._look(t, _WEEK, price, most)
        # What is near follows the market: a third of the usual distance from the present price.
        reach = (away * known).sum(axis=1) / np.maximum(known.sum(axis=1), 1.0) / 3.0 + 0.005
        near = known / (1.0 + np.square(away / reach[:, None]))
        day = np.s_[:, : (_DAY - _HOUR) // (_HOUR // 2)]
        shares = [_shares(above[day], by_ratio[day], known[day])]
        shares += [_shares(above, by_ratio, known), _shares(above, by_ratio, near)]
        above, by_ratio, known, _ = self._look(t, _AT_THIS_TIME, price, most)
        two = np.s_[:, : 2 * len(_AT_THIS_TIME) // len(_DAYS)]
        shares += [_shares(above[two], by_ratio[two], known[two]), _shares(above, by_ratio, known)]
        return [one for both in shares for one in both]

    def _look(
        self, t: Floats, ago: NDArray[np.int64], price: Narrow, most: Narrow
    ) -> tuple[Narrow, Narrow, Narrow, Narrow]:
        """At the moments so long ago: exceeded or not, by ratio or not, known or not, and the price's distance."""
        place = (np.floor(t / _GRID).astype(np.int32) - np.int32(self._before))[:, None] - ago.astype(np.int32)
        known = place > 0
        np.maximum(place, 0, out=place)
        then, highest = self._price[place], self._highest[place]
        above = (highest > most[:, None]) & known
        by_ratio = (highest - then > (most - price)[:, None]) & known
        away = np.abs(then - price[:, None])
        return above.astype(np.float32), by_ratio.astype(np.float32), known.astype(np.float32), away


def _shares(above: Narrow, by_ratio: Narrow, weights: Narrow) -> tuple[Narrow, Narrow]:
    """Weighted; as if one more moment had been a tenth of a revocation, since none seen is no certainty."""
    among = weights.sum(axis=1) + np.float32(1.0)
    return (
        (np.einsum("ij,ij->i", above, weights) + np.float32(0.1)) / among,
        (np.einsum("ij,ij->i", by_ratio, weights) + np.float32(0.1)) / among,
    )
