"""The Pareto front: which vectors of objectives no other one dominates."""

from __future__ import annotations

from collections.abc import Sequence
from operator import le


def dominates(a: Sequence[float], b: Sequence[float]) -> bool:
    """Return whether `a` is nowhere larger than `b` and somewhere smaller."""
    return a != b and all(map(le, a, b))


def undominated(losses: Sequence[Sequence[float]]) -> list[int]:
    """Return the indices, ascending, of the vectors that no other vector dominates.

    A vector dominates another if it is nowhere larger and somewhere smaller. Of equal vectors, all are returned.
    All numbers must be finite.
    """
    import numpy as np  # imported here: commands such as `list` do not need it

    if not losses:
        return []
    # unique() sorts by the first number, then the second and so on: a vector comes before all that it dominates.
    points, inverse = np.unique(np.asarray(losses, dtype=float) + 0.0, axis=0, return_inverse=True)
    is_front = np.zeros(len(points), dtype=bool)
    if points.shape[1] == 2:
        lowest = np.minimum.accumulate(points[:, 1])
        is_front[0] = True
        is_front[1:] = points[1:, 1] < lowest[:-1]
    else:
        candidates = np.arange(len(points))
        while candidates.size:
            first, rest = candidates[0], candidates[1:]
            is_front[first] = True
            candidates = rest[(points[rest] < points[first]).any(axis=1)]
    indices: list[int] = np.flatnonzero(is_front[inverse.reshape(-1)]).tolist()
    return indices
