"""How far apart are two profiles? Each is what counters averaged a second, over one step of some work.

Counters span ten orders of magnitude, so they are compared by their logarithms: what counts is by which factor two
pieces of work differ. Two allowances keep noise from passing for a difference. Below some rate nothing of a
counter is worth noticing, be it a page read now and then or a handful of system calls. And the same work measured
twice differs by some factor anyway, most of all in what others on the machine do to it. Some counters are left
out: whether a file was in memory already says nothing of who reads it, and no event is to count twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_NEGLIGIBLE = {"_seconds": 0.1, "_bytes": 1e6}  # a second, by the unit at the end of a counter's name
_NEGLIGIBLE_EVENTS = 100.0  # a second, of all others
_NOISE = 0.2  # of the logarithm, from one measurement of the same work to the next
_NOISE_BY_OTHERS = 1.0  # of what depends on who else is busy
_BY_OTHERS = ("pressure", "delay", "switches", "migrations")
_FROM_DISK = ("blocks_in", "disk_read_bytes", "major_faults", "page_faults_major")
# By getrusage, too.
_COUNTED_TWICE = ("page_faults", "page_faults_minor", "task_clock_seconds", "context_switches")
_LEFT_OUT = frozenset([*_FROM_DISK, *_COUNTED_TWICE])
_NOTICEABLE = math.log1p(1.0)  # the logarithm of a rate that is just not negligible


@dataclass(frozen=True, slots=True)
class Profiles:
    """Some profiles as a table: `rows` of logarithms, with NaN where one has no such counter."""

    counters: Sequence[str]
    negligible: Floats  # by counter: a second
    noise: Floats  # by counter: of the logarithm
    rows: Floats

    @classmethod
    def of(cls, profiles: Sequence[Mapping[str, float]]) -> Profiles:
        import numpy as np

        counters = sorted({counter for profile in profiles for counter in profile} - _LEFT_OUT)
        negligible = np.array([_negligible(counter) for counter in counters])
        noise = np.array([_noise(counter) for counter in counters])
        return cls(counters, negligible, noise, _logarithms(profiles, counters, negligible))

    def row(self, profile: Mapping[str, float]) -> Floats:
        """Another profile's, as far as it has the same counters."""
        row: Floats = _logarithms([profile], self.counters, self.negligible)[0]
        return row

    def distances(self, row: Floats) -> Floats:
        """From a row to each of these.

        1 is what noise makes of it: the root of the mean square, over the counters that both have and that are not
        negligible in both, of the difference in units of what is usual between two measurements of the same work.
        Infinite where they have no counter in common.
        """
        import numpy as np

        apart = (self.rows - row) / (math.sqrt(2.0) * self.noise)
        there = np.isfinite(apart)
        noticeable = there & ((np.abs(self.rows) >= _NOTICEABLE) | (np.abs(row) >= _NOTICEABLE))
        squares = np.where(noticeable, apart, 0.0) ** 2
        means = squares.sum(1) / np.maximum(noticeable.sum(1), 1)
        distances: Floats = np.where(there.any(1), np.sqrt(means), np.inf)
        return distances


def _logarithms(profiles: Sequence[Mapping[str, float]], counters: Sequence[str], negligible: Floats) -> Floats:
    """Nearly straight up to what is negligible, logarithmic beyond. What is not finite is as good as missing."""
    import numpy as np

    rates = np.array([[profile.get(counter, np.nan) for counter in counters] for profile in profiles], dtype=float)
    rates[~np.isfinite(rates)] = np.nan
    logarithms: Floats = np.sign(rates) * np.log1p(np.abs(rates) / negligible)
    return logarithms


def _negligible(counter: str) -> float:
    return next((rate for unit, rate in _NEGLIGIBLE.items() if counter.endswith(unit)), _NEGLIGIBLE_EVENTS)


def _noise(counter: str) -> float:
    return _NOISE_BY_OTHERS if any(word in counter for word in _BY_OTHERS) else _NOISE
