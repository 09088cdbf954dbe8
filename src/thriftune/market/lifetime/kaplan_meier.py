"""The Kaplan-Meier estimate of survival.

It accounts for machines that their users stopped while they were alive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from thriftune.market.lifetime.base import Array, Lifetime, check_level, observations


@dataclass(frozen=True, slots=True)
class KaplanMeier(Lifetime):
    """The product-limit estimate of survival.

    It is a step function that falls at each age of a preemption. Densities and hazards spread each step evenly
    over the time since the previous step. After the last step the hazard is the overall rate of preemptions.
    """

    ages: Array  # the ages of preemptions, rising, all above zero
    alive: Array  # the share of machines alive just after each age
    variance: Array  # the variance of each share, by Greenwood's formula
    rate: float  # preemptions per hour after the last age

    @classmethod
    def fit(cls, hours: Any, ended: Any) -> KaplanMeier:
        """Return the estimate for lifetimes in hours.

        `ended` is false for machines that their users stopped.
        """
        t, died = observations(hours, ended)
        ages, deaths = np.unique(t[died], return_counts=True)
        at_risk = len(t) - np.searchsorted(np.sort(t), ages, side="left")
        alive = np.cumprod((1.0 - deaths / at_risk).astype(float))
        left = np.maximum(at_risk - deaths, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(left > 0, deaths / (at_risk * left), 0.0)
        return cls(ages, alive, alive**2 * np.cumsum(terms), float(died.sum() / t.sum()))

    @property
    def end(self) -> float:
        return float(self.ages[-1]) if len(self.ages) and self.alive[-1] <= 0.0 else math.inf

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """Return the lower and upper bounds of `alive` at this confidence level.

        The interval is symmetric in log(-log(alive)), so its bounds stay between 0 and 1.
        """
        check_level(level)
        with np.errstate(divide="ignore", invalid="ignore"):
            log = np.log(self.alive)
            half_width = ndtri(0.5 + level / 2) * np.sqrt(self.variance) / (self.alive * np.abs(log))
            low, high = np.exp(log * np.exp(half_width)), np.exp(log * np.exp(-half_width))
        return np.nan_to_num(low, nan=0.0), np.where(np.isnan(high), self.alive, high)

    def log_survival(self, t: Array) -> Array:
        ages, alive = np.concatenate([[0.0], self.ages]), np.concatenate([[1.0], self.alive])
        with np.errstate(divide="ignore"):
            log_alive = np.log(alive[np.searchsorted(ages, t, side="right") - 1])
        return np.asarray(np.where(t > ages[-1], log_alive - self.rate * (t - ages[-1]), log_alive))

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
