"""What will a learning curve's last value be?

Only the curve itself is asked: its last stage (stages.py), and of this the recent part, since what a curve did at
the start says little of how it ends. There a value at x, the steps since the stage began, is taken to be

    c + b phi(u) + wander(log x) + noise,  u = x / the last x seen

phi     a form: SpotTune Eq. 4, 1 / (1 + p u + q u^2) with p, q >= 0; or exp(-u / lifetime), for what converges
        faster (section V-B); or u^-1/2, the rate of stochastic gradients; or a jump where the largest change was;
        or none. With b > 0 the curve falls; with b < 0 it rises, the reflection of one that falls.
wander  what makes the fit a local one: a slope by log x that dies out as that of 1/k, 1/k^2 or 1/k^4 does, or at
        once (a random walk), and that is renewed on the way.
noise   independent, and as large as it is around each value.

Given a form, a rate and how much it wanders, this is a Gaussian process: what is to be expected, how sure that is,
and how well it explains the values seen have closed forms (Rasmussen and Williams 2006, section 2.7). A prediction
is the average over forms, rates and amounts, weighted by how well each explains the values. Where only noise is
seen it stays at the recent level; a trend is followed, but it fades.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from thriftune.stopping.stages import Array, calm_start, level_starts

Steps = Sequence[int] | npt.NDArray[np.int_] | Array
Values = Sequence[float] | Array

_RECENT = 0.4  # of the steps of a stage: what came before is not fitted
_LEAST_FITTED = 5  # values, where there are so many
_MOST_SEEN, _MOST_FITTED = 128, 32  # values; of more, means of neighbours
_RATES = np.array([1.0, 2.0, 4.0, 32.0])
_WANDERS = 10.0 ** np.array([-3.0, -1.0, 1.0, 3.0, 5.0])  # variances, in units of the noise's
_PQ = np.array([[2, 0], [10, 0], [1000, 0], [0, 2], [0, 10], [0, 50], [0, 1000]], dtype=float)
_LIFETIMES = np.array([0.1, 0.2, 0.4, 0.8])
_AMPLITUDE = 1e3  # the variance of b, in units of the noise's
_FOLLOWED = 0.9  # of a change to come that is sure: learning rates fade, and with them all trends
_SPREAD = 0.75
"""Of the process's standard deviation and the change together: by this, about 68 % of the last values of real
curves (TaskSet, LCBench and others) lie within one."""
_LEAST_DAMPING = 1e-9  # below it, where a curve is of the form exactly, there is no single step to take
_SHARE_OF_VALUE = 0.7  # that it is where a single value is all there is


@dataclass(frozen=True, slots=True)
class Prediction:
    """A value to come. About 68 % of such values lie within one `std` of `mean`."""

    mean: float
    std: float


def predict(steps: Steps, values: Values, at: int) -> Prediction:
    """The value to be expected at step `at`, from the values at earlier steps, by forms fitted to the last stage.

    Whether the metric is to be minimised or maximised does not matter. Values that are not finite are ignored; if
    none is finite, the mean is nan. At a step that has been seen it is the value there.
    """
    x, y = _seen(steps, values)
    known = _known(x, y, at)
    if known is not None:
        return known
    if len(y) == 1:
        return Prediction(float(y[0]), _SHARE_OF_VALUE * float(abs(y[0])))
    unit = float(np.abs(y).max())
    x, z, counts = _thinned(x, y / unit, np.ones(len(x)), _MOST_SEEN)
    start, origin = _last_stage(x, z)
    x, horizon = x - origin, at - origin
    recent = min(int(np.searchsorted(x, _RECENT * x[-1])), len(x) - _LEAST_FITTED)
    recent = max(start, recent, start + calm_start(z[start:]))
    fitted_x, fitted_z, counts = _thinned(x[recent:], z[recent:], counts[recent:], _MOST_FITTED)
    change, std = _expected_change(fitted_x, fitted_z - fitted_z[-1], counts, horizon)
    # A change that is hardly larger than its error is better not followed: the present value misleads less.
    uncertain = change**2 + std**2 / 4
    followed = _FOLLOWED * change * change**2 / uncertain if uncertain else 0.0
    most = float(np.ptp(z))  # nor is any followed further than the curve has come
    followed = min(max(followed, -most), most)
    return _prediction(float(fitted_z[-1]) + followed, _SPREAD * float(np.hypot(std, change)), unit, y)


def predict_one_stage(steps: Steps, values: Values, at: int) -> Prediction:
    """The same by one fit of Eq. 4 to all of the curve, as SLAQ does: what SpotTune is compared with."""
    x, y = _seen(steps, values)
    known = _known(x, y, at)
    if known is not None:
        return known
    unit = float(np.abs(y).max())
    origin = _origin(x)
    x, z, counts = _thinned(x - origin, y / unit, np.ones(len(x)), _MOST_SEEN)
    mean, std = _least_squares(x, z, counts, at - origin)
    return _prediction(mean, std, unit, y)


def plateau(steps: Steps, values: Values, tolerance: float = 0.01, fewest: int = 10) -> bool:
    """Whether it has converged, so that training further is not worth it (SpotTune III-C, the special case).

    It has where twice the steps would, at the rate of the latter half of its last stage, change it by no more than
    `tolerance` of the range of all its values, even if that rate were two standard errors higher. This half must
    have `fewest` values. A curve that shows nothing but noise has not moved yet, so it has not converged either.
    Nothing is known here of a learning rate that is yet to drop: such a curve may well move again.
    """
    x, y = _seen(steps, values)
    if len(y) < fewest:
        return False
    z = y / (float(np.abs(y).max()) or 1.0)
    x, z, _ = _thinned(x, z, np.ones(len(x)), _MOST_SEEN)
    start, origin = _last_stage(x, z)
    x = x - origin
    half = max(start, int(np.searchsorted(x, x[-1] / 2)))
    t, latter = np.log(x[half:]), z[half:]
    if len(latter) < fewest:
        return False
    t, deviations = t - t.mean(), latter - latter.mean()
    slope = t @ deviations / (t @ t)
    error = np.sqrt(np.sum((deviations - slope * t) ** 2) / (len(t) - 2) / (t @ t))
    return bool((abs(slope) + 2 * error) * np.log(2) <= tolerance * np.ptp(z))


def _seen(steps: Steps, values: Values) -> tuple[Array, Array]:
    """Steps and finite values in the order of steps; of several values at a step, the last."""
    x, y = np.asarray(steps, dtype=float), np.asarray(values, dtype=float)
    x, y = x[np.isfinite(y)], y[np.isfinite(y)]
    if np.all(x[1:] > x[:-1]):
        return x, y
    unique, last = np.unique(x[::-1], return_index=True)
    return unique, y[::-1][last]


def _known(x: Array, y: Array, at: int) -> Prediction | None:
    """The answer where there is nothing to fit."""
    if len(y) == 0:
        return Prediction(float("nan"), float("inf"))
    if at <= x[-1]:
        return Prediction(float(np.interp(at, x, y)), 0.0)
    return Prediction(0.0, 0.0) if not y.any() else None


def _prediction(mean: float, std: float, unit: float, y: Array) -> Prediction:
    if y.min() >= 0:
        mean = max(mean, 0.0)  # as Eq. 4's coefficients are: no loss falls below 0
    most = float(np.finfo(float).max)
    return Prediction(float(np.clip(unit * mean, -most, most)), float(min(unit * std, most)))


def _origin(x: Array) -> float:
    """The step from which a curve's steps count: 0, or as far before its first one as steps lie apart."""
    return min(0.0, float(x[0] - (np.median(np.diff(x)) if len(x) > 1 else 1.0)))


def _last_stage(x: Array, z: Array) -> tuple[int, float]:
    """The index at which it begins, and the step from which its steps count."""
    starts = level_starts(z)
    return (starts[-1], float(x[starts[-1] - 1])) if starts else (0, _origin(x))


def _thinned(x: Array, z: Array, counts: Array, most: int) -> tuple[Array, Array, Array]:
    """At most so many points, each the mean of as many neighbours; `counts` says of how many values each is."""
    size = -(-len(x) // most)
    if size == 1:
        return x, z, counts
    # Counted from the end, so that only the first is of fewer.
    starts = np.unique(np.maximum(np.arange(len(x), -size, -size)[1:], 0))
    total = np.add.reduceat(counts, starts)
    return np.add.reduceat(x * counts, starts) / total, np.add.reduceat(z * counts, starts) / total, total


def _noise(z: Array) -> Array:
    """The variance of the noise around each value, in units of its mean: curves get calmer as they settle."""
    if len(z) < _LEAST_FITTED:
        return np.ones(len(z))
    bends = np.pad((z[:-2] - 2 * z[1:-1] + z[2:]) ** 2, 4, mode="edge")
    local = np.convolve(bends, np.full(7, 1 / 7), mode="valid")
    mean = local.mean()
    return (local + 0.1 * mean) / (1.1 * mean) if mean > 0 else np.ones(len(z))


def _forms(x: Array, z: Array, horizon: float) -> Array:
    """phi of each form (forms, n + 1): at the values and at the horizon; 0 at the last value, at most 1 before."""
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


def _wander(t: Array) -> Array:
    """Its covariances (rates, n + 1, n + 1), at the times of the values and of the horizon.

    The slope at t[0], and each by which it is renewed later, moves it by (1 - exp(-rate s)) / rate within s.
    Renewal keeps the variance of the slope.
    """
    rates = _RATES[:, None, None]
    since = np.maximum(t[:, None] - t[:-1], 0.0)
    reach = -np.expm1(-rates * since) / rates
    renewed = -np.expm1(-2 * rates * np.diff(t))
    renewed[:, :, 0] = 1.0
    covariance: Array = (reach * renewed) @ reach.transpose(0, 2, 1) * rates / 2
    return covariance  # so scaled, a walk at a high rate has variance 1 in a time of 1


def _expected_change(x: Array, z: Array, counts: Array, horizon: float) -> tuple[float, float]:
    """The value at `horizon` and its standard deviation, where the last of z is 0; each is a mean of `counts`.

    Arrays are (rates, wanders, forms). In the basis of the eigenvectors of each rate's covariance, whitened by the
    noise, every inverse is diagonal. c has a flat prior and b a normal one; the variance of the noise, in units of
    which all variances are, is integrated out.
    """
    span = float(np.abs(z).max())
    if span == 0:
        return 0.0, 0.0
    n = len(x)
    forms = _forms(x, z, horizon)
    wander = _wander(np.log(np.append(x, horizon) / x[0]))
    noise = _noise(z)
    root = np.sqrt(counts / noise)
    eigenvalues, basis = np.linalg.eigh(root[:, None] * wander[:, :n, :n] * root)
    spread = 1 + _WANDERS[:, None] * np.maximum(eigenvalues, 0.0)[:, None, :]

    one, y = root @ basis, (root * z / span) @ basis
    phi = (root * forms[:, :n]) @ basis
    to_horizon = ((root * wander[:, n, :n])[:, None] @ basis)[:, 0]

    def inner(a: Array, b: Array) -> Array:
        """a' K^-1 b, of (rates, n) or (rates, forms, n)."""
        product = (a if a.ndim == 3 else a[:, None]) * (b if b.ndim == 3 else b[:, None])
        found: Array = (1 / spread) @ product.transpose(0, 2, 1)
        return found

    cc, cb, bb = inner(one, one), inner(one, phi), inner(phi, phi) + 1 / _AMPLITUDE
    cy, by = inner(one, y), inner(phi, y)
    determinant = cc * bb - cb**2
    c, b = (bb * cy - cb * by) / determinant, (cc * by - cb * cy) / determinant
    squares = np.maximum(inner(y, y) - c * cy - b * by, 0.0) + 1e-8

    amount = _WANDERS[:, None]
    rest_c, rest_b = 1 - amount * inner(to_horizon, one), forms[:, n] - amount * inner(to_horizon, phi)
    means = amount * inner(to_horizon, y) + c * rest_c + b * rest_b
    variances = noise[-1] + amount * wander[:, n, n][:, None, None]
    variances = variances - amount**2 * inner(to_horizon, to_horizon)
    variances = variances + (bb * rest_c**2 - 2 * cb * rest_c * rest_b + cc * rest_b**2) / determinant
    variances = np.maximum(variances, 0.0) * squares / (n - 1)

    log_evidence = -(np.log(determinant) + np.log(spread).sum(axis=2)[:, :, None] + (n - 1) * np.log(squares)) / 2
    belief = np.exp(log_evidence - log_evidence.max())
    belief /= belief.sum()
    mean = float(np.sum(belief * means))
    std = float(np.sqrt(np.sum(belief * (variances + (means - mean) ** 2))))
    return span * mean, span * std * n / (n - 1)  # about what Student's t adds where values are few


def _least_squares(x: Array, z: Array, counts: Array, horizon: float) -> tuple[float, float]:
    """Eq. 4 with non-negative coefficients, falling, or reflected and rising; its value there, the residuals' std.

    Of a grid of forms the best is the start of Levenberg and Marquardt's steps, each put back within the bounds.
    """
    share, u, far = counts / counts.sum(), x / x[-1], horizon / x[-1]
    axis = np.append(0.0, np.geomspace(0.1, 1e4, 11))
    p, q = (each.ravel()[1:] for each in np.meshgrid(axis, axis))
    phi = 1 / (1 + p[:, None] * u + q[:, None] * u**2)
    means, level = phi @ share, float(share @ z)
    centred = phi - means[:, None]
    b = centred @ (share * (z - level)) / np.maximum(centred**2 @ share, 1e-300)
    c = level - b * means
    below = (b > 0) & (c < 0) & (z.min() >= 0)
    b, c = np.where(below, phi @ (share * z) / (phi**2 @ share), b), np.where(below, 0.0, c)
    best = int(np.argmin((z - c[:, None] - b[:, None] * phi) ** 2 @ share))
    if b[best] == 0:
        return level, float(np.sqrt(share @ (z - level) ** 2))
    sign = np.sign(b[best])
    lowest = np.array([0.0, 0.0, 0.0, 0.0 if sign > 0 and z.min() >= 0 else -np.inf])
    a = np.append(np.array([q[best], p[best], 1.0]) / abs(b[best]), sign * c[best])
    powers = np.stack([u**2, u, np.ones(len(u))])

    def residuals(a: Array) -> Array:
        found: Array = sign * z - 1 / (a[:3] @ powers) - a[3]
        return found

    error, damping = float(share @ residuals(a) ** 2), 1e-3
    for _ in range(30):
        slopes = np.concatenate([-powers / (a[:3] @ powers) ** 2, np.ones((1, len(u)))])
        downhill = slopes @ (share * residuals(a))
        slopes = slopes[free := (a > lowest) | (downhill > 0)]  # what is at its bound, and would go beyond, rests
        normal = (slopes * share) @ slopes.T
        normal += damping * np.diag(np.diag(normal) + 1e-12 * np.trace(normal))
        tried = a.copy()
        tried[free] += np.linalg.solve(normal, downhill[free])
        tried = np.maximum(tried, lowest)
        tried_error = float(share @ residuals(tried) ** 2) if (tried[:3] @ powers).min() > 0 else np.inf
        if not tried_error < error:
            damping *= 10
            continue
        settled = tried_error > (1 - 1e-9) * error
        a, error, damping = tried, tried_error, max(damping / 10, _LEAST_DAMPING)
        if settled:
            break
    return float(sign * (1 / (a[0] * far**2 + a[1] * far + a[2]) + a[3])), float(np.sqrt(error))
