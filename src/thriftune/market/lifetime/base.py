"""The base class of lifetime distributions, and checks of observations."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from thriftune.errors import SettingError

Array = npt.NDArray[np.float64]
Hours = float | Array
"""One number or an array of them; a function returns a float for one number and an array for an array."""

MIN_LIFETIME_HOURS = 1.0 / 3600.0
"""A second. Shorter recorded lifetimes count as this, because some distributions have no finite density at 0."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)  # quadrature within a piece of the integral for the mean
_PIECES = 400  # pieces of the integral for the mean
_HALVINGS = 60  # steps of the bisection for a sample: more than a float has bits
_NEGLIGIBLE_SURVIVAL = 1e-10  # the mean ignores later ages
_MAX_AGE_HOURS = 1e9  # a distribution whose survival is not negligible at this age has no finite mean
_MAX_SAMPLE_HOURS = 1e12  # a sample beyond this age is infinite


class Lifetime(ABC):
    """A distribution of machine lifetimes in hours; it implements `Survival`."""

    @property
    def end(self) -> float:
        """Return the age that no machine outlives; infinite if there is none."""
        return math.inf

    @abstractmethod
    def log_survival(self, t: Array) -> Array:
        """Return the log survival at ages `t`, which are 0 or more.

        It is -inf from `end` on.
        """

    @abstractmethod
    def log_density(self, t: Array) -> Array:
        """Return the log density at ages `t`, which are above 0.

        At a forced end of life it is the log of the share of machines that end there.
        """

    # --- public queries

    def cdf(self, t: Hours) -> Any:
        """Return the share of machines lost by age `t`."""
        return _float_or_array(-np.expm1(self._log_survival(t)), t)

    def survival(self, t: npt.ArrayLike, age: npt.ArrayLike = 0.0) -> Any:
        """Return the probability that a machine lives another `t` hours.

        The machine is alive at `age`. The probability is 0 if it would be older than `end`.
        """
        more, ages = np.broadcast_arrays(np.asarray(t, dtype=float), np.asarray(age, dtype=float))
        now, then = self._log_survival(ages), self._log_survival(ages + np.maximum(more, 0.0))
        with np.errstate(invalid="ignore"):
            probability = np.where(np.isneginf(now), 0.0, np.exp(then - now))
        return _float_or_array(probability, probability)

    def pdf(self, t: Hours) -> Any:
        """Return the density per hour at age `t`."""
        return _float_or_array(np.where(_before_end(t, self.end), np.exp(self._log_density(t)), 0.0), t)

    def hazard(self, t: Hours) -> Any:
        """Return the rate of preemptions per hour among machines alive at age `t`."""
        ages = np.asarray(t, dtype=float)
        with np.errstate(invalid="ignore"):
            rate = np.exp(self._log_density(ages) - self._log_survival(ages))
        return _float_or_array(np.where(_before_end(ages, self.end), rate, np.where(ages < 0.0, 0.0, np.inf)), t)

    def mean(self) -> float:
        """Return the mean lifetime in hours.

        The mean counts as infinite if the survival is not negligible at any age up to `_MAX_AGE_HOURS`.
        """
        latest = self._latest()
        if not math.isfinite(latest):
            return math.inf
        # The first pieces are the shortest, because many machines may be lost within minutes.
        edges = latest * np.linspace(0.0, 1.0, _PIECES + 1) ** 3
        half = np.diff(edges)[:, None] / 2
        t = edges[:-1, None] + half * (1.0 + _NODES)
        return float((half * _WEIGHTS * np.exp(self.log_survival(t.ravel()).reshape(t.shape))).sum())

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw `n` lifetimes; a machine that is never lost has an infinite one."""
        goal = np.log1p(-rng.random(n))
        low, high = np.zeros(n), np.full(n, min(1.0, self.end))
        while (short := (self.log_survival(high) > goal) & (high < min(self.end, _MAX_SAMPLE_HOURS))).any():
            high = np.where(short, np.minimum(2.0 * high, self.end), high)
        never = self.log_survival(high) > goal
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            later = self.log_survival(middle) > goal
            low, high = np.where(later, middle, low), np.where(later, high, middle)
        return np.where(never & ~(high >= self.end), np.inf, high)

    def log_likelihood(self, hours: Any, ended: Any) -> float:
        """Return the log-likelihood of these lifetimes.

        Where `ended` is false, the user stopped the machine while it was alive.
        """
        t, died = observations(hours, ended)
        with np.errstate(divide="ignore"):
            return float(np.where(died, self.log_density(t), self.log_survival(t)).sum())

    # --- helpers

    def _log_survival(self, t: Hours) -> Array:
        return self.log_survival(np.maximum(np.asarray(t, dtype=float), 0.0))

    def _log_density(self, t: Hours) -> Array:
        return self.log_density(np.maximum(np.asarray(t, dtype=float), MIN_LIFETIME_HOURS))

    def _latest(self) -> float:
        """Return an age at which survival is negligible; infinite if none is found."""
        latest = min(1.0, self.end)
        while latest < self.end and float(self.log_survival(np.array([latest]))[0]) > math.log(
            _NEGLIGIBLE_SURVIVAL
        ):
            latest = min(2.0 * latest, self.end)
            if latest > _MAX_AGE_HOURS:
                return math.inf
        return latest


def observations(hours: Any, ended: Any) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Check lifetimes and return them as arrays.

    The arrays are the hours, and whether the provider ended each machine. The hours are at least
    `MIN_LIFETIME_HOURS`.
    """
    try:
        t, died = np.asarray(hours, dtype=float).ravel(), np.asarray(ended)
    except (TypeError, ValueError):
        raise SettingError("lifetimes: hours must be numbers") from None
    died = died.ravel()
    if len(t) != len(died):
        raise SettingError(
            f"lifetimes: hours has {len(t)} values, but ended has {len(died)}; give one each per machine"
        )
    if len(t) == 0:
        raise SettingError("lifetimes: no observation to fit; give at least one")
    if died.dtype != np.bool_ and not np.isin(died, (0, 1)).all():
        raise SettingError("lifetimes: ended must be true (preempted) or false (stopped by the user) for each")
    wrong = np.flatnonzero(~(np.isfinite(t) & (t >= 0.0)))
    if len(wrong):
        raise SettingError(f"lifetimes: hours[{wrong[0]}] is {t[wrong[0]]}; it must be finite and not negative")
    return np.maximum(t, MIN_LIFETIME_HOURS), died.astype(bool)


def check_level(level: float) -> None:
    """Raise a SettingError unless `level` is a confidence level between 0 and 1."""
    if not 0.0 < level < 1.0:
        raise SettingError(f"level {level:g} must be between 0 and 1, such as 0.95")


def _before_end(t: Hours, end: float) -> npt.NDArray[np.bool_]:
    ages = np.asarray(t, dtype=float)
    return np.asarray((ages >= 0.0) & (ages < end))


def _float_or_array(values: Array, query: Hours) -> Any:
    """Return the values as a float if the query was one number."""
    return float(values) if np.ndim(query) == 0 else values
