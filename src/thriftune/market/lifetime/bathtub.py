"""SciSpot's bathtub distribution (Eq. 1 to 5), with a forced end of life."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import expit, logit

from thriftune.market.lifetime.base import Array
from thriftune.market.lifetime.fitting import FitParameter, Fitted, Starts

LIMIT_RATIO = 1.01
"""The fitted forced end, as a multiple of the greatest observed age."""


@dataclass(frozen=True, slots=True)
class Bathtub(Fitted):
    """SciSpot's bathtub distribution.

    Up to `limit_hours`, the CDF is F(t) - F(0) with

        F(t) = `part` (1 - e^(-t / `early_hours`) + e^((t - `late_start`) / `late_hours`)).

    The paper calls `part` A, `early_hours` tau1, `late_start` b and `late_hours` tau2. The CDF need not reach 1:
    machines alive at the limit end there.
    """

    part: float
    early_hours: float
    late_hours: float
    late_start: float
    limit_hours: float = math.inf

    PARAMETERS = (
        FitParameter("part", "logit"),
        FitParameter("early_hours", "log"),
        FitParameter("late_hours", "log"),
        FitParameter("late_start", "plain"),
    )

    @classmethod
    def starts(cls, t: Array, died: Array, counts: Array) -> Starts:  # noqa: ARG003
        latest = LIMIT_RATIO * float(t.max())
        return [
            [part, early, late, latest - late * math.log(0.9 * (1.0 / part - 1.0))]
            for part, early, late in ((0.45, 1.0, 0.8), (0.7, 3.0, 0.3))
        ]

    # In place of `late_start`, the fit searches for a share between 0 and 1: F's late term at the limit, divided
    # by the greatest late term for which F is at most 1.

    @classmethod
    def from_free(cls, free: Sequence[float], t: Array) -> Self:
        part, early, late = (p.value(each) for p, each in zip(cls.PARAMETERS, free[:3], strict=False))
        limit = LIMIT_RATIO * float(t.max())
        room = 1.0 / part - 1.0 + math.exp(-limit / early)
        return cls(part, early, late, limit - late * math.log(room * float(expit(free[3]))), limit)

    @classmethod
    def to_free(cls, values: Sequence[float], t: Array) -> list[float]:
        part, early, late, late_start = values
        limit = LIMIT_RATIO * float(t.max())
        room = 1.0 / part - 1.0 + math.exp(-limit / early)
        used = min(max(math.exp((limit - late_start) / late) / room, 1e-9), 1.0 - 1e-9)
        return [*(p.free(each) for p, each in zip(cls.PARAMETERS, values[:3], strict=False)), float(logit(used))]

    @property
    def end(self) -> float:
        return self.limit_hours

    def log_survival(self, t: Array) -> Array:
        with np.errstate(divide="ignore", over="ignore"):
            dead = self.part * (1.0 - np.exp(-t / self.early_hours) + self._late(t) - self._late(0.0))
            return np.where(t < self.limit_hours, np.log1p(-np.minimum(dead, 1.0)), -np.inf)

    def log_density(self, t: Array) -> Array:
        with np.errstate(divide="ignore", over="ignore"):
            rate = np.exp(-t / self.early_hours) / self.early_hours + self._late(t) / self.late_hours
            alive = self.log_survival(t) > -np.inf
            last = self.log_survival(np.asarray(np.nextafter(self.limit_hours, 0.0)))
            return np.where(alive, np.log(self.part * rate), np.where(t == self.limit_hours, last, -np.inf))

    def _late(self, t: Array | float) -> Array:
        return np.asarray(np.exp((t - self.late_start) / self.late_hours))
