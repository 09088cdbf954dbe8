"""What is to be expected where? The Gaussian process given observations, for several draws of theta at once."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri

from thriftune.search.bayes.kernel import (
    Array,
    Inputs,
    Layout,
    matern52,
    matern52_with_slope,
    squared_distances,
)

JITTERS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2)
"""Of the signal variance, added to the diagonal until there is a Cholesky factor."""


class Trend(Protocol):
    """What is known of f from elsewhere; the process is what that does not explain.

    Observations have mean 0, so a trend counts less its mean over them: they may lie where it is low.
    """

    def at(self, X: Array) -> Array:
        """(m, sources) at X (m, D)."""
        ...

    def with_slope(self, X: Array) -> tuple[Array, Array]:
        """The same, and its derivative by each point: (m, sources, D)."""
        ...


class Posterior:
    """Means and variances of f under each of S thetas, given y at the first n points of X.

    The points of X after the first n are pending. Their values are fantasised, anew for each draw, from what the
    model expects there. With K = L L', the values [y, y'] of observed and pending points that belong to the
    whitened [L11^-1 y, z], z standard normal, are exactly y and a draw from the model's prediction given y, noise
    included; so a fantasy costs no more than its row of L.
    """

    def __init__(
        self,
        layout: Layout,
        thetas: Array,
        X: Array,
        y: Array,
        z: Array | None = None,
        trend: Trend | None = None,
        unsure: Array | None = None,
    ) -> None:
        """`thetas` (S, k); X (n + m, D); y (n,); z (S, m), standard normal; `unsure` (n,): variances of y besides
        the noise."""
        self.layout = layout
        self.thetas = thetas
        self._trend = trend
        self._shares = thetas[:, layout.shares]
        self._signal = np.exp(thetas[:, layout.SIGNAL])[:, None]
        noise = np.exp(thetas[:, layout.NOISE])
        self._E = Inputs(layout, X).embed(thetas)
        K = matern52(squared_distances(self._E, self._E))
        K *= self._signal[:, :, None]
        total, n = len(X), len(y)
        unsure = np.zeros(total) if unsure is None else np.concatenate([unsure, np.zeros(total - n)])
        level = trend.at(X) if trend else np.zeros((total, 0))
        self._middle = level[:n].mean(axis=0)
        of_trend = self._shares @ (level - self._middle).T
        self._root = np.empty_like(K)  # L^-1
        self._alpha = np.empty((len(thetas), total))  # K^-1 [y, fantasies]
        for s in range(len(thetas)):
            root = self._root[s] = inverse_factor(K[s], noise[s] + unsure, float(self._signal[s, 0]))
            white = np.zeros(total) if z is None else np.concatenate([np.zeros(n), z[s]])
            white[:n] = root[:n, :n] @ (y - of_trend[s, :n])
            self._alpha[s] = white @ root
        self.known: Array = (K @ self._alpha[:, :, None])[:, :, 0] + of_trend
        """(S, n + m) the means at X."""

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Means and variances of f at X (m, D): (S, m) each."""
        mean, K = self._mean(X)
        half = K @ np.swapaxes(self._root, 1, 2)
        return mean, self._variance(half)

    def mean(self, X: Array) -> Array:
        """The means alone, which cost far less: (S, m)."""
        return self._mean(X)[0]

    def _mean(self, X: Array) -> tuple[Array, Array]:
        """The means at X, and the covariances with the points of the model: (S, m) and (S, m, n)."""
        E = Inputs(self.layout, X).embed(self.thetas)
        K = matern52(squared_distances(E, self._E))
        K *= self._signal[:, :, None]
        mean: Array = (K @ self._alpha[:, :, None])[:, :, 0]
        if self._trend:
            mean += self._shares @ (self._trend.at(X) - self._middle).T
        return mean, K

    def predict_with_slope(self, X: Array) -> tuple[Array, Array, Array, Array]:
        """The same, and the derivatives of both by each point: (S, m, D)."""
        inputs = Inputs(self.layout, X)
        E = inputs.embed(self.thetas)
        K, slope = matern52_with_slope(squared_distances(E, self._E))
        K *= self._signal[:, :, None]
        slope *= self._signal[:, :, None]
        mean: Array = (K @ self._alpha[:, :, None])[:, :, 0]
        half = K @ np.swapaxes(self._root, 1, 2)
        # By E_i of k(E_i, E_j): 2 slope_ij (E_i - E_j). Of the variance, -k' K^-1 k, twice that times -K^-1 k.
        by_mean = slope * self._alpha[:, None, :]
        by_variance = slope * (half @ self._root)
        chain = inputs.slope(self.thetas)
        chain *= 2.0
        mean_slope = chain * (by_mean.sum(axis=2)[:, :, None] * E - by_mean @ self._E)
        chain *= -2.0
        variance_slope = chain * (by_variance.sum(axis=2)[:, :, None] * E - by_variance @ self._E)
        if self._trend:
            level, rise = self._trend.with_slope(X)
            mean += self._shares @ (level - self._middle).T
            mean_slope += np.einsum("se,med->smd", self._shares, rise)
        return mean, self._variance(half), mean_slope, variance_slope

    def _variance(self, half: Array) -> Array:
        """Rounding must not make a variance of 0 negative."""
        variance: Array = self._signal - np.einsum("smn,smn->sm", half, half)
        return np.maximum(variance, 1e-12 * self._signal, out=variance)


def centred(trend: Array) -> Array:
    """(n, sources) of a trend at the observations, as a posterior takes it."""
    less: Array = trend - trend.mean(axis=0)
    return less


def inverse_factor(K: Array, noise: float | Array, signal: float) -> Array:
    """L^-1 of K + noise I = L L'; with as little added to the diagonal as it takes. Noise may differ by row."""
    for jitter in JITTERS:
        noisy = K.copy()
        noisy.ravel()[:: len(K) + 1] += noise + jitter * signal
        L, failed = dpotrf(noisy, lower=1, overwrite_a=1, clean=1)
        if not failed:
            inverse, failed = dtrtri(L, lower=1, overwrite_c=1)
            if not failed:
                return np.asarray(inverse)
    raise np.linalg.LinAlgError("the covariance of the observations has no Cholesky factor")
