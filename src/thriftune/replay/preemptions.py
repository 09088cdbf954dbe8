"""Models of when a simulated cloud has machines and when it preempts them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from thriftune.errors import SettingError
from thriftune.market.price_history import PriceSeries
from thriftune.market.survival import LifetimeSampler, Survival


class Preemptions(Protocol):
    """The availability and preemptions of the machines of one kind, known to the simulated cloud only."""

    def available(self, now: float, max_price: float | None) -> int | None:
        """Return how many machines can be held now; None for no limit."""
        ...

    def preempted_at(self, number: int, position: int, start: float, max_price: float | None) -> float:
        """Return when a machine that was handed over at `start` is preempted; inf for never.

        `number`: counts all machines ever rented. `position`: the machine's position among those held at the same
        time, from 1. A new machine gets the lowest free position.
        """
        ...


@dataclass(frozen=True)
class NoPreemptions:
    """Machines that are always available and never preempted."""

    def available(self, now: float, max_price: float | None) -> int | None:  # noqa: ARG002 (the protocol's)
        return None

    def preempted_at(self, number: int, position: int, start: float, max_price: float | None) -> float:  # noqa: ARG002
        return math.inf


@dataclass(frozen=True)
class PricePreemptions:
    """Machines that are preempted, and not available, while the market price exceeds their maximum price."""

    series: PriceSeries

    def available(self, now: float, max_price: float | None) -> int | None:
        return 0 if self._limit(max_price) < self.series.price_at(now) else None

    def preempted_at(self, number: int, position: int, start: float, max_price: float | None) -> float:  # noqa: ARG002
        return float(self.series.next_above(self._limit(max_price), start))

    def _limit(self, max_price: float | None) -> float:
        return math.inf if max_price is None else max_price


class LifetimePreemptions:
    """Machines that are preempted after a lifetime drawn at random for each of them."""

    def __init__(self, survival: Survival, seed: int = 0) -> None:
        self._lifetimes, self._seed = LifetimeSampler(survival), seed

    def available(self, now: float, max_price: float | None) -> int | None:  # noqa: ARG002 (the protocol's)
        return None

    def preempted_at(self, number: int, position: int, start: float, max_price: float | None) -> float:  # noqa: ARG002
        quantile = np.random.default_rng((self._seed, number)).random()
        return start + 3600.0 * float(self._lifetimes.hours_at(quantile))


class AvailabilityPreemptions:
    """Machines that are preempted when fewer are available than are held.

    `counts[i]` machines are available from `times[i]` until `times[i + 1]`, the last count until `end`.
    """

    def __init__(self, times: ArrayLike, counts: ArrayLike, end: float) -> None:
        self.times, self.counts = np.asarray(times, dtype=float), np.asarray(counts, dtype=int)
        self.end = end
        if self.times.ndim != 1 or self.times.shape != self.counts.shape or not len(self.times):
            raise SettingError("availability: give a count for each time, at least one")
        if not (np.diff(self.times) > 0.0).all() or not self.times[-1] < end < math.inf:
            raise SettingError("availability: the times must increase, and the end must come after the last one")
        if (self.counts < 0).any():
            raise SettingError(f"availability: a count is {self.counts.min()}; it cannot be below zero")

    def available(self, now: float, max_price: float | None) -> int | None:  # noqa: ARG002 (the protocol's)
        return int(self.counts[self._row(now)])

    def preempted_at(self, number: int, position: int, start: float, max_price: float | None) -> float:  # noqa: ARG002
        row = self._row(start)
        too_few = np.flatnonzero(self.counts[row:] < position)
        if not len(too_few):
            return math.inf
        return float(max(start, self.times[row + too_few[0]]))

    def _row(self, now: float) -> int:
        if not self.times[0] <= now <= self.end:
            raise SettingError(
                f"availability: unknown at {now:.0f}; the record goes from {self.times[0]:.0f} to {self.end:.0f}"
            )
        return int(np.searchsorted(self.times, now, side="right")) - 1
