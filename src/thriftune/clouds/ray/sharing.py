"""Compute fair shares of a cluster that several studies use.

The rule is dominant resource fairness (Ghodsi et al., NSDI 2011). Each study uses a fraction of each resource of
the cluster. The largest of these fractions is its dominant share. Workers are granted one at a time. The next
worker goes to the study with the smallest dominant share, among the studies that want another worker that still
fits. A study that needs few scarce resources therefore does not wait for studies that need many. No study gets a
larger share by a larger request.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from thriftune.errors import SettingError

_ROUNDING = 1e-9
"""Added before a division is rounded down, because the quotient may be slightly too small."""


@dataclass(frozen=True, slots=True)
class Want:
    """The number of workers that a study could use, and the resources of each.

    - `worker`: the resources of one worker.
    """

    worker: Mapping[str, float]
    workers: int

    def __post_init__(self) -> None:
        if not needs(self.worker):
            raise SettingError(f"worker: {dict(self.worker)} needs no resource; give it at least {{'CPU': 1}}")


def needs(worker: Mapping[str, float]) -> dict[str, float]:
    """Return the resources of which a worker needs more than zero."""
    return {name: amount for name, amount in worker.items() if amount > 0}


def workers_that_fit(total: Mapping[str, float], worker: Mapping[str, float]) -> int:
    """Return the number of workers that fit into the resources at the same time.

    - `total`: the resources.
    - `worker`: the resources of each worker.
    """
    fits = (total.get(name, 0.0) / amount for name, amount in needs(worker).items())
    return max(0, math.floor(min(fits) + _ROUNDING))


def dominant_share(total: Mapping[str, float], worker: Mapping[str, float], workers: int) -> float:
    """Return the largest fraction of any resource that these workers use.

    Returns infinity if they need a resource that the cluster does not have.
    """
    if workers == 0:
        return 0.0
    return max(
        workers * amount / total[name] if total.get(name, 0.0) > 0 else math.inf
        for name, amount in needs(worker).items()
    )


def shares(total: Mapping[str, float], wants: Mapping[str, Want]) -> dict[str, int]:
    """Return the number of workers that each study may have.

    Of studies with equal shares, the first by name gets the next worker.

    - `total`: the resources of the cluster.
    - `wants`: the request of each study.
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
