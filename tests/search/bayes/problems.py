"""Random problems for the model: a layout, hyperparameters, points and observations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from thriftune.search.bayes.kernel import CHOICE_WEIGHT, Array, ThetaLayout

QUICK = settings(deadline=None, max_examples=25)
"""No deadline, because the machine may be busy; few examples, because each takes long."""


@dataclass(frozen=True)
class Waves:
    """A trend: a wave for each source, with a known gradient."""

    W: Array  # (D, sources)

    def mean(self, X: Array) -> Array:
        return np.asarray(np.sin(X @ self.W))

    def mean_with_gradient(self, X: Array) -> tuple[Array, Array]:
        return self.mean(X), np.cos(X @ self.W)[:, :, None] * self.W.T


@dataclass(frozen=True)
class Problem:
    layout: ThetaLayout
    thetas: Array  # (S, k)
    X: Array  # (n, D)
    y: Array  # (n,)
    others: Array  # (m, D) points to predict at
    trend: Waves | None

    @property
    def theta(self) -> Array:
        return np.asarray(self.thetas[0])

    @property
    def trend_at_X(self) -> Array | None:
        return self.trend.mean(self.X) if self.trend else None

    def weighted_trend(self, theta: Array, X: Array) -> Array:
        """Return the trend as a posterior uses it: weighted, minus its mean over the observations."""
        if not self.trend:
            return np.zeros(len(X))
        return np.asarray(
            (self.trend.mean(X) - self.trend.mean(self.X).mean(axis=0)) @ theta[self.layout.earlier_weights]
        )


def layout_of(widths: list[int], warped: list[int], earlier_count: int = 0) -> ThetaLayout:
    """Return a layout with one parameter for each width: 1 for a number, k > 1 for a Choice of k values."""
    owner = np.repeat(np.arange(len(widths)), widths)
    weights = np.repeat([1.0 if width == 1 else CHOICE_WEIGHT for width in widths], widths)
    return ThetaLayout(len(widths), owner, weights, np.array(warped, dtype=np.intp), earlier_count)


def thetas_of(layout: ThetaLayout, draws: int, rng: np.random.Generator) -> Array:
    thetas = np.log(rng.uniform(0.4, 2.0, (draws, layout.size)))
    thetas[:, layout.NOISE] = np.log(rng.uniform(1e-3, 0.1, draws))
    thetas[:, layout.earlier_weights] = rng.uniform(0.0, 1.5, (draws, layout.earlier_count))
    return thetas


def points_of(widths: list[int], count: int, rng: np.random.Generator) -> Array:
    """Return random points, not near 0 and 1, where the derivative of a warping changes fast."""
    columns = []
    for width in widths:
        if width == 1:
            columns.append(rng.uniform(0.05, 0.95, (count, 1)))
        else:
            columns.append(np.eye(width)[rng.integers(width, size=count)])
    return np.concatenate(columns, axis=1)


def problem(
    widths: list[int], *, warp: bool, earlier_count: int, n: int, draws: int = 2, seed: int = 0
) -> Problem:
    rng = np.random.default_rng(seed)
    starts = np.cumsum([0, *widths])
    numbers = [int(start) for start, width in zip(starts, widths, strict=False) if width == 1]
    layout = layout_of(widths, numbers[: len(numbers) if warp else 0], earlier_count)
    X = points_of(widths, n, rng)
    # Between the choices: near an observed point, the curve bends too fast for numeric differences.
    others = rng.uniform(0.05, 0.95, (4, sum(widths)))
    trend = Waves(rng.normal(0.0, 2.0, (sum(widths), earlier_count))) if earlier_count else None
    return Problem(layout, thetas_of(layout, draws, rng), X, rng.standard_normal(n), others, trend)


def problems() -> st.SearchStrategy[Problem]:
    return st.builds(
        problem,
        st.lists(st.sampled_from([1, 1, 2, 3]), min_size=1, max_size=4),
        warp=st.booleans(),
        earlier_count=st.integers(0, 2),
        n=st.integers(1, 12),
        draws=st.integers(1, 3),
        seed=st.integers(0, 2**32),
    )


def numeric_gradient(f: Callable[[Array], Array], X: Array, step: float = 1e-5) -> Array:
    """Return (..., m, D), the gradient of f (..., m) by central differences; row i of X affects f[..., i] only."""
    columns = []
    for d in range(X.shape[1]):
        shift = np.zeros(X.shape[1])
        shift[d] = step
        columns.append((f(X + shift) - f(X - shift)) / (2.0 * step))
    return np.stack(columns, axis=-1)


def close(a: Array, b: Array, tolerance: float = 1e-5) -> bool:
    """Return whether all differences are small relative to the largest number in b, or to 1."""
    assert a.shape == b.shape
    size = np.abs(b).max(initial=1.0)
    return bool(np.abs(a - b).max(initial=0.0) <= tolerance * size)


# --- comparison with scikit-learn ---------------------------------------------------------------------------

CASES = {
    "numbers": problem([1, 1, 1], warp=False, earlier_count=0, n=15),
    "warped": problem([1, 1, 1], warp=True, earlier_count=0, n=15, seed=1),
    "mixed": problem([1, 3, 1, 2], warp=True, earlier_count=0, n=20, seed=2),
    "one point": problem([1, 2], warp=True, earlier_count=0, n=1, seed=3),
    "trend": problem([1, 3, 1], warp=True, earlier_count=2, n=15, seed=4),
}


def warped_points(layout: ThetaLayout, theta: Array, X: Array) -> Array:
    """Return warped and weighted points, since scikit-learn's kernel does neither."""
    X = X.copy()
    a, b = np.exp(theta[layout.warp_a]), np.exp(theta[layout.warp_b])
    X[:, layout.warped_columns] = 1.0 - (1.0 - X[:, layout.warped_columns] ** a) ** b
    return np.asarray(X * layout.column_weights)


def regressor(layout: ThetaLayout, theta: Array) -> GaussianProcessRegressor:
    kernel = ConstantKernel(math.exp(theta[layout.SIGNAL])) * Matern(
        np.exp(theta[layout.length_scales])[layout.column_parameter], nu=2.5
    ) + WhiteKernel(math.exp(theta[layout.NOISE]))
    return GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None)
