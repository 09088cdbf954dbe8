"""How alike are two configurations? Matern-5/2 with a length scale a parameter, on warped inputs.

Notation, here and in its neighbours:
    n, m      observations; other points
    D, p      columns of the unit cube (a Choice has one a value); parameters
    S         draws of the hyperparameters
    X         (n, D) points of the unit cube
    theta     (k,) hyperparameters, all in logarithms; see Layout
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

EDGE = 1e-9
"""Warping has infinite slope at the ends of the unit interval; this is how near to them it is evaluated."""

CATEGORY = 12.0**-0.5
"""The weight of a Choice's columns: two different choices are as far apart as two random values of a number are on
average, the root of 1/6."""


# In place, as the large arrays that each step would else make cost more than the arithmetic.


def matern52(sq: Array) -> Array:
    """The kernel of a squared distance, which it writes over: (1 + r + r^2/3) exp(-r) with r = sqrt(5 sq)."""
    sq *= 5.0
    r = np.sqrt(sq)
    sq *= 1.0 / 3.0
    sq += r
    sq += 1.0
    np.negative(r, out=r)
    sq *= np.exp(r, out=r)
    return sq


def matern52_with_slope(sq: Array) -> tuple[Array, Array]:
    """The kernel, written over the squared distance, and its derivative by that: -(5/6) (1 + r) exp(-r)."""
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
    """(..., n, m) between the rows of E (..., n, D) and F (..., m, D)."""
    sq: Array = E @ np.swapaxes(F, -1, -2)
    sq *= -2.0
    sq += np.einsum("...ij,...ij->...i", E, E)[..., :, None]
    sq += np.einsum("...ij,...ij->...i", F, F)[..., None, :]
    # Rounding leaves tiny negative squares between equal points.
    return np.maximum(sq, 0.0, out=sq)


@dataclass(frozen=True)
class Layout:
    """Where what stands in theta: log signal variance, log noise variance, log length scales (p), then, for each
    warped column, log a and log b of its warping w(u) = 1 - (1 - u^a)^b (Kumaraswamy's distribution), and last how
    much each source of a warm start counts, which is no logarithm."""

    parameters: int
    owner: Indices  # (D,) the parameter each column belongs to
    weights: Array  # (D,) what each column is multiplied with
    warped: Indices  # columns that are warped
    sources: int = 0

    SIGNAL = 0
    NOISE = 1

    @cached_property
    def size(self) -> int:
        return 2 + self.parameters + 2 * len(self.warped) + self.sources

    @cached_property
    def scales(self) -> slice:
        return slice(2, 2 + self.parameters)

    @cached_property
    def a(self) -> slice:
        return slice(2 + self.parameters, 2 + self.parameters + len(self.warped))

    @cached_property
    def b(self) -> slice:
        return slice(self.a.stop, self.a.stop + len(self.warped))

    @cached_property
    def shares(self) -> slice:
        return slice(self.b.stop, self.size)


class Inputs:
    """Points of the unit cube made ready to be embedded with one theta after another."""

    def __init__(self, layout: Layout, X: Array) -> None:
        self.layout = layout
        self.X = X * layout.weights
        self._log_u = np.log(np.clip(X[:, layout.warped], EDGE, 1.0 - EDGE))

    def embed(self, theta: Array) -> Array:
        """E of every point, for theta (k,) or for many, (S, k): (S, n, D)."""
        layout = self.layout
        inverse = np.exp(-theta[..., layout.scales])[..., layout.owner]
        if not len(layout.warped):
            return self.X * inverse[..., None, :]
        a, b = np.exp(theta[..., None, layout.a]), np.exp(theta[..., None, layout.b])
        warped = _warp(self._log_u, a, b)[0]
        E: Array = np.broadcast_to(self.X, (*theta.shape[:-1], *self.X.shape)).copy()
        E[..., layout.warped] = warped
        E *= inverse[..., None, :]
        return E

    def pull_back(self, theta: Array, E: Array, dE: Array) -> Array:
        """The gradient by theta (k,) of a function of E, given its gradient dE (n, D) by E."""
        layout = self.layout
        gradient = np.zeros(layout.size)
        gradient[layout.scales] = -np.bincount(
            layout.owner, np.einsum("ij,ij->j", E, dE), minlength=layout.parameters
        )
        if len(layout.warped):
            a, b = np.exp(theta[layout.a]), np.exp(theta[layout.b])
            _, u_to_a, log_t, t_to_b = _warp(self._log_u, a, b)
            dW = dE[:, layout.warped] * np.exp(-theta[layout.scales])[layout.owner[layout.warped]]
            with_a = b * a * self._log_u * u_to_a * np.exp((b - 1.0) * log_t)
            with_b = -b * log_t * t_to_b
            gradient[layout.a] = np.einsum("ij,ij->j", dW, with_a)
            gradient[layout.b] = np.einsum("ij,ij->j", dW, with_b)
        return gradient

    def slope(self, theta: Array) -> Array:
        """The derivative of each E by its own x: (S, n, D) for theta (S, k)."""
        layout = self.layout
        inverse = np.exp(-theta[..., layout.scales])[..., layout.owner] * layout.weights
        slope: Array = np.broadcast_to(inverse[..., None, :], (*theta.shape[:-1], *self.X.shape)).copy()
        if len(layout.warped):
            a, b = np.exp(theta[..., None, layout.a]), np.exp(theta[..., None, layout.b])
            _, _, log_t, _ = _warp(self._log_u, a, b)
            slope[..., layout.warped] *= a * b * np.exp((a - 1.0) * self._log_u + (b - 1.0) * log_t)
        return slope


def _warp(log_u: Array, a: Array, b: Array) -> tuple[Array, Array, Array, Array]:
    """w, u^a, log t and t^b, where t = 1 - u^a and w = 1 - t^b."""
    u_to_a = np.exp(a * log_u)
    log_t = np.log1p(-u_to_a)
    t_to_b = np.exp(b * log_t)
    return 1.0 - t_to_b, u_to_a, log_t, t_to_b
