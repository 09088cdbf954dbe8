"""The scaling of observed values for the model: mean 0, variance 1, and no long tail of bad values."""

from __future__ import annotations

import numpy as np

from thriftune.search.bayes.kernel import Array

LARGEST = 1e100
"""Values are clipped here, so that their squares can be summed without overflow."""

_MIN_SPREAD = 1e-150
"""The smallest spread, as a share of the largest distance from the median; less would overflow."""


def normalise(values: Array, *, robust: bool) -> Array:
    """Return values (n,), lower is better, with mean 0 and variance 1; `robust` compresses the tail first.

    Values that differ only by rounding errors become zeros.
    """
    y = np.clip(values, -LARGEST, LARGEST)
    if robust:
        y = compress_tail(y)
    largest = np.abs(y).max(initial=1e-288)
    y = y - y.mean()
    # Scale by the largest value first: the square of a number far below 1 underflows.
    size = np.abs(y).max(initial=0.0)
    if size <= 1e-12 * largest:  # all values are the same, but for rounding
        return np.zeros(len(y))
    y = y / size
    normal: Array = y / y.std()
    return normal


def compress_tail(y: Array) -> Array:
    """Return values with those above the median pulled in by asinh, in units of the spread below it.

    The loss of a diverged training may be a thousand times that of a poor one, but tells no more. Up to about one
    spread above the median, values hardly change. Far beyond it, only the logarithm of the distance counts.
    """
    median = float(np.median(y))
    below = median - y[y <= median]
    # If at least half of all values are equal, use the median distance of the values above instead.
    spread = float(np.sqrt(np.mean((below / (below.max() or 1.0)) ** 2)) * below.max()) if below.any() else 0.0
    if spread == 0.0:
        above = y[y > median] - median
        spread = float(np.median(above)) if len(above) else 1.0
    spread = max(spread, _MIN_SPREAD * float(y.max() - median))
    distance = np.maximum(y - median, 0.0) / spread
    return np.where(y > median, median + spread * np.arcsinh(distance), y)


def scaled_distance_to_limit(values: Array, limit: float) -> Array:
    """Return how far each value is above a limit, compressed on both sides; 0 at the limit, mean square 1.

    Latencies and sizes may range over decades, while the side of the limit is what counts.
    """
    above = np.clip(values, -LARGEST, LARGEST) - float(np.clip(limit, -LARGEST, LARGEST))
    # The unit is the median distance on the nearer side. On the other side, values may range over decades.
    sides = [np.abs(side) for side in (above[above < 0.0], above[above > 0.0]) if len(side)]
    if not sides:
        return np.zeros(len(values))
    unit = min(float(np.median(side)) for side in sides)
    y = np.arcsinh(above / max(unit, _MIN_SPREAD * float(np.abs(above).max())))
    scaled: Array = y / np.sqrt(np.mean(y**2))
    return scaled
