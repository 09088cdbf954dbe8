"""Detection of changes in machine lifetimes.

After each change, a new model is fitted to the observations since then.
"""

from __future__ import annotations

import math

import numpy as np

from thriftune.market.lifetime.base import Lifetime, observations
from thriftune.market.lifetime.pooling import fit_lifetime

HAZARD_RATIO = 2.0
"""The detector looks for hazards that are this many times as high as the model's, or as low."""

ALARM_LOG_LIKELIHOOD = 8.0
"""The log-likelihood ratio that counts as a change. Without a change, about one observation in a thousand exceeds
it."""

_MAX_AGE_HOURS = 1e9  # where the search for a quantile ends
_HALVINGS = 50  # steps of the bisection for a quantile
_MAX_CUMULATIVE_HAZARD = 700.0  # keeps sums finite for a machine that outlives the model's end

MIN_OBSERVATIONS, MIN_LOSSES = 15, 4
"""Observations, and preemptions among them, that are needed after a change to fit a new model."""

SETTLED_OBSERVATIONS, REFIT_INTERVAL = 60, 15
"""A new model is fitted to few observations, and might soon look wrong. It is fitted again after every
`REFIT_INTERVAL` observations until it has `SETTLED_OBSERVATIONS`. Until then, changes are not detected."""


class Watch:
    """A lifetime model that is fitted again when lifetimes no longer match it.

    It runs Page's CUSUM test with the model's cumulative hazard in place of time. If the model is right, losses
    then occur at rate 1. The model's terciles divide ages into three ranges. Each range has its own sums, because
    the hazards of young and old machines may change independently.
    """

    def __init__(self, model: Lifetime) -> None:
        self.model = model
        self.seen = 0  # number of observed lifetimes
        self.changes: list[int] = []
        """The value of `seen` at each change, rising."""
        self._start(model, [], [])

    def _start(self, model: Lifetime, hours: list[float], ended: list[bool]) -> None:
        """Use this model, which was fitted to these observations, and reset the sums."""
        self.model = model
        ages = np.array([0.0, *_quantiles(model, (1 / 3, 2 / 3)), math.inf])
        self._from, self._to = ages[:-1], ages[1:]  # the bounds of the three age ranges
        self._sums = np.zeros((2, 3))  # log-likelihood ratios of a higher and a lower hazard, by age range
        self._hours, self._ended = list(hours), list(ended)  # all observations since the last change
        self._last_zero = np.full((2, 3), len(hours))  # number of observations when each sum was last 0

    def see(self, hours: float, ended: bool) -> bool:
        """Add a lifetime and return whether it revealed a change.

        After a change, `model` is a new one. Call this method for machines in the order in which they end.
        """
        observations([hours], [ended])
        self.seen += 1
        self._hours.append(float(hours))
        self._ended.append(bool(ended))
        if self.changes and len(self._hours) <= SETTLED_OBSERVATIONS:
            if len(self._hours) % REFIT_INTERVAL == 0:
                self._start(fit_lifetime(self._hours, self._ended), self._hours, self._ended)
            return False
        hazard_at_end, hazard_at_start = (
            np.minimum(-self.model.log_survival(ages), _MAX_CUMULATIVE_HAZARD)
            for ages in (np.clip(hours, self._from, self._to), self._from)
        )
        hazard = hazard_at_end - hazard_at_start  # the machine's cumulative hazard in each age range
        died = ended & (self._from < hours) & (hours <= self._to)
        for i, ratio in enumerate((HAZARD_RATIO, 1.0 / HAZARD_RATIO)):
            self._sums[i] = np.maximum(self._sums[i] + died * math.log(ratio) - (ratio - 1.0) * hazard, 0.0)
        self._last_zero[self._sums == 0.0] = len(self._hours)
        if not (self._sums > ALARM_LOG_LIKELIHOOD).any():
            return False
        first = int(self._last_zero[np.unravel_index(self._sums.argmax(), self._sums.shape)])
        new_hours, new_ended = self._hours[first:], self._ended[first:]
        if len(new_hours) < MIN_OBSERVATIONS or sum(new_ended) < MIN_LOSSES:
            return False
        self.changes.append(self.seen)
        self._start(fit_lifetime(new_hours, new_ended), new_hours, new_ended)
        return True


def _quantiles(model: Lifetime, shares: tuple[float, ...]) -> list[float]:
    """Return the ages by which these shares of machines are lost, found by bisection."""
    ages = []
    for share in shares:
        low, high = 0.0, 1.0
        while float(model.cdf(high)) < share and high < _MAX_AGE_HOURS:
            high *= 2.0
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if float(model.cdf(middle)) >= share else (middle, high)
        ages.append(high)
    return ages
