"""The Gaussian process given observations: its means and variances, for several draws of theta at once."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri

from thriftune.search.bayes.kernel import (
    Array,
    Inputs,
    ThetaLayout,
    matern52,
    matern52_with_derivative,
    squared_distances,
)

JITTERS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2)
"""Shares of the signal variance. They are added to the diagonal in turn, until it has a Cholesky factor."""


class Trend(Protocol):
    """The predictions of sources; the process models what they leave unexplained.

    Observations have mean 0. The posterior therefore subtracts the trend's mean over the observed points, which
    may lie where the trend is low.
    """

    def mean(self, X: Array) -> Array:
        """Return the predicted values (m, sources) at X (m, D)."""
        ...

    def mean_with_gradient(self, X: Array) -> tuple[Array, Array]:
        """Return the predicted values, and their derivative by each point (m, sources, D)."""
        ...


class Posterior:
    """Means and variances of f for each of S thetas, given y at the first n points of X.

    The points of X after the first n are pending. Their values are fantasised for each draw of theta, from the
    model's prediction there. With K = L L' and z standard normal, the whitened vector [L11^-1 y, z] belongs to the
    values [y, y'] of observed and pending points. They are exactly y, and a draw from the prediction given y, with
    noise. A fantasy therefore costs no more than its row of L.
    """

    def __init__(
        self,
        layout: ThetaLayout,
        thetas: Array,
        X: Array,
        y: Array,
        z: Array | None = None,
        trend: Trend | None = None,
        extra_variance: Array | None = None,
    ) -> None:
        """Fit the process to y (n,) at X (n + m, D), for each of `thetas` (S, k).

        - `z` (S, m): standard normal numbers for the fantasies; None makes each fantasy the mean.
        - `extra_variance` (n,): variances of y in addition to the noise.
        """
        self.layout = layout
        self.thetas = thetas
        self._trend = trend
        self._earlier_weights = thetas[:, layout.earlier_weights]
        self._signal = np.exp(thetas[:, layout.SIGNAL])[:, None]
        noise = np.exp(thetas[:, layout.NOISE])
        self._E = Inputs(layout, X).embed(thetas)
        K = matern52(squared_distances(self._E, self._E))
        K *= self._signal[:, :, None]
        total, n = len(X), len(y)
        pending_zeros = np.zeros(total - n)
        extra = np.zeros(total) if extra_variance is None else np.concatenate([extra_variance, pending_zeros])
        trend_at_X = trend.mean(X) if trend else np.zeros((total, 0))
        self._trend_centre = trend_at_X[:n].mean(axis=0)
        weighted_trend = self._earlier_weights @ (trend_at_X - self._trend_centre).T
        self._root = np.empty_like(K)  # L^-1
        self._alpha = np.empty((len(thetas), total))  # K^-1 [y, fantasies]
        for s in range(len(thetas)):
            root = self._root[s] = inverse_factor(K[s], noise[s] + extra, float(self._signal[s, 0]))
            white = np.zeros(total) if z is None else np.concatenate([np.zeros(n), z[s]])
            white[:n] = root[:n, :n] @ (y - weighted_trend[s, :n])
            self._alpha[s] = white @ root
        self.mean_at_inputs: Array = (K @ self._alpha[:, :, None])[:, :, 0] + weighted_trend
        """(S, n + m) the means at X."""

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Return the means and variances of f at X (m, D): (S, m) each."""
        mean, K = self._mean_and_covariance(X)
        whitened = K @ np.swapaxes(self._root, 1, 2)
        return mean, self._variance(whitened)

    def mean(self, X: Array) -> Array:
        """Return only the means (S, m), which is much faster than predict()."""
        return self._mean_and_covariance(X)[0]

    def _mean_and_covariance(self, X: Array) -> tuple[Array, Array]:
        """Return the means at X (S, m), and the covariances with the model's points (S, m, n)."""
        E = Inputs(self.layout, X).embed(self.thetas)
        K = matern52(squared_distances(E, self._E))
        K *= self._signal[:, :, None]
        mean: Array = (K @ self._alpha[:, :, None])[:, :, 0]
        if self._trend:
            mean += self._earlier_weights @ (self._trend.mean(X) - self._trend_centre).T
        return mean, K

    def predict_with_gradient(self, X: Array) -> tuple[Array, Array, Array, Array]:
        """Return the means and variances (S, m), then the derivatives of both by each point (S, m, D)."""
        inputs = Inputs(self.layout, X)
        E = inputs.embed(self.thetas)
        K, K_derivative = matern52_with_derivative(squared_distances(E, self._E))
        K *= self._signal[:, :, None]
        K_derivative *= self._signal[:, :, None]
        mean: Array = (K @ self._alpha[:, :, None])[:, :, 0]
        whitened = K @ np.swapaxes(self._root, 1, 2)
        # By E_i, k(E_i, E_j) has the derivative 2 d_ij (E_i - E_j), where d is K_derivative. The variance
        # -k' K^-1 k has twice that, times -K^-1 k.
        by_mean = K_derivative * self._alpha[:, None, :]
        by_variance = K_derivative * (whitened @ self._root)
        chain = inputs.derivative_by_x(self.thetas)
        chain *= 2.0
        mean_gradient = chain * (by_mean.sum(axis=2)[:, :, None] * E - by_mean @ self._E)
        chain *= -2.0
        variance_gradient = chain * (by_variance.sum(axis=2)[:, :, None] * E - by_variance @ self._E)
        if self._trend:
            trend_mean, trend_gradient = self._trend.mean_with_gradient(X)
            mean += self._earlier_weights @ (trend_mean - self._trend_centre).T
            mean_gradient += np.einsum("se,med->smd", self._earlier_weights, trend_gradient)
        return mean, self._variance(whitened), mean_gradient, variance_gradient

    def _variance(self, whitened: Array) -> Array:
        """Return the variances (S, m); at least a small positive number, whatever the rounding."""
        variance: Array = self._signal - np.einsum("smn,smn->sm", whitened, whitened)
        return np.maximum(variance, 1e-12 * self._signal, out=variance)


def centred(trend: Array) -> Array:
    """Return a trend (n, sources) minus its mean over the observations, as a posterior uses it."""
    result: Array = trend - trend.mean(axis=0)
    return result


def inverse_factor(K: Array, noise: float | Array, signal: float) -> Array:
    """Return L^-1, where K + noise I = L L'; `noise` may differ by row.

    Adds the smallest of JITTERS with which a factor exists. Raises LinAlgError if none suffices.
    """
    for jitter in JITTERS:
        noisy = K.copy()
        noisy.ravel()[:: len(K) + 1] += noise + jitter * signal
        L, failed = dpotrf(noisy, lower=1, overwrite_a=1, clean=1)
        if not failed:
            inverse, failed = dtrtri(L, lower=1, overwrite_c=1)
            if not failed:
                return np.asarray(inverse)
    raise np.linalg.LinAlgError("the covariance of the observations has no Cholesky factor")
