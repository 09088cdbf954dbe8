"""Some die young, some grow old, and at the end all must go: the form that is fitted by default."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from thriftune.market.lifetime.base import MIN_LIFETIME_HOURS, Array
from thriftune.market.lifetime.fitting import FitParameter, Fitted, Starts

LAST, LAST_DEATHS = 0.95, 3.0
"""So many must have died at so much of the latest age or later, before an end of life is looked for."""

_LOG_ROOT_TWO_PI = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True, slots=True)
class Phases(Fitted):
    """A part of machines dies young, exponentially; the others by a Weibull's hazard; and whoever comes to the end
    of life, a limit that the provider sets, ends around it. SciSpot's three phases, each with a form of its own.

    `end_hours`: infinite where no such end is seen.
    """

    young: float  # the part of machines
    young_hours: float  # how long these live on average
    scale_hours: float
    shape: float
    end_hours: float = math.inf
    spread_hours: float = 1.0

    PARAMETERS = (
        FitParameter("young", "logit", width=3.0),
        FitParameter("young_hours", "log", width=2.0),
        FitParameter("scale_hours", "log", width=5.0),
        # Else a single machine's end would be a spike.
        FitParameter("shape", "log", width=0.7),
        FitParameter("end_hours", "log"),
        FitParameter("spread_hours", "log", width=0.7),
    )

    def values(self) -> list[float]:
        named = [self.young, self.young_hours, self.scale_hours, self.shape]
        return [*named, self.end_hours, self.spread_hours] if math.isfinite(self.end_hours) else named

    @classmethod
    def starts(cls, t: Array, died: Array, counts: Array) -> Starts:
        latest, usual = float(t.max()), float(counts @ t / (counts @ died))
        deaths = np.sort(t[died > 0])
        early = max(float(np.median(deaths[: max(1, len(deaths) // 2)])), 10 * MIN_LIFETIME_HOURS)
        phases = [[0.3, early, 2.0 * usual, 1.0], [0.6, 2.0 * early, 4.0 * usual, 0.7]]
        # The end of life, if there is one, is where the last ones died close together: a single one may always be
        # the last.
        together = (t >= LAST * latest) & (died > 0)
        if counts[together].sum() < LAST_DEATHS:
            return phases
        return [*phases, *([*each, float(np.median(t[together])), 0.01 * latest] for each in phases)]

    def log_survival(self, t: Array) -> Array:
        return np.logaddexp(*self._weighted(self._young(t)[0], self._old(t)[0])) + self._end(t)[0]

    def log_density(self, t: Array) -> Array:
        (young, young_density), (old, old_density), (end, end_density) = self._young(t), self._old(t), self._end(t)
        alive = np.logaddexp(*self._weighted(young, old))
        dying = np.logaddexp(*self._weighted(young_density, old_density))
        return np.logaddexp(dying + end, alive + end_density)

    def _weighted(self, young: Array, old: Array) -> tuple[Array, Array]:
        with np.errstate(divide="ignore"):  # either may be nobody
            return np.log(self.young) + young, np.log1p(-self.young) + old

    # Of each phase, the logarithms of survival and density.

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
        away = (t - self.end_hours) / self.spread_hours
        return log_ndtr(-away), -0.5 * away**2 - _LOG_ROOT_TWO_PI - math.log(self.spread_hours)
