"""The Matern-5/2 kernel with one length scale for each parameter, on warped inputs.

Notation, in all modules of this package:
    n, m      numbers of observations and of other points
    D, p      numbers of columns of the unit cube (a Choice has one for each value) and of searched parameters
    S         number of draws of the hyperparameters
    U         (n, p) points, one number in [0, 1] for each parameter
    X         (n, D) points of the unit cube
    y         (n,) normalised values, lower is better
    theta     (k,) the hyperparameters, see ThetaLayout; thetas is (S, k)
    E         (n, D) embedded points: warped, and divided by the length scales; |E_i - E_j| is the distance
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Booleans = npt.NDArray[np.bool_]

WARP_MARGIN = 1e-9
"""Evaluate warpings at least this far from 0 and 1, where their derivative is infinite."""

CHOICE_WEIGHT = 12.0**-0.5
"""The factor on a Choice's columns. With it, two different choices have the squared distance 1/6, the mean squared
distance of two random numbers in [0, 1]."""


# The kernels write over their argument: new large arrays would cost more than the arithmetic.


def matern52(sq: Array) -> Array:
    """Return the kernel at squared distances, (1 + r + r^2/3) exp(-r) with r = sqrt(5 sq); overwrite `sq`."""
    sq *= 5.0
    r = np.sqrt(sq)
    sq *= 1.0 / 3.0
    sq += r
    sq += 1.0
    np.negative(r, out=r)
    sq *= np.exp(r, out=r)
    return sq


def matern52_with_derivative(sq: Array) -> tuple[Array, Array]:
    """Return the kernel and its derivative by the squared distance, -(5/6) (1 + r) exp(-r); overwrite `sq`."""
    sq *= 5.0
    r = np.sqrt(sq)
    decay = np.exp(-r)
    r += 1.0
    sq *= 1.0 / 3.0
    sq += r
    sq *= decay
    r *= decay
    r *= -5.0 / 6.0
    return sq, r


def squared_distances(E: Array, F: Array) -> Array:
    """Return the squared distances (..., n, m) between the rows of E (..., n, D) and F (..., m, D)."""
    sq: Array = E @ np.swapaxes(F, -1, -2)
    sq *= -2.0
    sq += np.einsum("...ij,...ij->...i", E, E)[..., :, None]
    sq += np.einsum("...ij,...ij->...i", F, F)[..., None, :]
    # Rounding leaves tiny negative squares between equal points.
    return np.maximum(sq, 0.0, out=sq)


@dataclass(frozen=True)
class ThetaLayout:
    """The positions of the hyperparameters in theta.

    In this order: the log signal variance, the log noise variance, the log length scale of each parameter, log a
    of each warped column, log b of each warped column, and the weight of each source. A column is warped by
    w(u) = 1 - (1 - u^a)^b, Kumaraswamy's distribution. The weights are not logarithms.
    """

    parameter_count: int
    column_parameter: Indices  # (D,) the index of the parameter that each column belongs to
    column_weights: Array  # (D,) the factor on each column
    warped_columns: Indices  # indices of the columns that are warped
    earlier_count: int = 0  # the number of sources of a warm start

    SIGNAL = 0
    NOISE = 1

    @cached_property
    def size(self) -> int:
        return 2 + self.parameter_count + 2 * len(self.warped_columns) + self.earlier_count

    @cached_property
    def length_scales(self) -> slice:
        return slice(2, 2 + self.parameter_count)

    @cached_property
    def warp_a(self) -> slice:
        return slice(self.length_scales.stop, self.length_scales.stop + len(self.warped_columns))

    @cached_property
    def warp_b(self) -> slice:
        return slice(self.warp_a.stop, self.warp_a.stop + len(self.warped_columns))

    @cached_property
    def earlier_weights(self) -> slice:
        return slice(self.warp_b.stop, self.size)


class Inputs:
    """Points of the unit cube, prepared to be embedded with many values of theta."""

    def __init__(self, layout: ThetaLayout, X: Array) -> None:
        self.layout = layout
        self.X = X * layout.column_weights
        self._log_u = np.log(np.clip(X[:, layout.warped_columns], WARP_MARGIN, 1.0 - WARP_MARGIN))

    def embed(self, theta: Array) -> Array:
        """Return E: (n, D) for theta (k,), or (S, n, D) for theta (S, k)."""
        layout = self.layout
        inverse = np.exp(-theta[..., layout.length_scales])[..., layout.column_parameter]
        if not len(layout.warped_columns):
            return self.X * inverse[..., None, :]
        a, b = np.exp(theta[..., None, layout.warp_a]), np.exp(theta[..., None, layout.warp_b])
        warped = _warp(self._log_u, a, b)[0]
        E: Array = np.broadcast_to(self.X, (*theta.shape[:-1], *self.X.shape)).copy()
        E[..., layout.warped_columns] = warped
        E *= inverse[..., None, :]
        return E

    def gradient_by_theta(self, theta: Array, E: Array, dE: Array) -> Array:
        """Return the gradient by theta (k,) of a function of E, given its gradient dE (n, D) by E."""
        layout = self.layout
        gradient = np.zeros(layout.size)
        gradient[layout.length_scales] = -np.bincount(
            layout.column_parameter, np.einsum("ij,ij->j", E, dE), minlength=layout.parameter_count
        )
        if len(layout.warped_columns):
            a, b = np.exp(theta[layout.warp_a]), np.exp(theta[layout.warp_b])
            _, u_to_a, log_t, t_to_b = _warp(self._log_u, a, b)
            inverse = np.exp(-theta[layout.length_scales])[layout.column_parameter[layout.warped_columns]]
            dW = dE[:, layout.warped_columns] * inverse
            dW_by_log_a = b * a * self._log_u * u_to_a * np.exp((b - 1.0) * log_t)
            dW_by_log_b = -b * log_t * t_to_b
            gradient[layout.warp_a] = np.einsum("ij,ij->j", dW, dW_by_log_a)
            gradient[layout.warp_b] = np.einsum("ij,ij->j", dW, dW_by_log_b)
        return gradient

    def derivative_by_x(self, theta: Array) -> Array:
        """Return the derivative of each entry of E by the same entry of X: (S, n, D) for theta (S, k)."""
        layout = self.layout
        inverse = np.exp(-theta[..., layout.length_scales])[..., layout.column_parameter] * layout.column_weights
        derivative: Array = np.broadcast_to(inverse[..., None, :], (*theta.shape[:-1], *self.X.shape)).copy()
        if len(layout.warped_columns):
            a, b = np.exp(theta[..., None, layout.warp_a]), np.exp(theta[..., None, layout.warp_b])
            _, _, log_t, _ = _warp(self._log_u, a, b)
            derivative[..., layout.warped_columns] *= a * b * np.exp((a - 1.0) * self._log_u + (b - 1.0) * log_t)
        return derivative


def _warp(log_u: Array, a: Array, b: Array) -> tuple[Array, Array, Array, Array]:
    """Return w, u^a, log t and t^b, where t = 1 - u^a and w = 1 - t^b."""
    u_to_a = np.exp(a * log_u)
    log_t = np.log1p(-u_to_a)
    t_to_b = np.exp(b * log_t)
    return 1.0 - t_to_b, u_to_a, log_t, t_to_b
