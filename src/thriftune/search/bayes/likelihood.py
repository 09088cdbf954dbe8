"""The posterior density of the hyperparameters: its logarithm, gradient and maximum."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dtrtrs
from scipy.optimize import minimize

from thriftune.search.bayes.kernel import (
    Array,
    Inputs,
    ThetaLayout,
    matern52,
    matern52_with_derivative,
    squared_distances,
)

LOG_LENGTH_SCALE_MEAN = math.log(0.2)
"""The prior mean of the log length scale of a single parameter. It is short, because a model that takes f for
smoother than it is misses narrow valleys."""

LOG_WARP_SD = 0.25
"""The prior standard deviation of log a and log b of a warping. Small: users mostly choose the right scale."""

EARLIER_WEIGHT_MEAN, EARLIER_WEIGHT_SD = 0.8, 0.8
"""The prior of a source's weight. A related study has about the same effects."""

_NO_DENSITY = 1e25
"""The negative log density that the minimiser sees where the covariance has no Cholesky factor."""


@dataclass(frozen=True)
class Prior:
    """Independent normal distributions of theta, truncated at bounds that avoid overflow."""

    mean: Array
    sd: Array
    low: Array
    high: Array

    def log_density(self, theta: Array) -> float:
        """Return the log density up to a constant."""
        z = (theta - self.mean) / self.sd
        return -0.5 * float(z @ z)

    def gradient(self, theta: Array) -> Array:
        return (self.mean - theta) / self.sd**2


def default_prior(layout: ThetaLayout) -> Prior:
    """Return the prior for observations with mean 0 and variance 1.

    Length scales grow with the root of the number of parameters, as distances in the unit cube do (Hvarfner et
    al. 2024, "Vanilla Bayesian optimization performs great in high dimensions").
    """
    mean, sd = np.zeros(layout.size), np.ones(layout.size)
    low, high = np.zeros(layout.size), np.zeros(layout.size)

    def set_prior(index: int | slice, centre: float, spread: float, lowest: float, highest: float) -> None:
        mean[index], sd[index], low[index], high[index] = centre, spread, lowest, highest

    # In a warm start, the process models only what the sources leave unexplained.
    log_signal = math.log(0.2) if layout.earlier_count else 0.0
    set_prior(layout.SIGNAL, log_signal, 1.0, math.log(1e-2), math.log(1e2))
    set_prior(layout.NOISE, math.log(1e-3), 2.0, math.log(1e-6), 0.0)
    log_length_scale = LOG_LENGTH_SCALE_MEAN + 0.5 * math.log(layout.parameter_count)
    set_prior(layout.length_scales, log_length_scale, 1.0, math.log(1e-2), math.log(1e3))
    set_prior(layout.warp_a, 0.0, LOG_WARP_SD, math.log(0.25), math.log(4.0))
    set_prior(layout.warp_b, 0.0, LOG_WARP_SD, math.log(0.25), math.log(4.0))
    set_prior(layout.earlier_weights, EARLIER_WEIGHT_MEAN, EARLIER_WEIGHT_SD, 0.0, 4.0)
    return Prior(mean, sd, low, high)


class LogPosterior:
    """The log posterior density of theta, up to a constant, given observations y (n,) at `inputs`.

    `trend` (n, sources) is what each source predicts at the inputs. The process models the
    residual.
    """

    def __init__(self, inputs: Inputs, y: Array, prior: Prior, trend: Array | None = None) -> None:
        self.inputs = inputs
        self.y = y
        self.prior = prior
        self.trend = np.zeros((len(y), 0)) if trend is None else trend

    def _residual(self, theta: Array) -> Array:
        return self.y - self.trend @ theta[self.inputs.layout.earlier_weights]

    def __call__(self, theta: Array) -> float:
        """Return the log density; -inf where the covariance has no Cholesky factor."""
        layout = self.inputs.layout
        E = self.inputs.embed(theta)
        K = matern52(squared_distances(E, E))
        K *= math.exp(theta[layout.SIGNAL])
        K.ravel()[:: len(K) + 1] += math.exp(theta[layout.NOISE])
        L, failed = dpotrf(K, lower=1, overwrite_a=0, clean=0)
        if failed:
            return -math.inf
        white, _ = dtrtrs(L, self._residual(theta), lower=1)
        fit = -0.5 * float(white @ white) - float(np.log(L.diagonal()).sum())
        return fit + self.prior.log_density(theta)

    def with_gradient(self, theta: Array) -> tuple[float, Array]:
        """Return the log density and its gradient by theta; (-inf, zeros) without a Cholesky factor."""
        layout = self.inputs.layout
        signal, noise = math.exp(theta[layout.SIGNAL]), math.exp(theta[layout.NOISE])
        E = self.inputs.embed(theta)
        M, M_derivative = matern52_with_derivative(squared_distances(E, E))
        K = signal * M
        K.ravel()[:: len(K) + 1] += noise
        L, failed = dpotrf(K, lower=1, overwrite_a=1, clean=0)
        if failed:
            return -math.inf, np.zeros(layout.size)
        white, _ = dtrtrs(L, self._residual(theta), lower=1)
        fit = -0.5 * float(white @ white) - float(np.log(L.diagonal()).sum())
        alpha, _ = dtrtrs(L, white, lower=1, trans=1)
        inverse, _ = dpotri(L, lower=1, overwrite_c=1)
        # A = alpha alpha' - K^-1; the derivative of the fit by K is A / 2. dpotri fills one triangle only.
        A = np.tril(inverse, -1)
        A += A.T
        A.ravel()[:: len(A) + 1] = inverse.diagonal()
        A *= -1.0
        A += np.outer(alpha, alpha)
        # By E_i: each pair is in K twice, and |E_i - E_j|^2 gives another factor 2: 4 sum_j G_ij (E_i - E_j).
        G = M_derivative
        G *= A
        G *= 0.5 * signal
        dE = 4.0 * (G.sum(axis=1)[:, None] * E - G @ E)
        gradient = self.inputs.gradient_by_theta(theta, E, dE)
        gradient[layout.SIGNAL] = 0.5 * signal * float(np.vdot(A, M))
        gradient[layout.NOISE] = 0.5 * noise * float(A.trace())
        gradient[layout.earlier_weights] = alpha @ self.trend
        gradient += self.prior.gradient(theta)
        return fit + self.prior.log_density(theta), gradient


def maximise(density: LogPosterior, start: Array, iterations: int) -> Array:
    """Return the theta with the highest density that L-BFGS finds from `start`, within the prior's bounds."""
    prior = density.prior

    def negative(theta: Array) -> tuple[float, Array]:
        value, gradient = density.with_gradient(theta)
        return (-value, -gradient) if math.isfinite(value) else (_NO_DENSITY, gradient)

    bounds = list(zip(prior.low, prior.high, strict=True))
    result = minimize(
        negative, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": iterations, "maxcor": 10}
    )
    best: Array = np.clip(result.x, prior.low, prior.high)
    return best
