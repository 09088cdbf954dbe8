"""Computes fair shares of a cluster that several studies use.

The rule is dominant resource fairness (Ghodsi et al., NSDI 2011). A study uses a fraction of each resource of the
cluster; the largest of these fractions is its dominant share. Workers are granted one at a time, always to the
study with the smallest dominant share that wants another worker and has room for it. A study that needs few scarce
resources therefore does not wait for those that need many, and no study gets more by asking for more.
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
    """The number of workers that a study could use, and the resources of each."""

    worker: Mapping[str, float]
    workers: int

    def __post_init__(self) -> None:
        if not needs(self.worker):
            raise SettingError(f"worker: {dict(self.worker)} needs no resource; give it at least {{'CPU': 1}}")


def needs(worker: Mapping[str, float]) -> dict[str, float]:
    """Return the resources of which a worker needs more than zero."""
    return {name: amount for name, amount in worker.items() if amount > 0}


def workers_that_fit(total: Mapping[str, float], worker: Mapping[str, float]) -> int:
    """Return how many such workers the resources suffice for at the same time."""
    fits = (total.get(name, 0.0) / amount for name, amount in needs(worker).items())
    return max(0, math.floor(min(fits) + _ROUNDING))


def dominant_share(total: Mapping[str, float], worker: Mapping[str, float], workers: int) -> float:
    """Return the largest fraction of any resource that these workers use.

    Returns infinity if one is missing.
    """
    if workers == 0:
        return 0.0
    return max(
        workers * amount / total[name] if total.get(name, 0.0) > 0 else math.inf
        for name, amount in needs(worker).items()
    )


def shares(total: Mapping[str, float], wants: Mapping[str, Want]) -> dict[str, int]:
    """Return the number of workers that each study may have.

    Ties go to the first study by name.
    """
    granted = dict.fromkeys(wants, 0)
    free = dict(total)
    waiting = [(0.0, study) for study, want in wants.items() if want.workers > 0]
    heapify(waiting)
    while waiting:
        _, study = heappop(waiting)
        want = wants[study]
        if not workers_that_fit(free, want.worker):
            continue  # no later round can help: free resources only become fewer
        granted[study] += 1
        for name, amount in needs(want.worker).items():
            free[name] -= amount
        if granted[study] < want.workers:
            heappush(waiting, (dominant_share(total, want.worker, granted[study]), study))
    return granted
