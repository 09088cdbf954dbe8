"""What was seen? The Kaplan-Meier curve: the part still alive, with those that were stopped counted fairly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from thriftune.market.lifetime.base import Array, Lifetime, check_level, observations


@dataclass(frozen=True, slots=True)
class KaplanMeier(Lifetime):
    """The product-limit estimate: steps down at the ages at which machines died. Of densities and hazards, these
    are spread evenly over the time since the death before.

    After the last of these, those that are left die at the rate that was seen before.
    """

    ages: Array  # rising, above zero: at which machines died
    alive: Array  # the part that is alive just after each
    variance: Array  # of each, by Greenwood's formula
    rate: float  # an hour, after the last

    @classmethod
    def fit(cls, hours: Any, ended: Any) -> KaplanMeier:
        t, died = observations(hours, ended)
        ages, deaths = np.unique(t[died], return_counts=True)
        at_risk = len(t) - np.searchsorted(np.sort(t), ages, side="left")
        alive = np.cumprod((1.0 - deaths / at_risk).astype(float))
        left = np.maximum(at_risk - deaths, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.where(left > 0, deaths / (at_risk * left), 0.0)
        return cls(ages, alive, alive**2 * np.cumsum(each), float(died.sum() / t.sum()))

    @property
    def end(self) -> float:
        return float(self.ages[-1]) if len(self.ages) and self.alive[-1] <= 0.0 else math.inf

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """Of `alive`, by the log of its log, which keeps it between 0 and 1."""
        check_level(level)
        with np.errstate(divide="ignore", invalid="ignore"):
            log = np.log(self.alive)
            wide = ndtri(0.5 + level / 2) * np.sqrt(self.variance) / (self.alive * np.abs(log))
            low, high = np.exp(log * np.exp(wide)), np.exp(log * np.exp(-wide))
        return np.nan_to_num(low, nan=0.0), np.where(np.isnan(high), self.alive, high)

    def log_survival(self, t: Array) -> Array:
        ages, alive = np.concatenate([[0.0], self.ages]), np.concatenate([[1.0], self.alive])
        with np.errstate(divide="ignore"):
            found = np.log(alive[np.searchsorted(ages, t, side="right") - 1])
        return np.asarray(np.where(t > ages[-1], found - self.rate * (t - ages[-1]), found))

    def mean(self) -> float:
        ages, alive = np.concatenate([[0.0], self.ages]), np.concatenate([[1.0], self.alive])
        left = float(alive[-1])
        later = left / self.rate if left > 0.0 and self.rate > 0.0 else math.inf if left > 0.0 else 0.0
        return float(alive[:-1] @ np.diff(ages)) + later

    def log_density(self, t: Array) -> Array:
        ages, alive = np.concatenate([[0.0], self.ages]), np.concatenate([[1.0], self.alive])
        after = np.searchsorted(ages, t, side="left")
        with np.errstate(divide="ignore"):
            slopes = np.log(-np.diff(alive)) - np.log(np.diff(ages))
            tail = np.log(self.rate) + self.log_survival(t)
        return np.asarray(np.where(after < len(ages), np.append(slopes, -np.inf)[np.maximum(after, 1) - 1], tail))
