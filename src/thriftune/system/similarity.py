"""What past work was like this? Work whose profile is like this one's: pluggable, by name or as an object."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from thriftune.common.checks import check_whole
from thriftune.common.registry import Registry
from thriftune.system.known_work import UNTURNED, Work, best, merged
from thriftune.system.profiles import Profiles

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

T = TypeVar("T")

AS_GOOD = 0.03
"""Settings whose steps are no longer than this fraction above the shortest are as good as the best."""

_SLACK = 1.5  # so many times its usual distance, and no further, may work be away and count as alike
_ALIKE = 2.0  # times what noise makes of it; to take what was best for such work costs no more than to look once
_LOOKED_AT = 200  # pieces, the newest, to find the usual distance; more tell no more, and take their time
_MOST_CLUSTERS = 20


class Match(NamedTuple):
    """The past work that is most like the one asked for.

    - `effects`: of its settings, by their keys; of several pieces, the geometric mean.
    - `distance`: from the profile asked for.
    - `limit`: up to which distance work counts as alike.
    """

    effects: Mapping[str, float]
    distance: float
    limit: float

    @property
    def confident(self) -> bool:
        return self.distance <= self.limit


class Similarity(Protocol):
    """A pure function of what is known; what it keeps between calls is only a cache."""

    def match(self, profile: Mapping[str, float], known: Sequence[Work]) -> Match | None:
        """What is most like work of this profile; None where nothing is known that could be compared with it."""
        ...


SIMILARITIES: Registry[Similarity] = Registry(
    "system: similarity",
    {"nearest": (__name__, "Nearest"), "kmeans": (__name__, "KMeans")},
    ("match(profile, known)",),
)


class _Cache(Generic[T]):
    """What was made of the work that was last known, for as long as no more is."""

    def __init__(self, make: Callable[[Sequence[Work]], T]) -> None:
        self._make = make
        self._last: tuple[list[Work], T] | None = None

    def __call__(self, known: Sequence[Work]) -> T:
        if self._last is None or self._last[0] != list(known):
            self._last = list(known), self._make(known)
        return self._last[1]


# --- the nearest pieces -----------------------------------------------------------------------------------


class Nearest:
    """The nearest pieces of work; `neighbours`: at most so many, and of these only such as count as alike.

    Distances are as in Profiles: 1 is how far apart two measurements of the same work usually are. Differences are
    divided by each counter's noise, not by its standard deviation over what is known: divided by that, a counter
    which alone tells work apart would weigh no more than one which tells nothing.

    The limit is 2. Where work that agrees on what is best is usually further apart, it is 1.5 times that: the
    median distance from a piece to the nearest other, if nine in ten of these agree (one more that does not is
    counted in advance, so there must be nine).
    """

    def __init__(self, *, neighbours: int = 3) -> None:
        check_whole("nearest: neighbours", neighbours, 1)
        self.options = {"neighbours": neighbours}
        self._neighbours = neighbours
        self._fitted = _Cache(_neighbourhood)

    def match(self, profile: Mapping[str, float], known: Sequence[Work]) -> Match | None:
        if not known:
            return None
        profiles, limit = self._fitted(known)
        distances = profiles.distances(profiles.row(profile))
        nearest = [int(piece) for piece in distances.argsort(kind="stable")[: self._neighbours]]
        distance = float(distances[nearest[0]])
        if math.isinf(distance):
            return None
        alike = [piece for piece in nearest if distances[piece] <= limit] or nearest[:1]
        return Match(merged(known[piece].effects for piece in alike), distance, limit)


def _neighbourhood(known: Sequence[Work]) -> tuple[Profiles, float]:
    """Its profiles, and the limit."""
    profiles = Profiles.of([work.profile for work in known])
    return profiles, max(_ALIKE, _SLACK * _usual_distance(known, profiles))


def _usual_distance(known: Sequence[Work], profiles: Profiles) -> float:
    """From a piece to the nearest other; 0 unless these mostly agree on what is best."""
    import numpy as np

    usual, agreeing = [], 0
    for piece in range(max(0, len(known) - _LOOKED_AT), len(known)):
        distances = profiles.distances(profiles.rows[piece])
        distances[piece] = np.inf
        other = int(distances.argmin())
        if distances[other] < np.inf:
            usual.append(distances[other])
            agreeing += _agree(known[piece], known[other])
    return float(np.median(usual)) if usual and agreeing >= 0.9 * (len(usual) + 1) else 0.0


# --- the paper's ------------------------------------------------------------------------------------------


class KMeans:
    """The cluster whose centre is nearest, as in PipeTune: k-means on standardised counters.

    A distance is the root of the mean squared difference, over counters, in standard deviations of what is known.
    The limit is 1.5 times what that is from the centre to the cluster's own work, the root of its inertia for each
    piece and counter; what noise makes of one piece is added to the inertia, for a piece alone has none.

    `k`: clusters, at most (the paper has 2). If None: one, where noise accounts for all the differences there are;
    else two to twenty, whose silhouette is best.
    """

    def __init__(self, *, k: int | None = None) -> None:
        if k is not None:
            check_whole("kmeans: k", k, 1)
        self.options = {"k": k}
        self._fitted = _Cache(functools.partial(_Groups.of, k=k))

    def match(self, profile: Mapping[str, float], known: Sequence[Work]) -> Match | None:
        comparable = [work for work in known if work.profile]
        return self._fitted(comparable).match(profile) if comparable else None


@dataclass(frozen=True, slots=True)
class _Groups:
    """What is known, standardised and clustered."""

    profiles: Profiles
    means: Floats  # by counter
    scales: Floats  # by counter: the standard deviation, but no less than noise makes of it
    centres: Floats  # a row for each cluster, as the next two
    limits: Sequence[float]
    effects: Sequence[Mapping[str, float]]

    @classmethod
    def of(cls, known: Sequence[Work], k: int | None) -> _Groups:
        import numpy as np

        from thriftune.system.clusters import best_parted, clusters

        profiles = Profiles.of([work.profile for work in known])
        means = np.nanmean(profiles.rows, 0)
        scales = np.maximum(np.nanstd(profiles.rows, 0), profiles.noise)
        points = np.nan_to_num((profiles.rows - means) / scales)  # where a counter is missing, its mean is as good
        if k is None and np.mean(np.nanvar(profiles.rows, 0) / profiles.noise**2) > 1.0:
            found = best_parted(points, max(2, min(_MOST_CLUSTERS, len(known) - 1)))
        else:
            found = clusters(points, k or 1)
        by_noise = np.mean((profiles.noise / scales) ** 2)
        squared = np.mean((points - found.centres[found.labels]) ** 2, 1)
        limits, effects = [], []
        for label in range(len(found.centres)):
            members = found.labels == label
            limits.append(_SLACK * math.sqrt((by_noise + squared[members].sum()) / members.sum()))
            effects.append(merged(work.effects for work, member in zip(known, members, strict=True) if member))
        return cls(profiles, means, scales, found.centres, limits, effects)

    def match(self, profile: Mapping[str, float]) -> Match | None:
        import numpy as np

        point = (self.profiles.row(profile) - self.means) / self.scales
        there = np.isfinite(point)
        if not there.any():
            return None
        distances = np.sqrt(np.mean((self.centres - point)[:, there] ** 2, 1))
        nearest = int(distances.argmin())
        return Match(self.effects[nearest], float(distances[nearest]), self.limits[nearest])


# --- effects ----------------------------------------------------------------------------------------------


def _regret(setting: str, effects: Mapping[str, float]) -> float:
    """By which fraction steps are longer with it than with the best; infinite where that is not known."""
    known = {**effects, UNTURNED: 1.0}
    return known.get(setting, math.inf) / known[best(known)] - 1.0


def _agree(one: Work, other: Work) -> bool:
    """Whether the best setting of each is as good as the best for the other."""
    return max(_regret(best(one.effects), other.effects), _regret(best(other.effects), one.effects)) <= AS_GOOD


# --- is it any good? --------------------------------------------------------------------------------------


class Agreement(NamedTuple):
    """What came of asking for each piece of work among all the others, whose effects are known.

    - `abstained`: the fraction of pieces of which nothing was said with confidence.
    - `right`: of the others, the fraction for which the setting said to be best is as good as the best.
    - `regret`: of the same, the mean fraction by which steps are longer with it than with the best.

    Without anything said, these two are NaN.
    """

    pieces: int
    abstained: float
    right: float
    regret: float


def agreement(similarity: Similarity, works: Sequence[Work]) -> Agreement:
    """How well it tells from the others what is best for each; of settings that were tried on both."""
    regrets = []
    for number, work in enumerate(works):
        match = similarity.match(work.profile, [*works[:number], *works[number + 1 :]])
        if match is not None and match.confident:
            said = best({setting: effect for setting, effect in match.effects.items() if setting in work.effects})
            regrets.append(_regret(said, work.effects))
    if not regrets:
        return Agreement(len(works), float(bool(works)), math.nan, math.nan)
    right = sum(regret <= AS_GOOD for regret in regrets) / len(regrets)
    return Agreement(len(works), 1 - len(regrets) / len(works), right, math.fsum(regrets) / len(regrets))
