"""Models of the probability that a spot price exceeds a maximum price.

The probability is for the next hour.
"""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thriftune.market.revocation.logistic import LogisticRegression
from thriftune.market.revocation.model import RevocationModel
from thriftune.market.revocation.networks import RevPred, Tributary
from thriftune.market.revocation.price_curve import Series
from thriftune.market.revocation.survival import as_survival

__all__ = [
    "LogisticRegression",
    "RevPred",
    "RevocationModel",
    "RevocationPredictor",
    "Series",
    "Tributary",
    "as_survival",
]


class RevocationPredictor(Protocol):
    """The interface of revocation models.

    Times are unix seconds, and prices are dollars per hour.
    """

    def fit(self, series: Series, rng: np.random.Generator | None = None) -> Self:
        """Fit the model to the prices of one market, and return it.

        The same series and the same state of `rng` give the same model.
        """

    def probability(self, series: Series, t: ArrayLike, max_price: ArrayLike) -> float | NDArray[np.float64]:
        """Return the probability of a preemption in the hour after `t`.

        Only prices up to `t` are used. A machine with this maximum price is preempted when the price rises above
        it. `t` and `max_price` are broadcast; floats give a float. Where the price at `t` is already above the
        maximum, the probability is 1.
        """
