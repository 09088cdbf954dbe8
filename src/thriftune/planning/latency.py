"""The time that a provider takes, constant or fitted to recorded times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from thriftune.common.checks import check_number
from thriftune.errors import SettingError

Floats = NDArray[np.float64]

_GRID = (np.arange(2000) + 0.5) / 2000
"""Quantiles over which expectations are integrated, by the midpoint rule."""


@dataclass(frozen=True, slots=True)
class Latency:
    """A lognormal waiting time, which is never negative and sometimes long.

    With a `std` of 0 it is constant.
    """

    mean: float  # seconds
    std: float = 0.0

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            check_number(f"latency: {name}", getattr(self, name))
        if self.std and not self.mean:
            raise SettingError(f"latency: std {self.std:g} needs a mean above 0")

    @classmethod
    def fit(cls, seconds: Sequence[float]) -> Latency:
        """Return the latency that is most likely, given recorded seconds."""
        try:
            recorded = np.asarray(seconds, dtype=float)
        except (TypeError, ValueError):
            raise SettingError(
                f"latency: {seconds!r} must be a number of seconds, or a list of recorded seconds"
            ) from None
        if recorded.ndim != 1 or len(recorded) < 2 or not (np.isfinite(recorded) & (recorded > 0.0)).all():
            raise SettingError("latency: give at least two recorded times in seconds, each above 0")
        logs = np.log(recorded)
        center, spread = float(logs.mean()), float(logs.var())
        mean = math.exp(center + spread / 2.0)
        return cls(mean, mean * math.sqrt(math.expm1(spread)))

    @classmethod
    def of(cls, value: float | Sequence[float] | Latency) -> Latency:
        """Return a constant latency for a number, a fitted one for a sequence.

        The sequence has recorded seconds. A Latency is returned as it is.
        """
        if isinstance(value, Latency):
            return value
        return cls(value) if isinstance(value, (int, float)) else cls.fit(value)

    def quantile(self, probability: Any) -> Any:
        """Return the seconds that the latency stays below with this probability."""
        if not self.std:
            return np.full(np.shape(probability), self.mean)
        spread = math.log1p((self.std / self.mean) ** 2)
        return self.mean * np.exp(math.sqrt(spread) * ndtri(probability) - spread / 2.0)

    def mean_of_longest(self, count: NDArray[np.int_]) -> Floats:
        """Return the expected longest of `count` latencies, elementwise.

        The result is 0 for a count of 0.
        """
        if not self.std:
            return np.where(count > 0, self.mean, 0.0)
        numbers, inverse = np.unique(count, return_inverse=True)
        means = [self.quantile(_GRID ** (1.0 / n)).mean() if n > 1 else self.mean * n for n in numbers.tolist()]
        return np.array(means)[inverse].reshape(np.shape(count))

    def sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
        return np.asarray(self.quantile(rng.random(shape)))
