"""What did the price do, and when was it above a maximum? Questions to a step function, many at once."""

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
    """The prices of one market: `prices[i]` dollars an hour holds from `times[i]` (unix seconds, rising) on."""

    @property
    def times(self) -> Any: ...
    @property
    def prices(self) -> Any: ...
    @property
    def end(self) -> float: ...


class Steps:
    """The series with what makes questions about it fast: its integral and the maxima of runs of 2^k prices."""

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
        turns = np.abs(np.diff(self.logs, prepend=self.logs[0]))
        self._turns: Floats = np.cumsum(turns)  # how far the logarithm has moved in all
        self._rises: Floats = np.cumsum(np.diff(self.prices, prepend=self.prices[0]) > 0.0).astype(float)
        # [k, i]: of the 2^k prices from i on, where there are so many; else of those that there are.
        self._maxima: Floats = np.tile(self.prices, (len(self.prices).bit_length(), 1))
        for power, (fewer, more) in enumerate(pairwise(self._maxima)):
            np.maximum(fewer[: -(2**power)], fewer[2**power :], out=more[: -(2**power)])
            more[-(2**power) :] = fewer[-(2**power) :]

    def index(self, t: ArrayLike) -> Indices:
        """Which price holds at `t`; the first one before the series begins."""
        return np.maximum(np.searchsorted(self.times, t, side="right") - 1, 0)

    def price(self, t: ArrayLike) -> Floats:
        return self.prices[self.index(t)]

    def mean(self, t0: Floats, t1: Floats) -> Floats:
        """Over [t0, t1], the part before the series left out."""
        t0 = np.maximum(t0, self.start)
        whole = self._until(t1) - self._until(t0)
        return np.where(t1 > t0, whole / np.maximum(t1 - t0, 1e-9), self.price(t1))

    def highest(self, t0: Floats, t1: Floats) -> Floats:
        """The highest price at any time in [t0, t1]."""
        return self._highest_between(self.index(t0), self.index(t1))

    def highest_after(self, t: Floats, seconds: float) -> Floats:
        """The highest price set in (t, t + seconds]; minus infinity where none was set."""
        first, last = self.index(t) + 1, self.index(t + seconds)
        found = self._highest_between(np.minimum(first, last), last)
        return np.where(first <= last, found, -np.inf)

    def changes(self, t0: Floats, t1: Floats) -> tuple[Floats, Floats, Floats]:
        """In (t0, t1]: the number of new prices, of rises, and how far the log price moved in all."""
        first, last = self.index(t0), self.index(t1)
        moved = self._turns[last] - self._turns[first]
        return (last - first).astype(float), self._rises[last] - self._rises[first], moved

    def seconds_since_above(self, max_price: Floats, t: Floats) -> Floats:
        """Since the price was last above; 0 where it is, the time since the start where it never was."""
        at = self.index(t)
        after = at + 1  # every price in [after, at] is not above
        for power in range(len(self._maxima) - 1, -1, -1):
            before = after - 2**power
            low = before >= 0
            low &= self._maxima[power, np.where(low, before, 0)] <= max_price
            after = np.where(low, before, after)
        return np.where(after > at, 0.0, t - self.times[np.minimum(after, at)])

    def _highest_between(self, first: Indices, last: Indices) -> Floats:
        """Of the prices first..last, both included."""
        power = np.frexp(last - first + 1)[1] - 1
        found: Floats = np.maximum(self._maxima[power, first], self._maxima[power, last - (1 << power) + 1])
        return found

    def _until(self, t: Floats) -> Floats:
        at = self.index(t)
        return self._integral[at] + self.prices[at] * (t - self.times[at])


def _integral(times: Floats, prices: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(prices[:-1] * np.diff(times))])


def questions(steps: Steps, t: ArrayLike, max_price: ArrayLike) -> tuple[Floats, Floats, tuple[int, ...]]:
    """`t` and `max_price` made flat, of one length and checked, and the shape that the answer should have."""
    when, most = np.broadcast_arrays(np.asarray(t, float), np.asarray(max_price, float))
    if when.size and not when.min() >= steps.start:
        raise SettingError(f"revocation: t {when.min():.0f} is before the first price at {steps.start:.0f}")
    if most.size and not most.min() > 0.0:
        raise SettingError(f"revocation: max_price {most.min():g} must be above 0 dollars an hour")
    return when.ravel(), most.ravel(), when.shape


def revoked(steps: Steps, t: Floats, max_price: Floats, seconds: float = HOUR) -> NDArray[np.bool_]:
    """Whether the price rose above `max_price` in (t, t + seconds]; the truth that models are fitted to."""
    return steps.highest_after(t, seconds) > max_price


def answer(steps: Steps, t: Floats, max_price: Floats, told: Floats, shape: tuple[int, ...]) -> float | Floats:
    """The probabilities in the shape asked for, a float for floats; where the price is above already, it is 1,
    and without a maximum 0."""
    told = np.where(steps.price(t) > max_price, 1.0, np.where(np.isinf(max_price), 0.0, told))
    return told.reshape(shape) if shape else float(told[0])
