"""A least-squares fit of SpotTune Eq. 4 to a whole learning curve."""

from __future__ import annotations

import numpy as np

from thriftune.stopping.curve_stages import Array

_MIN_DAMPING = 1e-9  # with less, a curve that has exactly the form leaves no valid step


def fit_eq_4(x: Array, z: Array, counts: Array, horizon: float) -> tuple[float, float]:
    """Fit Eq. 4 with non-negative coefficients; return its value at `horizon` and the residuals' std.

    The curve falls, or is the reflection of one that falls. Levenberg-Marquardt steps start from the best form of
    a grid, and each is clipped to the bounds.
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
        # A coefficient at its bound that would cross it stays
        slopes = slopes[free := (a > lowest) | (downhill > 0)]
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
        a, error, damping = tried, tried_error, max(damping / 10, _MIN_DAMPING)
        if settled:
            break
    return float(sign * (1 / (a[0] * far**2 + a[1] * far + a[2]) + a[3])), float(np.sqrt(error))
