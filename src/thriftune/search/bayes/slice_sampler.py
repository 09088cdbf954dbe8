"""Slice sampling from a density that is known up to a constant, along random directions.

Neal 2003, "Slice sampling". Each step draws a level below the density at the current point, and an interval of a
line through the point. It widens the interval until both ends are below the level. Then it tries random points of
the interval, shrinking the interval to each point below the level, until a point is above it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from thriftune.search.bayes.kernel import Array

WIDTH = 2.0
"""The width of the first interval, in lengths of the direction vector."""

MAX_SHRINKS = 50
"""After this many tries the chain stays at its point: rounding can leave no other point above the level."""


def draws(
    log_density: Callable[[Array], float],
    start: Array,
    scale: Array,
    low: Array,
    high: Array,
    rng: np.random.Generator,
) -> Iterator[Array]:
    """Yield an endless chain of draws between `low` and `high`; `start` itself is not yielded.

    `scale` is the typical size of each coordinate.
    """
    point, density = start, log_density(start)
    while True:
        direction = rng.standard_normal(len(start))
        direction *= scale / math.sqrt(float(direction @ direction))
        point, density = _step(log_density, point, density, direction, low, high, rng)
        yield point


def _step(
    log_density: Callable[[Array], float],
    point: Array,
    density: float,
    direction: Array,
    low: Array,
    high: Array,
    rng: np.random.Generator,
) -> tuple[Array, float]:
    """Return the next point of the chain and its log density."""
    level = density - rng.standard_exponential()
    with np.errstate(divide="ignore", invalid="ignore"):
        to_low, to_high = (low - point) / direction, (high - point) / direction
    first = float(np.nanmax(np.minimum(to_low, to_high)))
    last = float(np.nanmin(np.maximum(to_low, to_high)))
    left = -rng.random() * WIDTH
    right = left + WIDTH
    while left > first and log_density(point + left * direction) > level:
        left -= WIDTH
    while right < last and log_density(point + right * direction) > level:
        right += WIDTH
    left, right = max(left, first), min(right, last)
    for _ in range(MAX_SHRINKS):
        t = left + rng.random() * (right - left)
        candidate = np.clip(point + t * direction, low, high)
        candidate_density = log_density(candidate)
        if candidate_density > level:
            return candidate, candidate_density
        if t < 0.0:
            left = t
        else:
            right = t
    return point, density
