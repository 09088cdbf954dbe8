"""A price series indexed for fast queries at many times."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thriftune.errors import SettingError

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

HOUR, DAY = 3600.0, 86400.0  # seconds


class Series(Protocol):
    """The prices of one market.

    The price is `prices[i]` dollars per hour from `times[i]` (unix seconds, rising) on.
    """

    @property
    def times(self) -> Any: ...
    @property
    def prices(self) -> Any: ...
    @property
    def end(self) -> float: ...


class PriceCurve:
    """The step function of a price series.

    Its integral and its range maxima are computed in advance.
    """

    def __init__(self, series: Series) -> None:
        if not hasattr(series, "times"):
            raise SettingError(f"revocation: {series!r} is not one market's prices; give history[type, zone]")
        self.times: Floats = np.asarray(series.times, float)
        self.prices: Floats = np.asarray(series.prices, float)
        if not len(self.times):
            raise SettingError("revocation: the price series is empty; give one with prices")
        self.start, self.end = float(self.times[0]), max(float(series.end), float(self.times[-1]))
        if not self.prices.min() > 0.0:
            raise SettingError(f"revocation: a price of {self.prices.min():g}; prices must be above 0")
        self.logs: Floats = np.log(self.prices)
        self._integral = _integral(self.times, self.prices)
        # Cumulative sums over the rows: the absolute moves of the log price, and the number of rises.
        self._moves: Floats = np.cumsum(np.abs(np.diff(self.logs, prepend=self.logs[0])))
        self._rises: Floats = np.cumsum(np.diff(self.prices, prepend=self.prices[0]) > 0.0).astype(float)
        # _maxima[k, i] is the maximum of the 2^k prices from i on, or of all from i on if there are fewer.
        self._maxima: Floats = np.tile(self.prices, (len(self.prices).bit_length(), 1))
        for power, (shorter, longer) in enumerate(pairwise(self._maxima)):
            np.maximum(shorter[: -(2**power)], shorter[2**power :], out=longer[: -(2**power)])
            longer[-(2**power) :] = shorter[-(2**power) :]

    def index(self, t: ArrayLike) -> Indices:
        """Return the index of the price at `t`; 0 before the series begins."""
        return np.maximum(np.searchsorted(self.times, t, side="right") - 1, 0)

    def price(self, t: ArrayLike) -> Floats:
        return self.prices[self.index(t)]

    def mean(self, t0: Floats, t1: Floats) -> Floats:
        """Return the mean price over [t0, t1], without the part before the series begins."""
        t0 = np.maximum(t0, self.start)
        area = self._area_until(t1) - self._area_until(t0)
        return np.where(t1 > t0, area / np.maximum(t1 - t0, 1e-9), self.price(t1))

    def highest(self, t0: Floats, t1: Floats) -> Floats:
        """Return the highest price at any time in [t0, t1]."""
        return self._highest_between(self.index(t0), self.index(t1))

    def highest_after(self, t: Floats, seconds: float) -> Floats:
        """Return the highest price set in (t, t + seconds], or -inf if none was set."""
        first, last = self.index(t) + 1, self.index(t + seconds)
        highest = self._highest_between(np.minimum(first, last), last)
        return np.where(first <= last, highest, -np.inf)

    def changes(self, t0: Floats, t1: Floats) -> tuple[Floats, Floats, Floats]:
        """Return statistics of the price changes in (t0, t1].

        They are the number of new prices, the number of rises, and the summed absolute moves of the log price.
        """
        first, last = self.index(t0), self.index(t1)
        moves = self._moves[last] - self._moves[first]
        return (last - first).astype(float), self._rises[last] - self._rises[first], moves

    def seconds_since_above(self, max_price: Floats, t: Floats) -> Floats:
        """Return the seconds since the price was last above `max_price`.

        The result is 0 where the price is above `max_price` at `t`. Where it never was above, the result is the
        time since the start of the series.
        """
        at = self.index(t)
        after = at + 1  # no price in [after, at] is above
        for power in range(len(self._maxima) - 1, -1, -1):
            before = after - 2**power
            low = before >= 0
            low &= self._maxima[power, np.where(low, before, 0)] <= max_price
            after = np.where(low, before, after)
        return np.where(after > at, 0.0, t - self.times[np.minimum(after, at)])

    def _highest_between(self, first: Indices, last: Indices) -> Floats:
        """Return the maximum of the prices first..last, both included."""
        power = np.frexp(last - first + 1)[1] - 1
        highest: Floats = np.maximum(self._maxima[power, first], self._maxima[power, last - (1 << power) + 1])
        return highest

    def _area_until(self, t: Floats) -> Floats:
        at = self.index(t)
        return self._integral[at] + self.prices[at] * (t - self.times[at])


def _integral(times: Floats, prices: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(prices[:-1] * np.diff(times))])


def flat_queries(curve: PriceCurve, t: ArrayLike, max_price: ArrayLike) -> tuple[Floats, Floats, tuple[int, ...]]:
    """Check `t` and `max_price`, broadcast and flatten them.

    Return both as flat arrays, and the shape of the result.
    """
    times, max_prices = np.broadcast_arrays(np.asarray(t, float), np.asarray(max_price, float))
    if times.size and not times.min() >= curve.start:
        raise SettingError(f"revocation: t {times.min():.0f} is before the first price at {curve.start:.0f}")
    if max_prices.size and not max_prices.min() > 0.0:
        raise SettingError(f"revocation: max_price {max_prices.min():g} must be above 0 dollars per hour")
    return times.ravel(), max_prices.ravel(), times.shape


def revoked(curve: PriceCurve, t: Floats, max_price: Floats, seconds: float = HOUR) -> NDArray[np.bool_]:
    """Return whether the price rose above `max_price` in (t, t + seconds].

    Models are fitted to these labels.
    """
    return curve.highest_after(t, seconds) > max_price


def shaped_answer(
    curve: PriceCurve, t: Floats, max_price: Floats, probability: Floats, shape: tuple[int, ...]
) -> float | Floats:
    """Return the probabilities in the queries' shape.

    A single query gives a float. The probability is 1 where the price is already above the maximum, and 0 for an
    infinite maximum.
    """
    probability = np.where(curve.price(t) > max_price, 1.0, np.where(np.isinf(max_price), 0.0, probability))
    return probability.reshape(shape) if shape else float(probability[0])
