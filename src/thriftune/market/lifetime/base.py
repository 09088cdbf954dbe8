"""How long do machines live? What every form of the answer can be asked."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from thriftune.errors import SettingError

Array = npt.NDArray[np.float64]
Hours = float | Array
"""One, or many: what is asked of one is answered with a float."""

MIN_LIFETIME_HOURS = 1.0 / 3600.0
"""A lifetime of 0 is one that the clock could not tell: some forms have no finite density there."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_PIECES, _HALVINGS = 400, 60


class Lifetime(ABC):
    """A distribution of lifetimes, in hours from the start of a machine. Conforms to `Survival`."""

    @property
    def end(self) -> float:
        """The age that none outlives."""
        return math.inf

    @abstractmethod
    def log_survival(self, t: Array) -> Array:
        """Of arrays, none negative; -inf from `end` on."""

    @abstractmethod
    def log_density(self, t: Array) -> Array:
        """Of arrays, above zero. Where a forced end cuts what is left, the mass that it cuts."""

    # --- what is asked

    def cdf(self, t: Hours) -> Any:
        """The part of machines that have died by that age."""
        return _answer(-np.expm1(self._log_survival(t)), t)

    def survival(self, t: npt.ArrayLike, age: npt.ArrayLike = 0.0) -> Any:
        """The probability that a machine of that age lives another `t` hours. One at its end does not."""
        more, ages = np.broadcast_arrays(np.asarray(t, dtype=float), np.asarray(age, dtype=float))
        now, then = self._log_survival(ages), self._log_survival(ages + np.maximum(more, 0.0))
        with np.errstate(invalid="ignore"):
            found = np.where(np.isneginf(now), 0.0, np.exp(then - now))
        return _answer(found, found)

    def pdf(self, t: Hours) -> Any:
        """The density, an hour."""
        return _answer(np.where(_inside(t, self.end), np.exp(self._log_density(t)), 0.0), t)

    def hazard(self, t: Hours) -> Any:
        """Deaths an hour, of those that are alive at that age."""
        ages = np.asarray(t, dtype=float)
        with np.errstate(invalid="ignore"):
            found = np.exp(self._log_density(ages) - self._log_survival(ages))
        return _answer(np.where(_inside(ages, self.end), found, np.where(ages < 0.0, 0.0, np.inf)), t)

    def mean(self) -> float:
        """Hours; infinite if too many never die."""
        latest = self._latest()
        if not math.isfinite(latest):
            return math.inf
        # Pieces grow from the start, where much may happen within minutes.
        edges = latest * np.linspace(0.0, 1.0, _PIECES + 1) ** 3
        half = np.diff(edges)[:, None] / 2
        t = edges[:-1, None] + half * (1.0 + _NODES)
        return float((half * _WEIGHTS * np.exp(self.log_survival(t.ravel()).reshape(t.shape))).sum())

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """So many lifetimes; infinite for those that never die."""
        goal = np.log1p(-rng.random(n))
        low, high = np.zeros(n), np.full(n, min(1.0, self.end))
        while (short := (self.log_survival(high) > goal) & (high < min(self.end, 1e12))).any():
            high = np.where(short, np.minimum(2.0 * high, self.end), high)
        never = self.log_survival(high) > goal
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            later = self.log_survival(middle) > goal
            low, high = np.where(later, middle, low), np.where(later, high, middle)
        return np.where(never & ~(high >= self.end), np.inf, high)

    def log_likelihood(self, hours: Any, ended: Any) -> float:
        """Of machines that died at these ages where `ended`, and else were alive when they were stopped."""
        t, died = observations(hours, ended)
        with np.errstate(divide="ignore"):
            return float(np.where(died, self.log_density(t), self.log_survival(t)).sum())

    # --- at the edges

    def _log_survival(self, t: Hours) -> Array:
        return self.log_survival(np.maximum(np.asarray(t, dtype=float), 0.0))

    def _log_density(self, t: Hours) -> Array:
        return self.log_density(np.maximum(np.asarray(t, dtype=float), MIN_LIFETIME_HOURS))

    def _latest(self) -> float:
        """An age that all but nobody outlives; infinite if that is not to be found."""
        latest = min(1.0, self.end)
        while latest < self.end and float(self.log_survival(np.array([latest]))[0]) > math.log(1e-10):
            latest = min(2.0 * latest, self.end)
            if latest > 1e9:
                return math.inf
        return latest


def observations(hours: Any, ended: Any) -> tuple[Array, npt.NDArray[np.bool_]]:
    """As arrays, checked: lifetimes in hours, and whether each ended by the provider's doing (not its owner's)."""
    try:
        t, died = np.asarray(hours, dtype=float).ravel(), np.asarray(ended)
    except (TypeError, ValueError):
        raise SettingError("lifetimes: hours must be numbers") from None
    died = died.ravel()
    if len(t) != len(died):
        raise SettingError(f"lifetimes: there are {len(t)} hours, but {len(died)} that say whether they ended")
    if len(t) == 0:
        raise SettingError("lifetimes: there is no observation to learn from")
    if died.dtype != np.bool_ and not np.isin(died, (0, 1)).all():
        raise SettingError("lifetimes: ended must be true (revoked) or false (stopped by its owner) for each")
    wrong = np.flatnonzero(~(np.isfinite(t) & (t >= 0.0)))
    if len(wrong):
        raise SettingError(f"lifetimes: hours[{wrong[0]}] is {t[wrong[0]]}; it must be finite and not negative")
    return np.maximum(t, MIN_LIFETIME_HOURS), died.astype(bool)


def check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise SettingError(f"level {level:g} must be between 0 and 1, such as 0.95")


def _inside(t: Hours, end: float) -> npt.NDArray[np.bool_]:
    ages = np.asarray(t, dtype=float)
    return np.asarray((ages >= 0.0) & (ages < end))


def _answer(found: Array, asked: Hours) -> Any:
    return float(found) if np.ndim(asked) == 0 else found
