"""Which points belong together? Lloyd's k-means with k-means++ seeding; the same points give the same clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Indices = NDArray[np.intp]

_SEED = 0  # fixed, so that what is alike depends on nothing but what is known
_STARTS = 4  # of which the best counts: Lloyd's ends where no step helps, which need not be the best there is
_ITERATIONS = 50


class Clusters(NamedTuple):
    """None of them empty. `inertia`: the sum of the squared distances from each point to its cluster's centre."""

    centres: Floats
    labels: Indices
    inertia: float


def clusters(points: Floats, k: int) -> Clusters:
    """At most `k` clusters of one or more points, a row each."""
    import numpy as np

    rng = np.random.default_rng(_SEED)
    return min((_lloyd(points, _seeds(points, k, rng)) for _ in range(_STARTS)), key=lambda found: found.inertia)


def best_parted(points: Floats, most: int) -> Clusters:
    """Two to `most` clusters: as many as have the highest mean silhouette, the fewest of these.

    For a point at distance a from its own centre and b from the next, it is (b - a) / max(a, b); for one that is
    alone in its cluster, 0 (Rousseeuw 1987, but with the distances to centres instead of those to all points).
    """
    return max((clusters(points, k) for k in range(2, most + 1)), key=lambda found: _silhouette(points, found))


def _seeds(points: Floats, k: int, rng: np.random.Generator) -> Floats:
    """k-means++: each is drawn by its squared distance to those before, so they tend to be far from each other."""
    import numpy as np

    drawn = [points[rng.integers(len(points))]]
    squared = np.full(len(points), np.inf)
    while len(drawn) < k:
        squared = np.minimum(squared, ((points - drawn[-1]) ** 2).sum(1))
        if not squared.any():
            break  # there are no more different ones
        drawn.append(points[rng.choice(len(points), p=squared / squared.sum())])
    return np.array(drawn)


def _lloyd(points: Floats, centres: Floats) -> Clusters:
    import numpy as np

    labels = np.full(len(points), -1)
    for _ in range(_ITERATIONS):
        nearest = _squared(points, centres).argmin(1)
        kept, nearest = np.unique(nearest, return_inverse=True)  # one that has lost all its points is no more
        centres = np.array([points[nearest == label].mean(0) for label in range(len(kept))])
        if np.array_equal(nearest, labels):
            break
        labels = nearest
    inertia = float(((points - centres[labels]) ** 2).sum())
    return Clusters(centres, labels, inertia)


def _silhouette(points: Floats, found: Clusters) -> float:
    import numpy as np

    if len(found.centres) == 1:
        return 0.0
    apart = np.sqrt(_squared(points, found.centres))
    own = np.arange(len(points)), found.labels
    to_own = apart[own]
    apart[own] = np.inf
    to_next = apart.min(1)
    alone = np.bincount(found.labels)[found.labels] == 1
    wider = np.maximum(np.maximum(to_own, to_next), np.finfo(float).tiny)
    return float(np.where(alone, 0.0, (to_next - to_own) / wider).mean())


def _squared(points: Floats, centres: Floats) -> Floats:
    """The squared distance from each point to each centre."""
    squared: Floats = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(2)
    return squared
