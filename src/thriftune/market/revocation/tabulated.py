"""How is a model asked thousands of times? From a table of its answers, by time and by margin above the price.

Each answer is for the last full moment of the table before the question, so that nothing is known earlier than it
was; between two margins it is interpolated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thriftune.errors import SettingError
from thriftune.market.prices import PriceSeries

_MARGINS = np.array([1e-4, 1e-3, 0.01, 0.05, 0.2, 0.5, 1.0, 3.0, 9.0])  # of the price, above it


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
        asked = prices[:, None] * (1.0 + _MARGINS)
        told = model.probability(series, np.repeat(times, len(_MARGINS)), asked.ravel())
        self._table: NDArray[np.float64] = np.asarray(told).reshape(asked.shape)
        self._prices = prices

    def probability(self, series: PriceSeries, t: float, max_price: ArrayLike) -> Any:
        """That the price rises above `max_price` in the hour after `t`; 1 where it is above already."""
        row = int((t - self._start) // self._every)
        if not 0 <= row < len(self._table):
            raise SettingError(f"{series.type} {series.zone}: the table of probabilities does not reach {t:.0f}")
        most = np.asarray(max_price, dtype=float)
        price = float(series.price_at(t))
        margins = np.log(np.maximum(most / self._prices[row] - 1.0, _MARGINS[0]))
        told = np.interp(margins, _LOG_MARGINS, self._table[row])
        found = np.where(most < price, 1.0, told)
        return found if most.ndim else float(found)


_LOG_MARGINS = np.log(_MARGINS)
