"""The search for the point at which the acquisition function is highest."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.optimize import minimize

from thriftune.search.bayes.acquisition import Acquisition
from thriftune.search.bayes.kernel import Array
from thriftune.search.bayes.unit_cube import Cube

SOBOL_POINTS = 256
"""Points spread over the whole cube; a power of two, as scipy's Sobol sequence needs."""

POINTS_NEAR_EACH = 24
"""Random points near each of the points given as `near`."""

STARTS = 6
"""Points from which the acquisition function is improved step by step."""

GRADIENT_STEPS = 15
"""Iterations of L-BFGS from the start points. The best point need not be exact."""

NEIGHBOUR_ROUNDS = 3
"""Rounds in which each start point moves to its best neighbour."""

MIN_INCREASE = 1e-9
"""A neighbour must be better by more than this; smaller differences are rounding errors."""


def sobol_points(cube: Cube, count: int, rng: np.random.Generator) -> Array:
    """Return snapped Sobol points, shifted by one random vector. A shift is cheaper than new scrambling."""
    return cube.snap((_sobol(cube.p, count) + rng.random(cube.p)) % 1.0)


@lru_cache(maxsize=8)
def _sobol(dimensions: int, count: int) -> Array:
    from scipy.stats import qmc  # takes most of a second to import

    return np.asarray(qmc.Sobol(dimensions, scramble=True, seed=np.random.default_rng(0)).random(count))


def rank_points(cube: Cube, acquisition: Acquisition, near: Array, rng: np.random.Generator) -> Array:
    """Return snapped points, the highest acquisition first.

    They are random points of the cube, random points near each row of `near`, and the results of improving the
    most promising of these.
    """
    U = np.concatenate(
        [sobol_points(cube, SOBOL_POINTS, rng), cube.snap(cube.sample_near(near, POINTS_NEAR_EACH, rng))]
    )
    X, _ = cube.encode(U)
    values, mean, variance = acquisition.with_moments(X)
    # Start from the points with the highest acquisition, and from those with the lowest draw of f (Thompson
    # sampling, with an independent draw at each point).
    order = np.argsort(-values, kind="stable")
    thompson = np.argmin(mean + np.sqrt(variance) * rng.standard_normal(mean.shape), axis=1)
    starts = list(dict.fromkeys([*order[: STARTS // 2].tolist(), *thompson.tolist()]))[:STARTS]
    top, top_values = improve(cube, acquisition, U[starts], values[starts], GRADIENT_STEPS, rng)
    U = np.concatenate([top, U])
    values = np.concatenate([top_values, values])
    return U[np.argsort(-values, kind="stable")]


def improve(
    cube: Cube, acquisition: Acquisition, U: Array, values: Array, steps: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return points at least as good as each row of U, and their acquisition.

    Follows the gradient where the parameters have one, then tries neighbouring values of the other parameters.
    """
    if cube.smooth.any() and steps:
        U, values = _keep_better(cube, acquisition, U, values, _ascend_gradient(cube, acquisition, U, steps))
    for _ in range(NEIGHBOUR_ROUNDS):
        active = cube.encode(U)[1]
        neighbours, rows = cube.neighbours(U, active, rng)
        if not len(neighbours):
            break
        neighbour_values = acquisition(cube.encode(neighbours)[0])
        has_moved = False
        U, values = U.copy(), values.copy()
        for j in range(len(U)):
            own = np.flatnonzero(rows == j)
            if len(own) and neighbour_values[own].max() > values[j] + MIN_INCREASE:
                best = own[neighbour_values[own].argmax()]
                U[j], values[j], has_moved = neighbours[best], neighbour_values[best], True
        if not has_moved:
            break
    return U, values


def _keep_better(
    cube: Cube, acquisition: Acquisition, U: Array, values: Array, moved: Array
) -> tuple[Array, Array]:
    """Return the better of each row of U and of `moved`, and its acquisition."""
    moved = cube.snap(moved)
    moved_values = acquisition(cube.encode(moved)[0])
    improved = moved_values > values
    return np.where(improved[:, None], moved, U), np.where(improved, moved_values, values)


def _ascend_gradient(cube: Cube, acquisition: Acquisition, U: Array, steps: int) -> Array:
    """Return the rows of U after `steps` of L-BFGS on the sum of their acquisitions.

    The sum is highest where each row's acquisition is highest.
    """
    _, active = cube.encode(U)
    free = active & cube.smooth
    if not free.any():
        return U

    def negative(flat: Array) -> tuple[float, Array]:
        V = U.copy()
        V[free] = flat
        values, gradient = acquisition.with_gradient(cube.encode(V)[0])
        return -float(values.sum()), -cube.gradient_by_u(gradient)[free]

    start = U[free]
    result = minimize(
        negative,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, 1.0)] * len(start),
        options={"maxiter": steps, "maxfun": steps * 2},
    )
    V = U.copy()
    V[free] = np.clip(result.x, 0.0, 1.0)
    return V
