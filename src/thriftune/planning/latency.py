"""How long does the provider take? A number of seconds, or a distribution that was fitted to what was seen."""

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

_PARTS = (np.arange(2000) + 0.5) / 2000


@dataclass(frozen=True, slots=True)
class Latency:
    """Lognormal, which is what waiting for machines looks like: never below 0, and now and then long."""

    mean: float  # seconds
    std: float = 0.0

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            check_number(f"latency: {name}", getattr(self, name))
        if self.std and not self.mean:
            raise SettingError(f"latency: std {self.std:g} needs a mean above 0")

    @classmethod
    def fit(cls, seconds: Sequence[float]) -> Latency:
        """To recorded ones, by likelihood."""
        try:
            told = np.asarray(seconds, dtype=float)
        except (TypeError, ValueError):
            raise SettingError(f"latency: {seconds!r} must be a number of seconds, or recorded ones") from None
        if told.ndim != 1 or len(told) < 2 or not (np.isfinite(told) & (told > 0.0)).all():
            raise SettingError("latency: needs two or more recorded seconds, each above 0")
        logs = np.log(told)
        center, spread = float(logs.mean()), float(logs.var())
        mean = math.exp(center + spread / 2.0)
        return cls(mean, mean * math.sqrt(math.expm1(spread)))

    @classmethod
    def of(cls, given: float | Sequence[float] | Latency) -> Latency:
        """A number is constant; several are recorded ones, which a distribution is fitted to."""
        if isinstance(given, Latency):
            return given
        return cls(given) if isinstance(given, (int, float)) else cls.fit(given)

    def quantile(self, part: Any) -> Any:
        if not self.std:
            return np.full(np.shape(part), self.mean)
        spread = math.log1p((self.std / self.mean) ** 2)
        return self.mean * np.exp(math.sqrt(spread) * ndtri(part) - spread / 2.0)

    def mean_of_longest(self, count: NDArray[np.int_]) -> Floats:
        """The expected longest of so many, for each of these numbers; of none, 0."""
        if not self.std:
            return np.where(count > 0, self.mean, 0.0)
        numbers, places = np.unique(count, return_inverse=True)
        means = [self.quantile(_PARTS ** (1.0 / n)).mean() if n > 1 else self.mean * n for n in numbers.tolist()]
        return np.array(means)[places].reshape(np.shape(count))

    def sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
        return np.asarray(self.quantile(rng.random(shape)))
