"""Fits of lifetime distributions, with confidence intervals.

A fit uses maximum likelihood, or least squares on the Kaplan-Meier curve.
"""

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
"""Starting points of the search, each a list of parameters in their own units. A shorter list stands for the
distribution without its last parameters. Schwarz's criterion decides between the distributions with and without
them."""

MIN_LOSSES = 2  # the fewest preemptions to which a distribution is fitted
MAX_TIED_SHARE = 0.05  # largest share of equal lifetimes among preempted machines; with more, they were rounded
MAX_SEPARATE_OBSERVATIONS = (
    5000  # more observations are grouped by age, because a fit's time grows with their number
)
GROUP_WIDTH = 0.004  # width of a group of ages, as a share of the age
BOOTSTRAP_FITS = 100  # number of fits for the intervals of a fit by least squares
_IMPOSSIBLE = 1e12  # the cost of parameters that have no distribution


class FitParameter(NamedTuple):
    """A parameter of a distribution, with the scale and the prior of its search."""

    name: str
    scale: Literal["log", "logit", "plain"]
    """The scale of the search: "log" for values above 0, "logit" for values between 0 and 1, "plain" for
    others."""
    width: float = 20.0
    """Standard deviation of the normal prior around the starting point, on that scale. The default is nearly flat;
    it only bounds parameters that the observations do not determine."""

    def check(self, form: str, value: float) -> None:
        """Raise a SettingError unless `value` is possible.

        `form` is the distribution's name.
        """
        if self.scale == "log" and not value > 0.0:
            raise SettingError(f"{form}: {self.name} {value:g} must be above 0")
        if self.scale == "logit" and not 0.0 <= value <= 1.0:
            raise SettingError(f"{form}: {self.name} {value:g} must be between 0 and 1")
        if math.isnan(value):
            raise SettingError(f"{form}: {self.name} is not a number")

    def free(self, value: float) -> float:
        """Return the value on the scale of the search."""
        return float({"log": math.log, "logit": logit, "plain": float}[self.scale](value))

    def value(self, free: float) -> float:
        """Return the value in its own units; the inverse of `free`."""
        return float({"log": np.exp, "logit": expit, "plain": float}[self.scale](free))


class Fitted(Lifetime):
    """A distribution with fitted parameters.

    `PARAMETERS` are the dataclass's fields, in the same order.
    """

    __slots__ = ()
    PARAMETERS: ClassVar[tuple[FitParameter, ...]]

    def __post_init__(self) -> None:
        for parameter in self.PARAMETERS:
            parameter.check(type(self).__name__, getattr(self, parameter.name))

    @classmethod
    @abstractmethod
    def starts(cls, t: Array, died: Array, counts: Array) -> Starts:
        """Return the starting points of the search.

        `t` are the observed ages in hours, `died` is 1 for preempted machines and 0 for others, and `counts` are
        the weights of the observations.
        """

    @classmethod
    def from_free(cls, free: Sequence[float], t: Array) -> Self:  # noqa: ARG003 (subclasses use the greatest age)
        """Return the distribution for these values on the scales of the search.

        `t` are the observed ages.
        """
        return cls(*(parameter.value(each) for parameter, each in zip(cls.PARAMETERS, free, strict=False)))

    @classmethod
    def to_free(cls, values: Sequence[float], t: Array) -> list[float]:  # noqa: ARG003
        """Return these parameters on the scales of the search.

        This function is the inverse of `from_free`.
        """
        return [parameter.free(each) for parameter, each in zip(cls.PARAMETERS, values, strict=False)]

    def values(self) -> list[float]:
        """Return the parameters' values.

        The last ones are omitted if the distribution does not use them.
        """
        return [getattr(self, parameter.name) for parameter in self.PARAMETERS]

    @classmethod
    def fit(cls, hours: Any, ended: Any, *, by: By = "likelihood", weights: Any = None) -> Self:
        """Fit the distribution to lifetimes in hours.

        - `ended`: true if the provider preempted the machine; false if its user stopped it while it was alive.
        - `weights`: the weight of each observation; 1 by default.
        """
        t, died = observations(hours, ended)
        if died.sum() < MIN_LOSSES:
            count = "1 preemption" if died.sum() else "no preemption"
            raise SettingError(f"lifetimes: {count} among {len(t)} machines; at least {MIN_LOSSES} are needed")
        if by not in get_args(By):
            raise SettingError(f"lifetimes: by {by!r} must be one of {', '.join(map(repr, get_args(By)))}")
        counts = np.ones(len(t)) if weights is None else np.asarray(weights, dtype=float)
        if by == "likelihood":
            t, died, counts = _grouped_by_age(t, died, counts)
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
        """Search from one starting point.

        Return the best distribution and its cost, or None and infinity.
        """
        center, widths = np.array(start), np.array([p.width for p in cls.PARAMETERS[: len(start)]])
        curve = KaplanMeier.fit(t, died) if by == "least_squares" else None
        rounding = rounding_hours(t, died)

        def prior(free: Array) -> float:
            return 0.5 * float(np.sum(((free - center) / widths) ** 2))

        def cost(free: Array) -> float:
            try:
                model = cls.from_free(free.tolist(), t)
            except (ArithmeticError, ValueError):  # such extreme parameters have no distribution
                return _IMPOSSIBLE
            if curve is not None:
                squares = float(np.sum((model.cdf(curve.ages) - (1.0 - curve.alive)) ** 2))
                total = squares + 1e-6 * prior(free)
            else:
                total = prior(free) - float(counts @ _log_likelihoods(model, t, died, rounding))
            return total if math.isfinite(total) else _IMPOSSIBLE

        with np.errstate(all="ignore"):
            rough = minimize(
                cost, center, method="Nelder-Mead", options={"maxfev": 300 * len(center), "fatol": 1e-3}
            )
            optimum = minimize(cost, rough.x, method="BFGS")
        if not optimum.fun < _IMPOSSIBLE:
            return None, math.inf
        return cls.from_free(optimum.x.tolist(), t), float(optimum.fun)

    def intervals(
        self, hours: Any, ended: Any, *, level: float = 0.95, by: By = "likelihood", seed: int = 0
    ) -> dict[str, tuple[float, float]]:
        """Return the confidence interval of each parameter, by its name.

        Give the same observations and the same `by` as to `fit`. By likelihood, intervals come from the curvature
        at the maximum; an interval without curvature is infinite. By least squares, where the points of the curve
        are not independent, they come from fits to bootstrap samples.
        """
        t, died = observations(hours, ended)
        check_level(level)
        if by == "least_squares":
            rng = np.random.default_rng(seed)
            rows = (rng.integers(len(t), size=len(t)) for _ in range(BOOTSTRAP_FITS))
            models = [type(self).fit(t[row], died[row], by=by) for row in rows if died[row].sum() >= MIN_LOSSES]
            same_form = [values for model in models if len(values := model.values()) == len(self.values())]
            tails = np.quantile(same_form, [0.5 - level / 2, 0.5 + level / 2], axis=0)
            return {p.name: (float(a), float(b)) for p, a, b in zip(self.PARAMETERS, *tails, strict=False)}
        free = np.array(self.to_free(self.values(), t))
        covariance, values = self._covariance(free, t, died), self.values()
        intervals = {}
        for i, (p, value) in enumerate(zip(self.PARAMETERS, values, strict=False)):
            gradient = self._gradient(i, free, t)
            variance = float(gradient @ covariance @ gradient)
            # Without curvature the observations do not determine the parameter: any value is as likely.
            half_width = float(ndtri(0.5 + level / 2)) * math.sqrt(variance) if variance > 0.0 else math.inf
            intervals[p.name] = p.value(p.free(value) - half_width), p.value(p.free(value) + half_width)
        return intervals

    def _gradient(self, i: int, free: Array, t: Array) -> Array:
        """Return the gradient of parameter i by the parameters of the search.

        Parameter i is on its own scale. The gradient is a unit vector unless a subclass overrides `from_free`.
        """
        parameter, step = self.PARAMETERS[i], 1e-4
        steps = step * np.eye(len(free))
        points = (*(free + steps), *(free - steps))
        values = (type(self).from_free(point.tolist(), t).values()[i] for point in points)
        up, down = np.array([parameter.free(value) for value in values]).reshape(2, len(free))
        return np.asarray((up - down) / (2.0 * step))

    def _covariance(self, free: Array, t: Array, died: Any) -> Array:
        """Return the covariance of the parameters of the search.

        This is the inverse of the cost's second derivatives, which are computed by finite differences.
        """
        n, step = len(free), 1e-3

        rounding = rounding_hours(t, died)

        def cost(point: Array) -> float:
            return -float(_log_likelihoods(type(self).from_free(point.tolist(), t), t, died, rounding).sum())

        moves = step * np.eye(n)
        curvature = np.empty((n, n))
        for i in range(n):
            for j in range(n):
                corners = [cost(free + a * moves[i] + b * moves[j]) for a in (1, -1) for b in (1, -1)]
                curvature[i, j] = (corners[0] - corners[1] - corners[2] + corners[3]) / (4.0 * step**2)
        return np.asarray(np.linalg.pinv(0.5 * (curvature + curvature.T), hermitian=True))


def rounding_hours(t: Array, died: Any) -> float:
    """Return the rounding error of recorded lifetimes, in hours.

    The error is half of the smallest difference between two lifetimes. It is 0 if few preempted machines have
    equal lifetimes. With many equal lifetimes and no rounding error, a distribution could concentrate its density
    on the few distinct lifetimes and gain likelihood without limit.
    """
    distinct, counts = np.unique(t[died], return_counts=True)
    if counts[counts > 1].sum() <= MAX_TIED_SHARE * counts.sum():
        return 0.0
    least = float(np.diff(distinct).min()) if len(distinct) > 1 else 0.01 * float(distinct[0])
    return 0.5 * max(least, MIN_LIFETIME_HOURS)


def _log_likelihoods(model: Lifetime, t: Array, died: Any, rounding: float) -> Array:
    """Return the log-likelihood of each observation.

    The likelihood of a preemption is the density at that age, or the mean density within the rounding error.
    """
    alive = model.log_survival(t)
    if not rounding:
        return np.where(died, model.log_density(t), alive)
    before, after = model.log_survival(np.maximum(t - rounding, 0.0)), model.log_survival(t + rounding)
    with np.errstate(divide="ignore", invalid="ignore"):
        dying = before + np.log(-np.expm1(np.minimum(after - before, 0.0)))
    return np.where(died, dying - np.log(rounding + np.minimum(t, rounding)), alive)


def _grouped_by_age(t: Array, died: Any, counts: Array) -> tuple[Array, Any, Array]:
    """Merge observations of nearly equal age, if there are many.

    Up to `MAX_SEPARATE_OBSERVATIONS` stay separate. A group has the mean age and the summed weight of its
    observations.
    """
    if len(t) <= MAX_SEPARATE_OBSERVATIONS:
        return t, died, counts
    group_ages = np.exp(np.round(np.log(t) / GROUP_WIDTH) * GROUP_WIDTH)
    groups, group_of = np.unique(np.stack([group_ages, died]), axis=1, return_inverse=True)
    group_of = group_of.ravel()
    weights = np.asarray(np.bincount(group_of, counts), dtype=float)
    return np.bincount(group_of, counts * t) / weights, groups[1].astype(bool), weights
