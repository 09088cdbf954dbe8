"""How is a model asked thousands of times? From a table of its answers, by time and by margin above the price.

Each answer is for the last full moment of the table before the question, so that nothing is known earlier than it
was; between two margins it is interpolated.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thriftune.errors import SettingError
from thriftune.market.prices import PriceSeries

_MARGINS = (1e-4, 1e-3, 0.01, 0.05, 0.2, 0.5, 1.0, 3.0, 9.0)  # of the price, above it


class Tabulated:
    """What `model` says of the series, every so many seconds from `start` to `end`."""

    def __init__(
        self, model: Any, series: PriceSeries, start: float, end: float, every_seconds: float = 900.0
    ) -> None:
        self._start, self._every = start, every_seconds
        times = np.arange(start, end + every_seconds, every_seconds)
        times = times[times <= series.end]
        if not len(times):
            raise SettingError(f"{series.type} {series.zone}: no price is known from {start:.0f} to {end:.0f}")
        prices = np.asarray(series.price_at(times))
        asked = prices[:, None] * (1.0 + np.array(_MARGINS))
        told = model.probability(series, np.repeat(times, len(_MARGINS)), asked.ravel())
        self._table: list[list[float]] = np.asarray(told).reshape(asked.shape).tolist()
        self._prices: list[float] = prices.tolist()

    def probability(self, series: PriceSeries, t: float, max_price: ArrayLike) -> Any:
        """That the price rises above `max_price` in the hour after `t`; 1 where it is above already."""
        row = int((t - self._start) // self._every)
        if not 0 <= row < len(self._table):
            raise SettingError(f"{series.type} {series.zone}: the table of probabilities does not reach {t:.0f}")
        if isinstance(max_price, float):
            return self._told(row, max_price) if max_price >= series.price_at(t) else 1.0
        most = np.asarray(max_price, dtype=float)
        told = [self._told(row, each) for each in most.ravel().tolist()]
        return np.where(most < series.price_at(t), 1.0, np.reshape(told, most.shape))

    def _told(self, row: int, max_price: float) -> float:
        margin = math.log(max(max_price / self._prices[row] - 1.0, _MARGINS[0]))
        answers = self._table[row]
        if margin >= _LOG_MARGINS[-1]:
            return answers[-1]
        right = max(1, bisect_left(_LOG_MARGINS, margin))
        low, high = _LOG_MARGINS[right - 1], _LOG_MARGINS[right]
        return answers[right - 1] + (answers[right] - answers[right - 1]) * (margin - low) / (high - low)


_LOG_MARGINS = [math.log(margin) for margin in _MARGINS]
