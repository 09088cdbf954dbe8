"""Several studies want one cluster: how many workers may each have?

By dominant resource fairness (Ghodsi et al., NSDI 2011). Of each resource a study has some fraction of all there
is; the largest of these is its dominant share. Workers are given one at a time, always to the study whose dominant
share is the smallest, as long as it wants one and there is room. So a study that needs little of what is scarce
does not wait for those who need much of it, and nobody gets more by asking for more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from thriftune.errors import SettingError

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Want:
    """What a study would like to have: so many workers, each with these resources."""

    worker: Mapping[str, float]
    workers: int

    def __post_init__(self) -> None:
        if not needs(self.worker):
            raise SettingError(f"worker: {dict(self.worker)} needs nothing; give it at least {{'CPU': 1}}")


def needs(worker: Mapping[str, float]) -> dict[str, float]:
    """What it really asks for."""
    return {name: amount for name, amount in worker.items() if amount > 0}


def workers_that_fit(total: Mapping[str, float], worker: Mapping[str, float]) -> int:
    """How many such workers there is room for, side by side."""
    fits = (total.get(name, 0.0) / amount for name, amount in needs(worker).items())
    return max(0, math.floor(min(fits) + _ROUNDING))


def dominant_share(total: Mapping[str, float], worker: Mapping[str, float], workers: int) -> float:
    """The largest fraction of anything that so many workers have; infinite where there is none of it."""
    if workers == 0:
        return 0.0
    return max(
        workers * amount / total[name] if total.get(name, 0.0) > 0 else math.inf
        for name, amount in needs(worker).items()
    )


def shares(total: Mapping[str, float], wants: Mapping[str, Want]) -> dict[str, int]:
    """By study, how many workers it may have. Of those with equal shares, the first by name is served first."""
    given = dict.fromkeys(wants, 0)
    left = dict(total)
    waiting = [(0.0, study) for study, want in wants.items() if want.workers > 0]
    heapify(waiting)
    while waiting:
        _, study = heappop(waiting)
        want = wants[study]
        if not workers_that_fit(left, want.worker):
            continue  # nor will it ever: what is left only gets less
        given[study] += 1
        for name, amount in needs(want.worker).items():
            left[name] -= amount
        if given[study] < want.workers:
            heappush(waiting, (dominant_share(total, want.worker, given[study]), study))
    return given
