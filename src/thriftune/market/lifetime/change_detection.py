"""Has the world moved away from the model? Watched observation by observation; if so, it is fitted anew."""

from __future__ import annotations

import math

import numpy as np

from thriftune.market.lifetime.base import Lifetime, observations
from thriftune.market.lifetime.pooling import fit_lifetime

RATIO = 2.0
"""Looked out for is a hazard that is so many times what the model says, or one part in so many."""

ALARM = 8.0
"""How much likelier that must have become, as a logarithm. Where nothing has changed, a false alarm comes about
once in some thousand observations."""

_MOST = 700.0  # of what the model's clock says of a machine that outlives what it thinks possible

FEWEST, FEWEST_DEATHS = 15, 4
"""Observations since the change, before a new model is made of them."""

SETTLED, AGAIN = 60, 15
"""Until there are so many, the new model is fitted again after every so many: it was made of few, and would soon
seem to be wrong."""


class Watch:
    """A running model of lifetimes. Page's CUSUM, on what the model's own hazard makes of time: whatever its form,
    by that clock deaths come at rate 1. There is one for each third of lives, as young and old may change apart.
    """

    def __init__(self, model: Lifetime) -> None:
        self.model = model
        self.seen = 0
        self.changes: list[int] = []
        """After how many observations the model was fitted anew."""
        self._begin(model, [], [])

    def _begin(self, model: Lifetime, hours: list[float], ended: list[bool]) -> None:
        """With this model, from these observations on."""
        self.model = model
        ages = np.array([0.0, *_quantiles(model, (1 / 3, 2 / 3)), math.inf])
        self._from, self._to = ages[:-1], ages[1:]
        self._sums = np.zeros((2, 3))
        self._hours, self._ended = list(hours), list(ended)
        self._since = np.full((2, 3), len(hours))  # how many of these were there when each sum was last zero

    def see(self, hours: float, ended: bool) -> bool:
        """One more lifetime, in the order in which they end. Whether the world has moved, and so the model."""
        observations([hours], [ended])
        self.seen += 1
        self._hours.append(float(hours))
        self._ended.append(bool(ended))
        if self.changes and len(self._hours) <= SETTLED:
            if len(self._hours) % AGAIN == 0:
                self._begin(fit_lifetime(self._hours, self._ended), self._hours, self._ended)
            return False
        until, since = (
            np.minimum(-self.model.log_survival(ages), _MOST)
            for ages in (np.clip(hours, self._from, self._to), self._from)
        )
        passed = until - since  # by the model's clock, in each third
        died = ended & (self._from < hours) & (hours <= self._to)
        for i, ratio in enumerate((RATIO, 1.0 / RATIO)):
            self._sums[i] = np.maximum(self._sums[i] + died * math.log(ratio) - (ratio - 1.0) * passed, 0.0)
        self._since[self._sums == 0.0] = len(self._hours)
        if not (self._sums > ALARM).any():
            return False
        first = int(self._since[np.unravel_index(self._sums.argmax(), self._sums.shape)])
        new_hours, new_ended = self._hours[first:], self._ended[first:]
        if len(new_hours) < FEWEST or sum(new_ended) < FEWEST_DEATHS:
            return False
        self.changes.append(self.seen)
        self._begin(fit_lifetime(new_hours, new_ended), new_hours, new_ended)
        return True


def _quantiles(model: Lifetime, parts: tuple[float, ...]) -> list[float]:
    """The ages by which these parts have died."""
    found = []
    for part in parts:
        low, high = 0.0, 1.0
        while float(model.cdf(high)) < part and high < 1e9:
            high *= 2.0
        for _ in range(50):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if float(model.cdf(middle)) >= part else (middle, high)
        found.append(high)
    return found
