"""The acquisition function: the logarithm of the expected improvement, plus terms for constraints and cost.

Ament et al. 2023, "Unexpected improvements to expected improvement": far from the best point, the expected
improvement and its gradient underflow to 0, while its logarithm still has a gradient to follow.
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
_MAX_EXPONENT = 700.0
"""exp() of a larger number overflows."""

_TAIL_BELOW = -1e3
"""Below this z, cancellation takes the digits of 1 - |z| sqrt(pi/2) erfcx(|z|/sqrt(2)), which is 1/z^2 to six
digits."""


def log_h(z: Array) -> Array:
    """Return log h(z); h(z) = phi(z) + z Phi(z) is the expected improvement in standard deviations."""
    z = np.asarray(z, dtype=float)
    out = np.empty_like(z)
    near = z > -1.0
    z_near = z[near]
    out[near] = np.log(np.exp(-0.5 * z_near * z_near - _LOG_SQRT_2PI) + z_near * ndtr(z_near))
    z_far = z[~near]
    clipped = np.maximum(z_far, _TAIL_BELOW)
    tail = np.log1p(_SQRT_HALF_PI * clipped * erfcx(-clipped / math.sqrt(2.0)))
    tail = np.where(z_far < _TAIL_BELOW, -2.0 * np.log(-z_far), tail)
    out[~near] = -0.5 * z_far * z_far - _LOG_SQRT_2PI + tail
    return out


def log_h_derivative(z: Array, log_h_z: Array) -> Array:
    """Return the derivative of log h, which is Phi(z) / h(z)."""
    in_tail = z < _TAIL_BELOW  # there, the difference of two large logarithms has few correct digits
    derivative: Array = np.where(in_tail, -z, np.exp(np.where(in_tail, 0.0, log_ndtr(z) - log_h_z)))
    return derivative


class AcquisitionTerm(Protocol):
    """A summand of the acquisition function."""

    def __call__(self, X: Array) -> Array:
        """Return the term (m,) at points X (m, D); higher is better."""
        ...

    def with_gradient(self, X: Array) -> tuple[Array, Array]:
        """Return the term (m,) and its derivative by each point (m, D)."""
        ...


class LogEI:
    """The log expected improvement below `best` (S,), averaged over the draws of theta: log mean_s EI_s."""

    def __init__(self, posterior: Posterior, best: Array) -> None:
        self.posterior = posterior
        self._best = best[:, None]

    def __call__(self, X: Array) -> Array:
        return self.from_moments(*self.posterior.predict(X))

    def from_moments(self, mean: Array, variance: Array) -> Array:
        """Return the term (m,) at points with these means and variances, (S, m) each."""
        sigma = np.sqrt(variance)
        log_ei = np.log(sigma) + log_h((self._best - mean) / sigma)
        averaged: Array = _log_sum_exp(log_ei) - math.log(len(log_ei))
        return averaged

    def with_gradient(self, X: Array) -> tuple[Array, Array]:
        mean, variance, mean_gradient, variance_gradient = self.posterior.predict_with_gradient(X)
        sigma = np.sqrt(variance)
        z = (self._best - mean) / sigma
        log_hz = log_h(z)
        log_ei = np.log(sigma) + log_hz
        total = _log_sum_exp(log_ei)
        weight = np.exp(log_ei - total)
        # With g = (log h)': d log EI_s = d sigma / sigma + g dz, and dz = -(d mean + z d sigma) / sigma.
        g = log_h_derivative(z, log_hz)
        by_mean = -weight * g / sigma
        by_variance = weight * (1.0 - g * z) / (2.0 * variance)
        gradient = np.einsum("sm,smd->md", by_mean, mean_gradient)
        gradient += np.einsum("sm,smd->md", by_variance, variance_gradient)
        return total - math.log(len(log_ei)), gradient


class LogProbabilityBelow:
    """The log probability that f is below a limit, for a posterior with one draw of theta."""

    def __init__(self, posterior: Posterior, limit: float) -> None:
        self._posterior = posterior
        self._limit = limit

    def __call__(self, X: Array) -> Array:
        mean, variance = self._posterior.predict(X)
        log_probability: Array = log_ndtr((self._limit - mean[0]) / np.sqrt(variance[0]))
        return log_probability

    def with_gradient(self, X: Array) -> tuple[Array, Array]:
        mean, variance, mean_gradient, variance_gradient = self._posterior.predict_with_gradient(X)
        sigma = np.sqrt(variance[0])
        z = (self._limit - mean[0]) / sigma
        log_probability = log_ndtr(z)
        ratio = 1.0 / (_SQRT_HALF_PI * erfcx(-z / math.sqrt(2.0)))  # phi / Phi
        by_mean, by_variance = -ratio / sigma, -ratio * z / (2.0 * variance[0])
        return log_probability, by_mean[:, None] * mean_gradient[0] + by_variance[:, None] * variance_gradient[0]


class NegativeLogCost:
    """Minus the expected log cost, for a posterior with one draw of theta.

    The sum of this term and log EI is the log expected improvement per second.
    """

    def __init__(self, posterior: Posterior, scale: float) -> None:
        """Take the model of the normalised log cost; `scale` is the standard deviation of log seconds."""
        self._posterior = posterior
        self._scale = scale

    def __call__(self, X: Array) -> Array:
        negative_log_cost: Array = -self._scale * self._posterior.predict(X)[0][0]
        return negative_log_cost

    def with_gradient(self, X: Array) -> tuple[Array, Array]:
        mean, _, mean_gradient, _ = self._posterior.predict_with_gradient(X)
        return -self._scale * mean[0], -self._scale * mean_gradient[0]


class Acquisition:
    """The acquisition function: a sum of terms. The next trial is the point at which it is highest."""

    def __init__(self, improvement: LogEI | None, others: Sequence[AcquisitionTerm], posterior: Posterior) -> None:
        """Take the terms and the objective's posterior; `improvement` is None if no point is feasible yet."""
        self._improvement = improvement
        self._others = others
        self._posterior = posterior

    def expected_gain(self, X: Array) -> float | None:
        """Return the expected improvement at X (1, D), times the probability that X meets all constraints.

        The unit is that of the normalised values. Returns None if no point is feasible yet.
        """
        if self._improvement is None:
            return None
        log_feasible = sum(float(term(X)[0]) for term in self._others if isinstance(term, LogProbabilityBelow))
        return math.exp(min(float(self._improvement(X)[0]) + log_feasible, _MAX_EXPONENT))

    def with_moments(self, X: Array) -> tuple[Array, Array, Array]:
        """Return the acquisition (m,), and the objective's means and variances (S, m)."""
        mean, variance = self._posterior.predict(X)
        acquisition = self._improvement.from_moments(mean, variance) if self._improvement else np.zeros(len(X))
        for term in self._others:
            acquisition = acquisition + term(X)
        return acquisition, mean, variance

    def __call__(self, X: Array) -> Array:
        return self.with_moments(X)[0]

    def with_gradient(self, X: Array) -> tuple[Array, Array]:
        if self._improvement:
            acquisition, gradient = self._improvement.with_gradient(X)
        else:
            acquisition, gradient = np.zeros(len(X)), np.zeros(X.shape)
        for term in self._others:
            term_value, term_gradient = term.with_gradient(X)
            acquisition, gradient = acquisition + term_value, gradient + term_gradient
        return acquisition, gradient


def _log_sum_exp(logs: Array) -> Array:
    """Return log sum_s exp of logs (S, m); faster than scipy's on few rows. No column may be all -inf."""
    top = logs.max(axis=0)
    total: Array = top + np.log(np.exp(logs - top).sum(axis=0))
    return total
