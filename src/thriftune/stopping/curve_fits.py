"""What will a learning curve's last value be?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from thriftune.stopping.stages import Array, jumps, stage_starts

_WINDOW, _LEAST_IN_WINDOW = 0.4, 5
_MOST_POINTS, _MOST_FITTED = 128, 32
_RATES = np.array([1.0, 2.0, 4.0, 32.0])
_WANDERS = 10.0 ** np.array([-1, 1, 3, 5])
_EQ4 = np.array([(0, 2), (0, 10), (0, 50), (2, 0), (10, 0), (1000, 0), (0, 1000)], dtype=float)
_LIFETIMES = np.array([0.1, 0.2, 0.4, 0.8])
_AMPLITUDE = 1e3


@dataclass(frozen=True, slots=True)
class Prediction:
    mean: float
    std: float


def predict(steps: Sequence[int] | Array, values: Sequence[float] | Array, at: int) -> Prediction:
    x, y = _clean(steps, values)
    if not len(y):
        return Prediction(np.nan, np.inf)
    if at <= x[-1]:
        return Prediction(float(np.interp(at, x, y)), 0.0)
    unit = float(np.abs(y).max())
    if unit == 0:
        return Prediction(0.0, 0.0)
    x, z, counts = _blocks(x, y / unit, np.ones(len(x)), _MOST_POINTS)
    starts = jumps(z)
    spacing = float(np.median(np.diff(x))) if len(x) > 1 else 1.0
    origin = min(0.0, x[0] - spacing)
    s = 0
    if STAGES and starts:
        s = starts[-1]
        origin = x[s - 1]
    x, z, counts = x[s:] - origin, z[s:], counts[s:]
    horizon = at - origin
    first = max(0, min(int(np.searchsorted(x, _WINDOW * x[-1])), len(x) - _LEAST_IN_WINDOW))
    x, z, counts = _blocks(x[first:], z[first:], counts[first:], _MOST_FITTED)
    if len(x) == 1:
        return Prediction(float(y[-1]), float(abs(y[-1])) * 0.2)
    change, std = _extrapolate(x, z - z[-1], counts, horizon)
    std = float(np.hypot(SA * std, SB * change))
    return Prediction(float(unit * (z[-1] + change)), float(unit * std))

STAGES=True
SA,SB=.8,.5

def _clean(steps, values):
    x, y = np.asarray(steps, dtype=float), np.asarray(values, dtype=float)
    ok = np.isfinite(y)
    return x[ok], y[ok]


def _blocks(x, z, counts, most):
    size = -(-len(x) // most)
    if size == 1:
        return x, z, counts
    starts = np.arange(len(x) % size, len(x), size)
    if starts[0]:
        starts = np.append(0, starts)
    total = np.add.reduceat(counts, starts)
    return np.add.reduceat(x * counts, starts) / total, np.add.reduceat(z * counts, starts) / total, total


def _extrapolate(x: Array, z: Array, counts: Array, horizon: float) -> tuple[float, float]:
    n = len(x)
    span = float(np.abs(z).max())
    if span == 0:
        return 0.0, 0.0
    t = np.log(np.append(x, horizon) / x[0])
    u = np.append(x, horizon) / x[-1]
    root = np.sqrt(counts)
    # the wandering trend
    since = t[:, None] - t[None, :-1]  # (n+1, n)
    rates = _RATES[:, None, None]
    reach = np.where(since > 0, -np.expm1(-rates * np.maximum(since, 0)) / rates, 0.0)
    fresh = -np.expm1(-2 * _RATES[:, None] * np.diff(t))
    fresh[:, 0] = 1.0  # the first slope
    wander = (reach * fresh[:, None, :]) @ reach.transpose(0, 2, 1) * (rates / 2)
    lam, basis = np.linalg.eigh(root[:, None] * wander[:, :n, :n] * root)
    lam = np.maximum(lam, 0.0)
    omega = 1 / (1 + _WANDERS[:, None] * lam[:, None, :])  # rate, wander, n
    shapes = np.concatenate([np.zeros((1, n + 1)), 1 / (1 + _EQ4[:, :1] * u + _EQ4[:, 1:] * u**2), np.exp(-u / _LIFETIMES[:, None])])
    shapes = shapes - shapes[:, [n - 1]]
    shapes /= np.maximum(np.abs(shapes[:, :n]).max(axis=1, keepdims=True), 1e-9)
    turned = lambda v: np.einsum("rnm,...n->r...m", basis, root * v)
    y, one, k = turned(z), turned(np.ones(n)), np.einsum("rnm,rn->rm", basis, root * wander[:, n, :n])
    f = turned(shapes[:, :n])  # r,s,m
    dot = lambda a, b: np.einsum("rwm,rm->rw", omega, a * b)[:, :, None]
    dots = lambda a: np.einsum("rwm,rsm->rws", omega, a[:, None] * f)
    A = _WANDERS[None, :, None]
    h00, h01, h11 = dot(one, one), dots(one), np.einsum("rwm,rsm->rws", omega, f * f) + 1 / _AMPLITUDE
    y0, y1, yy = dot(one, y), dots(y), dot(y, y)
    k0, k1, ky, kk = A * dot(k, one), A * dots(k), A * dot(k, y), A * A * dot(k, k)
    det = h00 * h11 - h01**2
    b0, b1 = (h11 * y0 - h01 * y1) / det, (h00 * y1 - h01 * y0) / det
    ss = np.maximum(yy - b0 * y0 - b1 * y1, 0.0) + 1e-8 * span**2
    fstar = shapes[:, n]
    means = ky - b0 * k0 - b1 * k1 + b0 + b1 * fstar
    r0, r1 = 1 - k0, fstar - k1
    var = A * wander[:, n, n][:, None, None] + 1 - kk + (h11 * r0**2 - 2 * h01 * r0 * r1 + h00 * r1**2) / det
    log_evidence = -0.5 * (np.log(det) + np.log(_AMPLITUDE) - np.log(omega).sum(axis=2)[:, :, None]) - 0.5 * (n - 1) * np.log(ss)
    log_evidence = log_evidence + PRIOR
    weights = np.exp(log_evidence - log_evidence.max())
    weights /= weights.sum()
    var = np.maximum(var, 0) * ss / (n - 1)
    mean = float((weights * means).sum())
    return mean, float(np.sqrt((weights * (var + (means - mean) ** 2)).sum()))

PRIOR=0.
