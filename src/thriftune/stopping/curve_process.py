"""How a learning curve is expected to go on: the average of Gaussian processes over forms.

A value at x, the steps since the stage began, is modelled as

    c + b phi(u) + wander(log x) + noise,  u = x / the last x seen

phi     a form: SpotTune Eq. 4, 1 / (1 + p u + q u^2) with p, q >= 0; or exp(-u / lifetime), for faster convergence
        (section V-B); or u^-1/2, the rate of stochastic gradients; or a jump at the largest change; or
        none. With b > 0 the curve falls; with b < 0 it rises, the reflection of one that falls.
wander  makes the fit a local one: a slope by log x that decays as that of 1/k, 1/k^2 or 1/k^4 does, or at once (a
        random walk), and is renewed on the way.
noise   independent, with a variance estimated around each value.

Given a form, a rate and a variance of the wander, this is a Gaussian process. Its prediction, the prediction's
variance and the evidence of the values have closed forms (Rasmussen and Williams 2006, section 2.7). The result is
the average over forms, rates and variances, weighted by the evidence. A curve that is all noise stays at its last
level; a trend is followed, but it fades.
"""

from __future__ import annotations

import numpy as np

from thriftune.stopping.curve_stages import Array

MIN_FITTED = 5  # values, if the stage has that many
_RATES = np.array([1.0, 2.0, 4.0, 32.0])
"""Rates at which the slope of the wander decays, by log x."""
# Variances of the wander, in units of the noise's variance.
_WANDER_VARIANCES = 10.0 ** np.array([-3.0, -1.0, 1.0, 3.0, 5.0])
_PQ = np.array([[2, 0], [10, 0], [1000, 0], [0, 2], [0, 10], [0, 50], [0, 1000]], dtype=float)
"""The pairs (p, q) of SpotTune Eq. 4 that are averaged over."""
_LIFETIMES = np.array([0.1, 0.2, 0.4, 0.8])
"""Lifetimes of the exponential forms, in units of the last x seen."""
_AMPLITUDE_VARIANCE = 1e3  # the variance of b, in units of the noise's variance


def expected_change(x: Array, z: Array, counts: Array, horizon: float) -> tuple[float, float]:
    """Return the change up to `horizon` and its standard deviation; the last of z is 0.

    Each value of z is a mean of `counts`. Arrays are (rates, variances of the wander, forms). In the basis of the
    eigenvectors of each rate's covariance, whitened by the noise, every inverse is diagonal. c has a flat prior
    and b a normal one. The variance of the noise, in units of which all variances are, is integrated out.
    """
    span = float(np.abs(z).max())
    if span == 0:
        return 0.0, 0.0
    n = len(x)
    forms = _forms(x, z, horizon)
    wander = _wander_covariances(np.log(np.append(x, horizon) / x[0]))
    noise = _noise(z)
    root = np.sqrt(counts / noise)
    eigenvalues, basis = np.linalg.eigh(root[:, None] * wander[:, :n, :n] * root)
    spread = 1 + _WANDER_VARIANCES[:, None] * np.maximum(eigenvalues, 0.0)[:, None, :]

    ones, y = root @ basis, (root * z / span) @ basis
    phi = (root * forms[:, :n]) @ basis
    to_horizon = ((root * wander[:, n, :n])[:, None] @ basis)[:, 0]

    def inner(a: Array, b: Array) -> Array:
        """Return a' K^-1 b for arrays of shape (rates, n) or (rates, forms, n)."""
        product = (a if a.ndim == 3 else a[:, None]) * (b if b.ndim == 3 else b[:, None])
        inner_product: Array = (1 / spread) @ product.transpose(0, 2, 1)
        return inner_product

    cc, cb, bb = inner(ones, ones), inner(ones, phi), inner(phi, phi) + 1 / _AMPLITUDE_VARIANCE
    cy, by = inner(ones, y), inner(phi, y)
    determinant = cc * bb - cb**2
    c, b = (bb * cy - cb * by) / determinant, (cc * by - cb * cy) / determinant
    squares = np.maximum(inner(y, y) - c * cy - b * by, 0.0) + 1e-8

    wander_variance = _WANDER_VARIANCES[:, None]
    missing_c, missing_b = (
        1 - wander_variance * inner(to_horizon, ones),
        forms[:, n] - wander_variance * inner(to_horizon, phi),
    )
    means = wander_variance * inner(to_horizon, y) + c * missing_c + b * missing_b
    variances = noise[-1] + wander_variance * wander[:, n, n][:, None, None]
    variances = variances - wander_variance**2 * inner(to_horizon, to_horizon)
    variances = variances + (bb * missing_c**2 - 2 * cb * missing_c * missing_b + cc * missing_b**2) / determinant
    variances = np.maximum(variances, 0.0) * squares / (n - 1)

    log_evidence = -(np.log(determinant) + np.log(spread).sum(axis=2)[:, :, None] + (n - 1) * np.log(squares)) / 2
    weights = np.exp(log_evidence - log_evidence.max())
    weights /= weights.sum()
    mean = float(np.sum(weights * means))
    std = float(np.sqrt(np.sum(weights * (variances + (means - mean) ** 2))))
    return span * mean, span * std * n / (n - 1)  # about what Student's t adds for few values


def _noise(z: Array) -> Array:
    """Return the variance of the noise around each value, divided by its mean.

    Curves get calmer as they settle, so it is estimated locally.
    """
    if len(z) < MIN_FITTED:
        return np.ones(len(z))
    bends = np.pad((z[:-2] - 2 * z[1:-1] + z[2:]) ** 2, 4, mode="edge")
    local = np.convolve(bends, np.full(7, 1 / 7), mode="valid")
    mean = local.mean()
    return (local + 0.1 * mean) / (1.1 * mean) if mean > 0 else np.ones(len(z))


def _forms(x: Array, z: Array, horizon: float) -> Array:
    """Return phi of each form (forms, n + 1), at the values and at the horizon.

    Each is 0 at the last value, and at most 1 before.
    """
    n = len(x)
    u = np.append(x, horizon) / x[-1]
    jump = np.arange(n + 1) > np.argmax(np.abs(np.diff(z)))
    forms = np.concatenate(
        [
            np.zeros((1, n + 1)),
            1 / (1 + _PQ[:, :1] * u + _PQ[:, 1:] * u**2),
            np.exp(-u / _LIFETIMES[:, None]),
            u[None] ** -0.5,
            jump[None].astype(float),
        ]
    )
    forms -= forms[:, n - 1 : n]
    largest: Array = np.abs(forms[:, :n]).max(axis=1, keepdims=True)
    return forms / np.maximum(largest, 1e-9)


def _wander_covariances(t: Array) -> Array:
    """Return the wander's covariances (rates, n + 1, n + 1), at the times of the values and the horizon.

    The slope at t[0], and each of its later renewals, moves the value by (1 - exp(-rate s)) / rate within s.
    Renewal preserves the variance of the slope.
    """
    rates = _RATES[:, None, None]
    since = np.maximum(t[:, None] - t[:-1], 0.0)
    reach = -np.expm1(-rates * since) / rates
    renewed = -np.expm1(-2 * rates * np.diff(t))
    renewed[:, :, 0] = 1.0
    covariance: Array = (reach * renewed) @ reach.transpose(0, 2, 1) * rates / 2
    return covariance  # scaled so that a walk at a high rate has variance 1 after time 1
