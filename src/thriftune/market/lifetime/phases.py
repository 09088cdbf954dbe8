"""The default lifetime distribution, with three phases.

The phases are early losses, slow losses and an end of life.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from thriftune.market.lifetime.base import MIN_LIFETIME_HOURS, Array
from thriftune.market.lifetime.fitting import FitParameter, Fitted, Starts

LATE_AGE_SHARE, MIN_LATE_LOSSES = 0.95, 3.0
"""An end of life is fitted only if at least `MIN_LATE_LOSSES` preemptions came after this share of the greatest
age."""

_LOG_ROOT_TWO_PI = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True, slots=True)
class Phases(Fitted):
    """SciSpot's three phases of lifetimes, each with its own distribution.

    A share of machines is lost early, with exponential lifetimes. The others have Weibull lifetimes. Machines that
    reach the end of life, a limit set by the provider, are lost around it, with a normal distribution.
    """

    young: float  # the share of machines that are lost early
    young_hours: float  # the mean lifetime of machines that are lost early
    scale_hours: float  # the scale of the Weibull distribution
    shape: float  # the shape of the Weibull distribution
    end_hours: float = math.inf  # the mean age at the end of life; infinite if no end was observed
    spread_hours: float = 1.0  # the standard deviation of that age

    PARAMETERS = (
        FitParameter("young", "logit", width=3.0),
        FitParameter("young_hours", "log", width=2.0),
        FitParameter("scale_hours", "log", width=5.0),
        # A narrow prior: otherwise a single machine's end could become a spike of the density.
        FitParameter("shape", "log", width=0.7),
        FitParameter("end_hours", "log"),
        FitParameter("spread_hours", "log", width=0.7),
    )

    def values(self) -> list[float]:
        without_end = [self.young, self.young_hours, self.scale_hours, self.shape]
        return [*without_end, self.end_hours, self.spread_hours] if math.isfinite(self.end_hours) else without_end

    @classmethod
    def starts(cls, t: Array, died: Array, counts: Array) -> Starts:
        latest, mean = float(t.max()), float(counts @ t / (counts @ died))
        deaths = np.sort(t[died > 0])
        early = max(float(np.median(deaths[: max(1, len(deaths) // 2)])), 10 * MIN_LIFETIME_HOURS)
        without_end = [[0.3, early, 2.0 * mean, 1.0], [0.6, 2.0 * early, 4.0 * mean, 0.7]]
        # An end of life shows as several late losses close together. A single late loss shows nothing.
        late = (t >= LATE_AGE_SHARE * latest) & (died > 0)
        if counts[late].sum() < MIN_LATE_LOSSES:
            return without_end
        end = [float(np.median(t[late])), 0.01 * latest]
        return [*without_end, *([*start, *end] for start in without_end)]

    def log_survival(self, t: Array) -> Array:
        return np.logaddexp(*self._weighted(self._young(t)[0], self._old(t)[0])) + self._end(t)[0]

    def log_density(self, t: Array) -> Array:
        (young, young_density), (old, old_density), (end, end_density) = self._young(t), self._old(t), self._end(t)
        alive = np.logaddexp(*self._weighted(young, old))
        dying = np.logaddexp(*self._weighted(young_density, old_density))
        return np.logaddexp(dying + end, alive + end_density)

    def _weighted(self, young: Array, old: Array) -> tuple[Array, Array]:
        with np.errstate(divide="ignore"):  # either share may be 0
            return np.log(self.young) + young, np.log1p(-self.young) + old

    # The log survival and the log density of each phase.

    def _young(self, t: Array) -> tuple[Array, Array]:
        alive = -t / self.young_hours
        return alive, alive - math.log(self.young_hours)

    def _old(self, t: Array) -> tuple[Array, Array]:
        with np.errstate(divide="ignore"):
            relative = np.log(t / self.scale_hours)
        alive = -np.exp(self.shape * relative)
        return alive, math.log(self.shape / self.scale_hours) + (self.shape - 1.0) * relative + alive

    def _end(self, t: Array) -> tuple[Array, Array]:
        if not math.isfinite(self.end_hours):
            return np.zeros_like(t), np.full_like(t, -np.inf)
        z = (t - self.end_hours) / self.spread_hours
        return log_ndtr(-z), -0.5 * z**2 - _LOG_ROOT_TWO_PI - math.log(self.spread_hours)
