"""Which point is worth most? A dense set is looked at, and the best of it and some anchors are climbed from."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.optimize import minimize

from thriftune.search.bayes.acquisition import Worth
from thriftune.search.bayes.cube import Cube
from thriftune.search.bayes.kernel import Array

POINTS = 256
"""Of the dense set; a power of two, as Sobol points come."""

AROUND = 24
"""Points near each of those around which to look, too."""

ANCHORS = 6
"""Points that are climbed from."""

ITERATIONS = 15
"""Steps of the climb."""


def dense(cube: Cube, count: int, rng: np.random.Generator) -> Array:
    """Sobol points, shifted around the cube by chance; cheaper than to scramble them anew."""
    return cube.snap((_sobol(cube.p, count) + rng.random(cube.p)) % 1.0)


@lru_cache(maxsize=8)
def _sobol(dimensions: int, count: int) -> Array:
    from scipy.stats import qmc

    return np.asarray(qmc.Sobol(dimensions, scramble=True, seed=np.random.default_rng(0)).random(count))


def best_points(cube: Cube, value: Worth, near: Array, rng: np.random.Generator) -> Array:
    """Snapped points in the order of their worth, the best first. `near`: points around which to look, too."""
    U = np.concatenate([dense(cube, POINTS, rng), cube.snap(cube.around(near, AROUND, rng))])
    X, _ = cube.columns(U)
    worth, mean, variance = value.look(X)
    # Anchors: the points that are worth most, and those where draws of f from the marginals are lowest.
    order = np.argsort(-worth, kind="stable")
    thompson = np.argmin(mean + np.sqrt(variance) * rng.standard_normal(mean.shape), axis=1)
    chosen = list(dict.fromkeys([*order[: ANCHORS // 2].tolist(), *thompson.tolist()]))[:ANCHORS]
    top, top_worth = climb(cube, value, U[chosen], worth[chosen], ITERATIONS, rng)
    U = np.concatenate([top, U])
    worth = np.concatenate([top_worth, worth])
    return U[np.argsort(-worth, kind="stable")]


def climb(
    cube: Cube, value: Worth, U: Array, worth: Array, iterations: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Better points from each row of U on: by slope where there is one, by trying neighbours where not."""
    if cube.smooth.any() and iterations:
        U, worth = _better(cube, value, U, worth, _ascend(cube, value, U, iterations))
    for _ in range(3):
        active = cube.columns(U)[1]
        others, owners = cube.neighbours(U, active, rng)
        if not len(others):
            break
        at = value(cube.columns(others)[0])
        moved = False
        U, worth = U.copy(), worth.copy()
        for j in range(len(U)):
            mine = np.flatnonzero(owners == j)
            if len(mine) and at[mine].max() > worth[j] + 1e-9:
                k = mine[at[mine].argmax()]
                U[j], worth[j], moved = others[k], at[k], True
        if not moved:
            break
    return U, worth


def _better(cube: Cube, value: Worth, U: Array, worth: Array, moved: Array) -> tuple[Array, Array]:
    moved = cube.snap(moved)
    at = value(cube.columns(moved)[0])
    improved = at > worth
    return np.where(improved[:, None], moved, U), np.where(improved, at, worth)


def _ascend(cube: Cube, value: Worth, U: Array, iterations: int) -> Array:
    """All at once, as one problem: their sum is highest where each is."""
    _, active = cube.columns(U)
    free = active & cube.smooth
    if not free.any():
        return U

    def negative(flat: Array) -> tuple[float, Array]:
        V = U.copy()
        V[free] = flat
        worth, slope = value.with_slope(cube.columns(V)[0])
        return -float(worth.sum()), -cube.slope(slope)[free]

    start = U[free]
    found = minimize(
        negative,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, 1.0)] * len(start),
        options={"maxiter": iterations, "maxfun": iterations * 2},
    )
    V = U.copy()
    V[free] = np.clip(found.x, 0.0, 1.0)
    return V
