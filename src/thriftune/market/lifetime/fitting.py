"""Which parameters fit what was seen? By maximum likelihood, or by least squares on the Kaplan-Meier curve."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit, ndtri

from thriftune.errors import SettingError
from thriftune.market.lifetime.base import MIN_LIFETIME_HOURS, Array, Lifetime, check_level, observations
from thriftune.market.lifetime.kaplan_meier import KaplanMeier

By = Literal["likelihood", "least_squares"]
Starts = list[list[float]]
"""Where the search for the parameters begins, once each: the parameters in their own units. A shorter one is of
the same form with fewer parameters; it is taken if the others tell too little (by Schwarz's criterion)."""

MIN_DEATHS = 2
TIED = 0.05  # of deaths: where more are at the hour of another one, the clock was coarse
MANY, NEAR = 5000, 0.004  # observations; and the part of an age that makes no difference among them
BOOTSTRAP_FITS = 100  # times, for intervals of a fit by least squares
_WORST = 1e12


class FitParameter(NamedTuple):
    name: str
    scale: Literal["log", "logit", "plain"]
    """On which it is searched for: above zero, between 0 and 1, any number."""
    width: float = 20.0
    """How far from where the search began it is to be expected, on that scale: a prior, all but flat by default,
    so that no parameter goes on for ever where the observations do not tell."""

    def check(self, form: str, value: float) -> None:
        if self.scale == "log" and not value > 0.0:
            raise SettingError(f"{form}: {self.name} {value:g} must be above 0")
        if self.scale == "logit" and not 0.0 <= value <= 1.0:
            raise SettingError(f"{form}: {self.name} {value:g} must be between 0 and 1")
        if math.isnan(value):
            raise SettingError(f"{form}: {self.name} is not a number")

    def free(self, value: float) -> float:
        return float({"log": math.log, "logit": logit, "plain": float}[self.scale](value))

    def value(self, free: float) -> float:
        return float({"log": np.exp, "logit": expit, "plain": float}[self.scale](free))


class Fitted(Lifetime):
    """A form with parameters, which are the fields of the dataclass, in this order."""

    __slots__ = ()
    PARAMETERS: ClassVar[tuple[FitParameter, ...]]

    def __post_init__(self) -> None:
        for parameter in self.PARAMETERS:
            parameter.check(type(self).__name__, getattr(self, parameter.name))

    @classmethod
    @abstractmethod
    def starts(cls, t: Array, died: Array, counts: Array) -> Starts:
        """From what was seen, and for how much each counts."""

    @classmethod
    def from_free(cls, free: Sequence[float], t: Array) -> Self:  # noqa: ARG003 (some need to know the latest age)
        return cls(*(parameter.value(each) for parameter, each in zip(cls.PARAMETERS, free, strict=False)))

    @classmethod
    def to_free(cls, values: Sequence[float], t: Array) -> list[float]:  # noqa: ARG003
        return [parameter.free(each) for parameter, each in zip(cls.PARAMETERS, values, strict=False)]

    def values(self) -> list[float]:
        """Of its parameters, the last ones left out where the form can do without them."""
        return [getattr(self, parameter.name) for parameter in self.PARAMETERS]

    @classmethod
    def fit(cls, hours: Any, ended: Any, *, by: By = "likelihood", weights: Any = None) -> Self:
        """To lifetimes in hours; where not `ended`, the machine was alive when its owner stopped it.

        `weights`: for how much each counts; 1 by default.
        """
        t, died = observations(hours, ended)
        if died.sum() < MIN_DEATHS:
            what = "1 revocation" if died.sum() else "no revocation"
            raise SettingError(f"lifetimes: {what} among {len(t)} machines; at least {MIN_DEATHS} are needed")
        if by not in get_args(By):
            raise SettingError(f"lifetimes: by {by!r} must be one of {', '.join(map(repr, get_args(By)))}")
        counts = np.ones(len(t)) if weights is None else np.asarray(weights, dtype=float)
        if by == "likelihood":
            t, died, counts = _gathered(t, died, counts)
        best, least = None, math.inf
        for start in cls.starts(t, died.astype(float), counts):
            model, cost = cls._search(cls.to_free(start, t), t, died, counts, by)
            if by == "least_squares":
                cost = 0.5 * len(t) * math.log(max(cost, 1e-300))
            cost += 0.5 * len(start) * math.log(counts.sum())
            if model is not None and cost < least:
                best, least = model, cost
        if best is None:
            raise SettingError(f"lifetimes: no {cls.__name__} fits these {len(t)} observations")
        return best

    @classmethod
    def _search(
        cls, start: Sequence[float], t: Array, died: Any, counts: Array, by: By
    ) -> tuple[Self | None, float]:
        begin, widths = np.array(start), np.array([p.width for p in cls.PARAMETERS[: len(start)]])
        curve = KaplanMeier.fit(t, died) if by == "least_squares" else None
        within = clock(t, died)

        def prior(free: Array) -> float:
            return 0.5 * float(np.sum(((free - begin) / widths) ** 2))

        def cost(free: Array) -> float:
            try:
                model = cls.from_free(free.tolist(), t)
            except (ArithmeticError, ValueError):  # so far away that there is no such form
                return _WORST
            if curve is not None:
                found = float(np.sum((model.cdf(curve.ages) - (1.0 - curve.alive)) ** 2))
                found += 1e-6 * prior(free)
            else:
                found = prior(free) - float(counts @ _log_likelihoods(model, t, died, within))
            return found if math.isfinite(found) else _WORST

        with np.errstate(all="ignore"):
            tried = minimize(
                cost, begin, method="Nelder-Mead", options={"maxfev": 300 * len(begin), "fatol": 1e-3}
            )
            found = minimize(cost, tried.x, method="BFGS")
        if not found.fun < _WORST:
            return None, math.inf
        return cls.from_free(found.x.tolist(), t), float(found.fun)

    def intervals(
        self, hours: Any, ended: Any, *, level: float = 0.95, by: By = "likelihood", seed: int = 0
    ) -> dict[str, tuple[float, float]]:
        """Of each parameter, from the observations that it was fitted to, in the same way.

        By likelihood from the curvature at the maximum, and open where that tells nothing; by least squares, whose
        points depend on each other, from fits to observations drawn anew.
        """
        t, died = observations(hours, ended)
        check_level(level)
        if by == "least_squares":
            rng = np.random.default_rng(seed)
            rows = (rng.integers(len(t), size=len(t)) for _ in range(BOOTSTRAP_FITS))
            drawn = [type(self).fit(t[row], died[row], by=by) for row in rows if died[row].sum() >= MIN_DEATHS]
            alike = [each for model in drawn if len(each := model.values()) == len(self.values())]
            tails = np.quantile(alike, [0.5 - level / 2, 0.5 + level / 2], axis=0)
            return {p.name: (float(a), float(b)) for p, a, b in zip(self.PARAMETERS, *tails, strict=False)}
        free = np.array(self.to_free(self.values(), t))
        covariance, values = self._covariance(free, t, died), self.values()
        found = {}
        for i, (p, value) in enumerate(zip(self.PARAMETERS, values, strict=False)):
            slope = self._slope(i, free, t)
            variance = float(slope @ covariance @ slope)
            # What the observations do not tell has no curvature: any value will do.
            wide = float(ndtri(0.5 + level / 2)) * math.sqrt(variance) if variance > 0.0 else math.inf
            found[p.name] = p.value(p.free(value) - wide), p.value(p.free(value) + wide)
        return found

    def _slope(self, i: int, free: Array, t: Array) -> Array:
        """How a parameter, on its own scale, follows what is searched for: as a rule, that is itself."""
        scale, step = self.PARAMETERS[i], 1e-4 * np.eye(len(free))
        moved = (type(self).from_free(each.tolist(), t).values()[i] for each in (*(free + step), *(free - step)))
        up, down = np.array([scale.free(value) for value in moved]).reshape(2, len(free))
        return np.asarray((up - down) / 2e-4)

    def _covariance(self, free: Array, t: Array, died: Any) -> Array:
        """Of the free parameters: the inverse of the curvature, by differences."""
        n, step = len(free), 1e-3

        within = clock(t, died)

        def cost(at: Array) -> float:
            return -float(_log_likelihoods(type(self).from_free(at.tolist(), t), t, died, within).sum())

        moves = step * np.eye(n)
        curvature = np.empty((n, n))
        for i in range(n):
            for j in range(n):
                ends = [cost(free + a * moves[i] + b * moves[j]) for a in (1, -1) for b in (1, -1)]
                curvature[i, j] = (ends[0] - ends[1] - ends[2] + ends[3]) / (4.0 * step**2)
        return np.asarray(np.linalg.pinv(0.5 * (curvature + curvature.T), hermitian=True))


def clock(t: Array, died: Any) -> float:
    """How far from the truth recorded hours may be: half of the least that two of them differ by, where many are
    equal; 0 where they are not.

    Of hours that were rounded, a form could tell the few that are left ever more sharply, and nothing else.
    """
    told, counts = np.unique(t[died], return_counts=True)
    if counts[counts > 1].sum() <= TIED * counts.sum():
        return 0.0
    least = float(np.diff(told).min()) if len(told) > 1 else 0.01 * float(told[0])
    return 0.5 * max(least, MIN_LIFETIME_HOURS)


def _log_likelihoods(model: Lifetime, t: Array, died: Any, within: float) -> Array:
    """Of a death, the density; where the clock is coarse, the mean density between its ticks."""
    alive = model.log_survival(t)
    if not within:
        return np.where(died, model.log_density(t), alive)
    before, after = model.log_survival(np.maximum(t - within, 0.0)), model.log_survival(t + within)
    with np.errstate(divide="ignore", invalid="ignore"):
        dying = before + np.log(-np.expm1(np.minimum(after - before, 0.0)))
    return np.where(died, dying - np.log(within + np.minimum(t, within)), alive)


def _gathered(t: Array, died: Any, counts: Array) -> tuple[Array, Any, Array]:
    """Of many observations, those that are all but alike together: it takes as long to fit as there are ages."""
    if len(t) <= MANY:
        return t, died, counts
    near = np.exp(np.round(np.log(t) / NEAR) * NEAR)
    ages, places = np.unique(np.stack([near, died]), axis=1, return_inverse=True)
    places = places.ravel()
    together = np.asarray(np.bincount(places, counts), dtype=float)
    return np.bincount(places, counts * t) / together, ages[1].astype(bool), together
