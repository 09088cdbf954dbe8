"""How are observations made fit for the model? Mean 0, variance 1, and no tail of bad values above the good."""

from __future__ import annotations

import numpy as np

from thriftune.search.bayes.kernel import Array

LARGEST = 1e100
"""Values are cut off here, so that their squares can be summed."""


def normalised(values: Array, *, robust: bool) -> Array:
    """`values` (n,), lower is better. Robust: eased first."""
    y = np.clip(values, -LARGEST, LARGEST)
    if robust:
        y = eased(y)
    largest = np.abs(y).max(initial=1e-288)
    y = y - y.mean()
    # The largest first: what is far below 1 loses its square.
    size = np.abs(y).max(initial=0.0)
    if size <= 1e-12 * largest:  # constant, but for rounding
        return np.zeros(len(y))
    y = y / size
    normal: Array = y / y.std()
    return normal


def eased(y: Array) -> Array:
    """What lies above the median is pulled in: by asinh, in units of the spread of what lies below it.

    A diverged training has a loss a thousand times larger than a poor one, and no more to tell. Up to about a
    spread above the median nothing changes; far beyond it, only the logarithm of the distance counts.
    """
    median = float(np.median(y))
    below = median - y[y <= median]
    # Half of all values may be equal: then what is above is measured by its own middle.
    spread = float(np.sqrt(np.mean((below / (below.max() or 1.0)) ** 2)) * below.max()) if below.any() else 0.0
    if spread == 0.0:
        above = y[y > median] - median
        spread = float(np.median(above)) if len(above) else 1.0
    spread = max(spread, 1e-150 * float(y.max() - median))  # so that no reach is infinite
    reach = np.maximum(y - median, 0.0) / spread
    return np.where(y > median, median + spread * np.arcsinh(reach), y)


def from_limit(values: Array, limit: float) -> Array:
    """How far each value is beyond a limit, eased on both sides: 0 at the limit, mean square 1.

    Latencies and sizes may range over decades, while what counts is on which side they are.
    """
    beyond = np.clip(values, -LARGEST, LARGEST) - float(np.clip(limit, -LARGEST, LARGEST))
    # In units of the side that is nearer: on the other one values may go on for decades.
    sides = [np.abs(side) for side in (beyond[beyond < 0.0], beyond[beyond > 0.0]) if len(side)]
    if not sides:
        return np.zeros(len(values))
    unit = min(float(np.median(side)) for side in sides)
    y = np.arcsinh(beyond / max(unit, 1e-150 * float(np.abs(beyond).max())))
    eased_beyond: Array = y / np.sqrt(np.mean(y**2))
    return eased_beyond
