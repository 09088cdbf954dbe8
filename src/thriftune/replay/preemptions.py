"""When is a machine taken away? What a simulated cloud knows and nobody else does."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from thriftune.errors import SettingError
from thriftune.market.prices import PriceSeries
from thriftune.market.survival import LifetimeSampler, Survival


class Fate(Protocol):
    """Of the machines of one kind."""

    def room(self, now: float, max_price: float | None) -> int | None:
        """How many there can be now; None: as many as are wanted."""
        ...

    def end(self, number: int, seat: int, start: float, max_price: float | None) -> float:
        """When the machine of that number is taken away, which was handed over at `start`; inf: never.

        `seat`: machines that are there at the same time have different ones, the lowest that were free, from 1.
        """
        ...


@dataclass(frozen=True)
class Lasting:
    """Never."""

    def room(self, now: float, max_price: float | None) -> int | None:  # noqa: ARG002 (the protocol's)
        return None

    def end(self, number: int, seat: int, start: float, max_price: float | None) -> float:  # noqa: ARG002
        return math.inf


@dataclass(frozen=True)
class AbovePrice:
    """When the price passes its maximum price; while it is above, there is none to be had."""

    series: PriceSeries

    def room(self, now: float, max_price: float | None) -> int | None:
        return 0 if self._limit(max_price) < self.series.price_at(now) else None

    def end(self, number: int, seat: int, start: float, max_price: float | None) -> float:  # noqa: ARG002
        return float(self.series.next_above(self._limit(max_price), start))

    def _limit(self, max_price: float | None) -> float:
        return math.inf if max_price is None else max_price


class Drawn:
    """After a life that is drawn for it."""

    def __init__(self, survival: Survival, seed: int = 0) -> None:
        self._lives, self._seed = LifetimeSampler(survival), seed

    def room(self, now: float, max_price: float | None) -> int | None:  # noqa: ARG002 (the protocol's)
        return None

    def end(self, number: int, seat: int, start: float, max_price: float | None) -> float:  # noqa: ARG002
        drawn = np.random.default_rng((self._seed, number)).random()
        return start + 3600.0 * float(self._lives.hours_at(drawn))


class Available:
    """When there are fewer to be had than are held: `counts[i]` from `times[i]` on, until `end`."""

    def __init__(self, times: ArrayLike, counts: ArrayLike, end: float) -> None:
        self.times, self.counts = np.asarray(times, dtype=float), np.asarray(counts, dtype=int)
        self.until = end
        if self.times.ndim != 1 or self.times.shape != self.counts.shape or not len(self.times):
            raise SettingError("availability: give a count for each time, at least one")
        if not (np.diff(self.times) > 0.0).all() or not self.times[-1] < end < math.inf:
            raise SettingError("availability: its times must rise, and end after the last of them")
        if (self.counts < 0).any():
            raise SettingError(f"availability: a count is {self.counts.min()}; it cannot be below zero")

    def room(self, now: float, max_price: float | None) -> int | None:  # noqa: ARG002 (the protocol's)
        return int(self.counts[self._row(now)])

    def end(self, number: int, seat: int, start: float, max_price: float | None) -> float:  # noqa: ARG002
        row = self._row(start)
        fewer = np.flatnonzero(self.counts[row:] < seat)
        if not len(fewer):
            return math.inf
        return float(max(start, self.times[row + fewer[0]]))

    def _row(self, now: float) -> int:
        if not self.times[0] <= now <= self.until:
            raise SettingError(
                f"availability: nothing is known at {now:.0f}; the record goes from {self.times[0]:.0f} to "
                f"{self.until:.0f}"
            )
        return int(np.searchsorted(self.times, now, side="right")) - 1
