"""Draws from a density that is known up to a constant, one slice along a random direction after another.

Neal 2003, "Slice sampling": a level is drawn below the density at the current point; an interval of the line
through it is widened until both its ends are below the level, and points of it are tried, the interval shrinking
to each that is below the level, until one is above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from thriftune.search.bayes.kernel import Array

WIDTH = 2.0
"""Of the first interval, in units of the direction."""

SHRINKINGS = 50
"""Tries before the chain stays where it is: rounding can leave nothing of the slice but the point itself."""


def draws(
    log_density: Callable[[Array], float],
    start: Array,
    scale: Array,
    low: Array,
    high: Array,
    rng: np.random.Generator,
) -> Iterator[Array]:
    """The chain from `start` on, which is not among it; for ever. `scale`: the typical size of each coordinate."""
    at, level = start, log_density(start)
    while True:
        direction = rng.standard_normal(len(start))
        direction *= scale / math.sqrt(float(direction @ direction))
        at, level = _step(log_density, at, level, direction, low, high, rng)
        yield at


def _step(
    log_density: Callable[[Array], float],
    at: Array,
    density: float,
    direction: Array,
    low: Array,
    high: Array,
    rng: np.random.Generator,
) -> tuple[Array, float]:
    level = density - rng.standard_exponential()
    with np.errstate(divide="ignore", invalid="ignore"):
        to_low, to_high = (low - at) / direction, (high - at) / direction
    first = float(np.nanmax(np.minimum(to_low, to_high)))
    last = float(np.nanmin(np.maximum(to_low, to_high)))
    left = -rng.random() * WIDTH
    right = left + WIDTH
    while left > first and log_density(at + left * direction) > level:
        left -= WIDTH
    while right < last and log_density(at + right * direction) > level:
        right += WIDTH
    left, right = max(left, first), min(right, last)
    for _ in range(SHRINKINGS):
        t = left + rng.random() * (right - left)
        there = np.clip(at + t * direction, low, high)
        value = log_density(there)
        if value > level:
            return there, value
        if t < 0.0:
            left = t
        else:
            right = t
    return at, density
