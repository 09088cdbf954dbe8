"""The classical distributions: exponential, Weibull and Gompertz-Makeham."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thriftune.market.lifetime.base import Array
from thriftune.market.lifetime.fitting import FitParameter, Fitted, Starts

_MAX_EXPONENT = 600.0  # keeps exp() finite


@dataclass(frozen=True, slots=True)
class Exponential(Fitted):
    """A distribution with constant hazard.

    A machine of any age lives another `mean_hours` on average.
    """

    mean_hours: float

    PARAMETERS = (FitParameter("mean_hours", "log"),)

    @classmethod
    def starts(cls, t: Array, died: Array, counts: Array) -> Starts:
        return [[float(counts @ t) / max(1e-9, float(counts @ died))]]

    def log_survival(self, t: Array) -> Array:
        return np.asarray(-t / self.mean_hours)

    def log_density(self, t: Array) -> Array:
        return np.asarray(-t / self.mean_hours - np.log(self.mean_hours))


@dataclass(frozen=True, slots=True)
class Weibull(Fitted):
    """A distribution whose hazard falls or rises with age.

    The hazard falls if `shape` is below 1, and rises if `shape` is above 1.
    """

    scale_hours: float
    shape: float

    PARAMETERS = (FitParameter("scale_hours", "log"), FitParameter("shape", "log", width=2.0))

    @classmethod
    def starts(cls, t: Array, died: Array, counts: Array) -> Starts:
        mean = float(counts @ t) / max(1e-9, float(counts @ died))
        return [[mean, 1.0], [mean, 0.5]]

    def log_survival(self, t: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray(-((t / self.scale_hours) ** self.shape))

    def log_density(self, t: Array) -> Array:
        relative = np.log(t / self.scale_hours)
        hazard = np.log(self.shape / self.scale_hours) + (self.shape - 1.0) * relative
        return np.asarray(hazard - np.exp(self.shape * relative))


@dataclass(frozen=True, slots=True)
class GompertzMakeham(Fitted):
    """A distribution whose hazard is a constant plus an exponential.

    The hazard per hour is `rate` + `ageing` e^(`growth` t).
    """

    rate: float
    ageing: float
    growth: float

    PARAMETERS = (FitParameter("rate", "log"), FitParameter("ageing", "log"), FitParameter("growth", "log"))

    @classmethod
    def starts(cls, t: Array, died: Array, counts: Array) -> Starts:
        rate, latest = max(1e-9, float(counts @ died)) / float(counts @ t), t.max()
        return [[rate, rate * np.exp(-growth * latest), growth] for growth in (4.0 / latest, 24.0 / latest)]

    def log_survival(self, t: Array) -> Array:
        grown = np.expm1(np.minimum(self.growth * t, _MAX_EXPONENT))
        return np.asarray(-self.rate * t - self.ageing / self.growth * grown)

    def log_density(self, t: Array) -> Array:
        hazard = np.log(self.rate + self.ageing * np.exp(np.minimum(self.growth * t, _MAX_EXPONENT)))
        return np.asarray(hazard + self.log_survival(t))
