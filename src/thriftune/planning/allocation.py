"""How may a stage's trials share a cluster? Fairly: all alike, and nobody waits for a part of a turn.

As RubberBand 4.3 has it, the slots of a stage are a multiple of its trials, and each has so many workers; or a
factor of them, and trials of one worker take turns. Where only so many trials may run at a time, hardly a number
has a factor near that: there the last turn may be one of fewer trials.
"""

from __future__ import annotations

from typing import NamedTuple

from thriftune.planning.cloud_profile import CloudProfile


class Allocation(NamedTuple):
    """So many trials at a time, of so many workers each."""

    at_a_time: int
    workers: int

    @property
    def slots(self) -> int:
        return self.at_a_time * self.workers


class StageAllocation(NamedTuple):
    """What a stage runs on: so many machines are held, at least as many as the allocation needs."""

    cloud: CloudProfile
    machines: int
    allocation: Allocation


def fair(trials: int, most_workers: int, most_at_a_time: int | None = None) -> list[Allocation]:
    """All there are, by their slots."""
    if most_at_a_time is None:
        parts = [part for part in range(1, trials) if trials % part == 0]
    else:
        parts = sorted({-(-trials // turns) for turns in range(2, trials + 1)})
    found = [Allocation(part, 1) for part in parts]
    found += [Allocation(trials, workers) for workers in range(1, most_workers + 1)]
    return [each for each in found if most_at_a_time is None or each.at_a_time <= most_at_a_time]
