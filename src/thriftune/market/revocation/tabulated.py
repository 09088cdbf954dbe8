"""A table of a revocation model's probabilities.

Policies that query a model thousands of times use it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thriftune.errors import SettingError
from thriftune.market.price_history import PriceSeries

# The maximum prices in the table: how far each is above the price, as a share of the price.
_MARGINS = (1e-4, 1e-3, 0.01, 0.05, 0.2, 0.5, 1.0, 3.0, 9.0)
_LOG_MARGINS = [math.log(margin) for margin in _MARGINS]


class TabulatedModel:
    """The probabilities of a revocation model for one series, in a table.

    It has a row every `every_seconds` from `start` to `end`. A query is answered from the latest row at or before
    its time, so it never uses later prices. Between two margins the probability is interpolated.
    """

    def __init__(
        self, model: Any, series: PriceSeries, start: float, end: float, every_seconds: float = 900.0
    ) -> None:
        self._start, self._every_seconds = start, every_seconds
        times = np.arange(start, end + every_seconds, every_seconds)
        times = times[times <= series.end]
        if not len(times):
            raise SettingError(f"{series.type} {series.zone}: no price is known from {start:.0f} to {end:.0f}")
        prices = np.asarray(series.price_at(times))
        max_prices = prices[:, None] * (1.0 + np.array(_MARGINS))
        probabilities = model.probability(series, np.repeat(times, len(_MARGINS)), max_prices.ravel())
        self._table: list[list[float]] = np.asarray(probabilities).reshape(max_prices.shape).tolist()
        self._prices: list[float] = prices.tolist()

    def probability(self, series: PriceSeries, t: float, max_price: ArrayLike) -> Any:
        """Return the probability of a preemption in the hour after `t`.

        A machine is preempted when the price rises above `max_price`. The probability is 1 where the price is
        already above.
        """
        row = int((t - self._start) // self._every_seconds)
        if not 0 <= row < len(self._table):
            raise SettingError(f"{series.type} {series.zone}: the table of probabilities does not reach {t:.0f}")
        if isinstance(max_price, float):
            return self._interpolated(row, max_price) if max_price >= series.price_at(t) else 1.0
        max_prices = np.asarray(max_price, dtype=float)
        probabilities = [self._interpolated(row, one) for one in max_prices.ravel().tolist()]
        return np.where(max_prices < series.price_at(t), 1.0, np.reshape(probabilities, max_prices.shape))

    def _interpolated(self, row: int, max_price: float) -> float:
        """Return the probability in a row of the table, interpolated between margins."""
        margin = math.log(max(max_price / self._prices[row] - 1.0, _MARGINS[0]))
        probabilities = self._table[row]
        if margin >= _LOG_MARGINS[-1]:
            return probabilities[-1]
        right = max(1, bisect_left(_LOG_MARGINS, margin))
        low, high = _LOG_MARGINS[right - 1], _LOG_MARGINS[right]
        below, above = probabilities[right - 1], probabilities[right]
        return below + (above - below) * (margin - low) / (high - low)
