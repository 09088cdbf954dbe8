"""Will the price rise above my maximum within the hour? Models of one market each, behind one interface."""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thriftune.market.revocation.logistic import LogisticRegression
from thriftune.market.revocation.model import RevocationModel
from thriftune.market.revocation.networks import RevPred, Tributary
from thriftune.market.revocation.steps import Series
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
    """What every model does. Times are unix seconds, prices dollars an hour."""

    def fit(self, series: Series, rng: np.random.Generator | None = None) -> Self:
        """Learns from the prices of one market; the same series and rng give the same model."""

    def probability(self, series: Series, t: ArrayLike, max_price: ArrayLike) -> float | NDArray[np.float64]:
        """That a machine with this maximum price is revoked in the hour after `t`, from the prices up to `t`.

        `t` and `max_price` are broadcast to the answer's shape; a float for floats. 1 where the price at `t` is
        above the maximum.
        """
