"""The features of the default revocation model.

They are computed from prices up to the time of the query only. Each feature that depends on the maximum price only
rises or only falls with it. Trees that are monotone in these features are therefore monotone in the maximum price.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from thriftune.market.revocation.price_curve import DAY, HOUR, Floats, PriceCurve

Float32s = NDArray[np.float32]

# Features that depend on the maximum price: 1 if a larger value makes a revocation likelier, -1 if less likely.
_PRICE_DIRECTIONS = {
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
_TIME_FEATURES = (
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
NAMES = (*_PRICE_DIRECTIONS, *_TIME_FEATURES)
DIRECTIONS: NDArray[np.int8] = np.array([*_PRICE_DIRECTIONS.values(), *([0] * len(_TIME_FEATURES))], np.int8)

# The past is sampled at grid points. Each has its price and the highest price of the hour that followed it.
_GRID_SECONDS = 300.0
_HOUR, _DAY = round(HOUR / _GRID_SECONDS), round(DAY / _GRID_SECONDS)  # in grid points
# Grid points before the query: half-hourly over a week, beginning with the last one whose next hour is over.
_PAST_WEEK = np.arange(_HOUR, 7 * _DAY, _HOUR // 2)
_PAST_DAYS = np.arange(1, 8)[:, None] * _DAY
_SAME_TIME_OF_DAY = (_PAST_DAYS + np.arange(-2, 3)).ravel()
_BATCH_QUERIES = 2048  # their past fits in the processor's cache


def features(curve: PriceCurve, t: Floats, max_price: Floats) -> Float32s:
    """Return one row per query and one column per name in `NAMES`."""
    if not t.size:
        return np.empty((0, len(NAMES)), np.float32)
    past = _EarlierPrices(curve, t)
    batches = (slice(i, i + _BATCH_QUERIES) for i in range(0, len(t), _BATCH_QUERIES))
    return np.concatenate([_features(curve, past, t[batch], max_price[batch]) for batch in batches])


def _features(curve: PriceCurve, past: _EarlierPrices, t: Floats, max_price: Floats) -> Float32s:
    """Return the features of one batch of queries, in the order of `NAMES`."""
    at = curve.index(t)
    price, maximum = curve.logs[at], np.log(max_price)
    changes_1h, rises_1h, moves_1h = curve.changes(t - HOUR, t)
    changes_6h = curve.changes(t - 6 * HOUR, t)[0]
    changes_1d, _, moves_1d = curve.changes(t - DAY, t)
    moves_per_hour = moves_1d / np.clip((t - curve.start) / HOUR, 1.0, 24.0)
    mean_1h, mean_6h, mean_1d, mean_7d = (np.log(curve.mean(t - s, t)) for s in (HOUR, 6 * HOUR, DAY, 7 * DAY))
    columns = [
        maximum - price,
        (maximum - price) / (moves_per_hour + 0.01),
        *(maximum - np.log(curve.highest(t - s, t)) for s in (HOUR, 6 * HOUR, DAY, 7 * DAY)),
        maximum - mean_1d,
        np.minimum(curve.seconds_since_above(max_price, t), 7 * DAY),
        *past.exceeded_shares(t, price.astype(np.float32), maximum.astype(np.float32)),
        price - mean_1h,
        price - mean_6h,
        price - mean_1d,
        price - mean_7d,
        changes_1h,
        changes_6h,
        changes_1d,
        rises_1h,
        moves_1h,
        moves_per_hour,
        t - curve.times[at],
        price - curve.logs[np.maximum(at - 1, 0)],
        np.floor(t % DAY / HOUR),
    ]
    return np.stack([column.astype(np.float32) for column in columns], axis=1)


class _EarlierPrices:
    """The prices at grid points before the queries.

    `exceeded_shares` returns how often a maximum price was exceeded there.
    """

    def __init__(self, curve: PriceCurve, t: Floats) -> None:
        first = max(
            np.floor(t.min() / _GRID_SECONDS) - _PAST_DAYS[-1, 0] - 2, np.ceil(curve.start / _GRID_SECONDS)
        )
        # Index 0 stands for all times before the series, and before the past that any query needs.
        self._origin = round(first) - 1
        last = max(round(np.floor(t.max() / _GRID_SECONDS)) - _HOUR, self._origin)  # its next hour is over
        grid = np.arange(self._origin, last + 1) * _GRID_SECONDS
        price = curve.price(grid)
        self._price: Float32s = np.log(price).astype(np.float32)
        self._highest: Float32s = np.log(np.maximum(curve.highest_after(grid, HOUR), price)).astype(np.float32)

    def exceeded_shares(self, t: Floats, price: Float32s, maximum: Float32s) -> list[Float32s]:
        """Return how often the price exceeded the maximum in the past.

        The values are shares of past grid points, in pairs. The first of a pair is the share of points after which
        the price exceeded the maximum. The second is the share after which the price rose by a greater ratio than
        that of the maximum to the present price.
        """
        above, by_ratio, known, distance = self._look_up(t, _PAST_WEEK, price, maximum)
        # Weight grid points by how near their price is to the present one. The scale follows the market: a third
        # of the mean distance.
        scale = (distance * known).sum(axis=1) / np.maximum(known.sum(axis=1), 1.0) / 3.0 + 0.005
        near = known / (1.0 + np.square(distance / scale[:, None]))
        day = np.s_[:, : (_DAY - _HOUR) // (_HOUR // 2)]
        pairs = [_shares(above[day], by_ratio[day], known[day])]
        pairs += [_shares(above, by_ratio, known), _shares(above, by_ratio, near)]
        above, by_ratio, known, _ = self._look_up(t, _SAME_TIME_OF_DAY, price, maximum)
        two_days = np.s_[:, : 2 * len(_SAME_TIME_OF_DAY) // len(_PAST_DAYS)]
        pairs += [_shares(above[two_days], by_ratio[two_days], known[two_days]), _shares(above, by_ratio, known)]
        return [share for pair in pairs for share in pair]

    def _look_up(
        self, t: Floats, points_before: NDArray[np.int64], price: Float32s, maximum: Float32s
    ) -> tuple[Float32s, Float32s, Float32s, Float32s]:
        """Look up the grid points at these offsets before each query.

        Return four arrays by query and grid point. The first three are 0 or 1: whether the maximum was exceeded,
        whether it was exceeded by ratio, and whether the price is known. The fourth is the distance of the log
        price from the present one.
        """
        index = (np.floor(t / _GRID_SECONDS).astype(np.int32) - np.int32(self._origin))[:, None]
        index = index - points_before.astype(np.int32)
        known = index > 0
        np.maximum(index, 0, out=index)
        price_then, highest = self._price[index], self._highest[index]
        above = (highest > maximum[:, None]) & known
        by_ratio = (highest - price_then > (maximum - price)[:, None]) & known
        distance = np.abs(price_then - price[:, None])
        return above.astype(np.float32), by_ratio.astype(np.float32), known.astype(np.float32), distance


def _shares(above: Float32s, by_ratio: Float32s, weights: Float32s) -> tuple[Float32s, Float32s]:
    """Return the weighted shares of exceeded grid points, by price and by ratio.

    They are smoothed by an additional point of weight 1, which counts as exceeded by 0.1. Without it, a share of 0
    would claim that a revocation is impossible.
    """
    total = weights.sum(axis=1) + np.float32(1.0)
    return (
        (np.einsum("ij,ij->i", above, weights) + np.float32(0.1)) / total,
        (np.einsum("ij,ij->i", by_ratio, weights) + np.float32(0.1)) / total,
    )
