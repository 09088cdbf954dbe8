"""Which hyperparameters explain the observations? Their log posterior, its gradient and its maximum."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dtrtrs
from scipy.optimize import minimize

from thriftune.search.bayes.kernel import (
    Array,
    Inputs,
    Layout,
    matern52,
    matern52_with_slope,
    squared_distances,
)

SCALE_MEAN = math.log(0.2)
"""Of the log length scale of a single parameter. Short: who takes f for smoother than it is misses its valleys."""

WARP_SD = 0.25
"""Scales are mostly given well; it takes some evidence to see them otherwise."""

SHARE_MEAN, SHARE_SD = 0.8, 0.8
"""A past study that is of use has about the same ups and downs."""


@dataclass(frozen=True)
class Prior:
    """Independent normals on theta, cut off at bounds that keep the numbers sane."""

    mean: Array
    sd: Array
    low: Array
    high: Array

    def log_density(self, theta: Array) -> float:
        """Up to a constant."""
        z = (theta - self.mean) / self.sd
        return -0.5 * float(z @ z)

    def slope(self, theta: Array) -> Array:
        return (self.mean - theta) / self.sd**2


def default_prior(layout: Layout) -> Prior:
    """On observations of mean 0 and variance 1.

    Length scales grow with the root of the number of parameters, as distances in the unit cube do (Hvarfner et
    al. 2024, "Vanilla Bayesian optimization performs great in high dimensions").
    """
    mean, sd = np.zeros(layout.size), np.ones(layout.size)
    low, high = np.zeros(layout.size), np.zeros(layout.size)

    def put(where: int | slice, centre: float, spread: float, least: float, most: float) -> None:
        mean[where], sd[where], low[where], high[where] = centre, spread, least, most

    # Where there is a trend, the process is what that leaves over.
    signal = math.log(0.2) if layout.sources else 0.0
    put(layout.SIGNAL, signal, 1.0, math.log(1e-2), math.log(1e2))
    put(layout.NOISE, math.log(1e-3), 2.0, math.log(1e-6), 0.0)
    centre = SCALE_MEAN + 0.5 * math.log(layout.parameters)
    put(layout.scales, centre, 1.0, math.log(1e-2), math.log(1e3))
    put(layout.a, 0.0, WARP_SD, math.log(0.25), math.log(4.0))
    put(layout.b, 0.0, WARP_SD, math.log(0.25), math.log(4.0))
    put(layout.shares, SHARE_MEAN, SHARE_SD, 0.0, 4.0)
    return Prior(mean, sd, low, high)


class LogPosterior:
    """The log posterior density of theta, up to a constant, given observations y (n,) at inputs.

    `trend` (n, sources): what each source of a warm start expects there; the process is what these do not explain.
    """

    def __init__(self, inputs: Inputs, y: Array, prior: Prior, trend: Array | None = None) -> None:
        self.inputs = inputs
        self.y = y
        self.prior = prior
        self.trend = np.zeros((len(y), 0)) if trend is None else trend

    def _rest(self, theta: Array) -> Array:
        return self.y - self.trend @ theta[self.inputs.layout.shares]

    def __call__(self, theta: Array) -> float:
        """-inf where the covariance has no Cholesky factor."""
        layout = self.inputs.layout
        E = self.inputs.embed(theta)
        K = matern52(squared_distances(E, E))
        K *= math.exp(theta[layout.SIGNAL])
        K.ravel()[:: len(K) + 1] += math.exp(theta[layout.NOISE])
        L, failed = dpotrf(K, lower=1, overwrite_a=0, clean=0)
        if failed:
            return -math.inf
        white, _ = dtrtrs(L, self._rest(theta), lower=1)
        fit = -0.5 * float(white @ white) - float(np.log(L.diagonal()).sum())
        return fit + self.prior.log_density(theta)

    def with_gradient(self, theta: Array) -> tuple[float, Array]:
        """The same, and its gradient by theta; zeros where it is -inf."""
        layout = self.inputs.layout
        signal, noise = math.exp(theta[layout.SIGNAL]), math.exp(theta[layout.NOISE])
        E = self.inputs.embed(theta)
        M, slope = matern52_with_slope(squared_distances(E, E))
        K = signal * M
        K.ravel()[:: len(K) + 1] += noise
        L, failed = dpotrf(K, lower=1, overwrite_a=1, clean=0)
        if failed:
            return -math.inf, np.zeros(layout.size)
        white, _ = dtrtrs(L, self._rest(theta), lower=1)
        fit = -0.5 * float(white @ white) - float(np.log(L.diagonal()).sum())
        alpha, _ = dtrtrs(L, white, lower=1, trans=1)
        inverse, _ = dpotri(L, lower=1, overwrite_c=1)
        # A = alpha alpha' - K^-1; the derivative of the fit by K is A / 2. dpotri fills one triangle only.
        A = np.tril(inverse, -1)
        A += A.T
        A.ravel()[:: len(A) + 1] = inverse.diagonal()
        A *= -1.0
        A += np.outer(alpha, alpha)
        # By E_i: every pair comes twice in K, and |E_i - E_j|^2 gives another 2: 4 sum_j G_ij (E_i - E_j).
        G = slope
        G *= A
        G *= 0.5 * signal
        dE = 4.0 * (G.sum(axis=1)[:, None] * E - G @ E)
        gradient = self.inputs.pull_back(theta, E, dE)
        gradient[layout.SIGNAL] = 0.5 * signal * float(np.vdot(A, M))
        gradient[layout.NOISE] = 0.5 * noise * float(A.trace())
        gradient[layout.shares] = alpha @ self.trend
        gradient += self.prior.slope(theta)
        return fit + self.prior.log_density(theta), gradient


def maximum(density: LogPosterior, start: Array, iterations: int) -> Array:
    """The theta of the highest density that L-BFGS finds from `start`, within the bounds."""
    prior = density.prior

    def negative(theta: Array) -> tuple[float, Array]:
        value, gradient = density.with_gradient(theta)
        return (-value, -gradient) if math.isfinite(value) else (1e25, gradient)

    bounds = list(zip(prior.low, prior.high, strict=True))
    found = minimize(
        negative, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": iterations, "maxcor": 10}
    )
    best: Array = np.clip(found.x, prior.low, prior.high)
    return best
