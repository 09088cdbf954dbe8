"""How much is a point worth? The logarithm of its expected improvement, which never vanishes.

Ament et al. 2023, "Unexpected improvements to expected improvement": far from the best, EI underflows to 0 and its
gradient with it, while its logarithm is a fine landscape to climb.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

from thriftune.search.bayes.kernel import Array
from thriftune.search.bayes.posterior import Posterior

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_SQRT_HALF_PI = math.sqrt(0.5 * math.pi)
_LARGEST_LOG = 700.0
"""exp() of more is no number."""

_FAR = -1e3
"""Below, 1 - |z| sqrt(pi/2) erfcx(|z|/sqrt(2)) loses its digits to cancellation and is 1/z^2 to six of them."""


def log_h(z: Array) -> Array:
    """log of h(z) = phi(z) + z Phi(z), the expected improvement in units of the standard deviation."""
    z = np.asarray(z, dtype=float)
    out = np.empty_like(z)
    near = z > -1.0
    zn = z[near]
    out[near] = np.log(np.exp(-0.5 * zn * zn - _LOG_SQRT_2PI) + zn * ndtr(zn))
    zf = z[~near]
    far = np.maximum(zf, _FAR)
    tail = np.log1p(_SQRT_HALF_PI * far * erfcx(-far / math.sqrt(2.0)))
    tail = np.where(zf < _FAR, -2.0 * np.log(-zf), tail)
    out[~near] = -0.5 * zf * zf - _LOG_SQRT_2PI + tail
    return out


def log_h_slope(z: Array, log_h_z: Array) -> Array:
    """The derivative of log_h: Phi(z) / h(z)."""
    far = z < _FAR  # where both logarithms are so large that their difference has few digits or none
    slope: Array = np.where(far, -z, np.exp(np.where(far, 0.0, log_ndtr(z) - log_h_z)))
    return slope


class Term(Protocol):
    """Something that makes a point worth more or less, as a logarithm."""

    def __call__(self, X: Array) -> Array:
        """(m,) at X (m, D)."""
        ...

    def with_slope(self, X: Array) -> tuple[Array, Array]:
        """The same, and its derivative by each point: (m,), (m, D)."""
        ...


class LogEI:
    """log EI below `best` (S,), averaged over the draws of theta: log mean_s EI_s."""

    def __init__(self, posterior: Posterior, best: Array) -> None:
        self.posterior = posterior
        self._best = best[:, None]

    def __call__(self, X: Array) -> Array:
        return self.of(*self.posterior.predict(X))

    def of(self, mean: Array, variance: Array) -> Array:
        """(m,) at points with these means and variances, (S, m)."""
        sigma = np.sqrt(variance)
        each = np.log(sigma) + log_h((self._best - mean) / sigma)
        averaged: Array = _log_sum(each) - math.log(len(each))
        return averaged

    def with_slope(self, X: Array) -> tuple[Array, Array]:
        mean, variance, mean_slope, variance_slope = self.posterior.predict_with_slope(X)
        sigma = np.sqrt(variance)
        z = (self._best - mean) / sigma
        log_hz = log_h(z)
        each = np.log(sigma) + log_hz
        total = _log_sum(each)
        weight = np.exp(each - total)
        # With g = (log h)': d log EI_s = d sigma / sigma + g dz, and dz = -(d mean + z d sigma) / sigma.
        g = log_h_slope(z, log_hz)
        by_mean = -weight * g / sigma
        by_variance = weight * (1.0 - g * z) / (2.0 * variance)
        slope = np.einsum("sm,smd->md", by_mean, mean_slope) + np.einsum("sm,smd->md", by_variance, variance_slope)
        return total - math.log(len(each)), slope


class LogBelow:
    """The log probability that f is below a limit; of a posterior with one draw."""

    def __init__(self, posterior: Posterior, limit: float) -> None:
        self._posterior = posterior
        self._limit = limit

    def __call__(self, X: Array) -> Array:
        mean, variance = self._posterior.predict(X)
        log_probability: Array = log_ndtr((self._limit - mean[0]) / np.sqrt(variance[0]))
        return log_probability

    def with_slope(self, X: Array) -> tuple[Array, Array]:
        mean, variance, mean_slope, variance_slope = self._posterior.predict_with_slope(X)
        sigma = np.sqrt(variance[0])
        z = (self._limit - mean[0]) / sigma
        log_probability = log_ndtr(z)
        ratio = 1.0 / (_SQRT_HALF_PI * erfcx(-z / math.sqrt(2.0)))  # phi / Phi
        by_mean, by_variance = -ratio / sigma, -ratio * z / (2.0 * variance[0])
        return log_probability, by_mean[:, None] * mean_slope[0] + by_variance[:, None] * variance_slope[0]


class Cheap:
    """Minus the expected log cost; added to log EI it gives the improvement a second. Of one draw."""

    def __init__(self, posterior: Posterior, scale: float) -> None:
        """`scale`: what one unit of the posterior is in log seconds."""
        self._posterior = posterior
        self._scale = scale

    def __call__(self, X: Array) -> Array:
        cheap: Array = -self._scale * self._posterior.predict(X)[0][0]
        return cheap

    def with_slope(self, X: Array) -> tuple[Array, Array]:
        mean, _, mean_slope, _ = self._posterior.predict_with_slope(X)
        return -self._scale * mean[0], -self._scale * mean_slope[0]


class Worth:
    """What a point is worth: the sum of terms. The objective's model also says where f may be lowest."""

    def __init__(self, objective: LogEI | None, others: Sequence[Term], posterior: Posterior) -> None:
        """`objective` None: nothing is eligible yet, so that only the others count."""
        self._objective = objective
        self._others = others
        self._posterior = posterior

    def gain(self, X: Array) -> float | None:
        """The expected improvement at a point X (1, D), times the probability that it meets all constraints.

        In units of the model; None where nothing is eligible yet.
        """
        if self._objective is None:
            return None
        limits = sum(float(term(X)[0]) for term in self._others if isinstance(term, LogBelow))
        return math.exp(min(float(self._objective(X)[0]) + limits, _LARGEST_LOG))

    def look(self, X: Array) -> tuple[Array, Array, Array]:
        """(m,) worth; means and variances of f (S, m)."""
        mean, variance = self._posterior.predict(X)
        worth = self._objective.of(mean, variance) if self._objective else np.zeros(len(X))
        for term in self._others:
            worth = worth + term(X)
        return worth, mean, variance

    def __call__(self, X: Array) -> Array:
        return self.look(X)[0]

    def with_slope(self, X: Array) -> tuple[Array, Array]:
        worth, slope = self._objective.with_slope(X) if self._objective else (np.zeros(len(X)), np.zeros(X.shape))
        for term in self._others:
            more, steeper = term.with_slope(X)
            worth, slope = worth + more, slope + steeper
        return worth, slope


def _log_sum(each: Array) -> Array:
    """log sum_s exp; much faster on few rows than scipy's, and -inf nowhere."""
    top = each.max(axis=0)
    total: Array = top + np.log(np.exp(each - top).sum(axis=0))
    return total
