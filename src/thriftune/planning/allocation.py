"""How may a stage's trials share a cluster? Fairly: all alike, and nobody waits for a part of a turn.

As RubberBand 4.3 has it, the slots of a stage are a multiple of its trials, and each has so many workers; or a
factor of them, and trials of one worker take turns.
"""

from __future__ import annotations

from typing import NamedTuple

from thriftune.planning.cloud import CloudProfile


class Allocation(NamedTuple):
    """So many trials at a time, of so many workers each."""

    at_a_time: int
    workers: int

    @property
    def slots(self) -> int:
        return self.at_a_time * self.workers


class Choice(NamedTuple):
    """What a stage runs on: so many machines are held, at least as many as the allocation needs."""

    cloud: CloudProfile
    machines: int
    allocation: Allocation


def fair(trials: int, most_workers: int) -> list[Allocation]:
    """All there are, by their slots."""
    turns = [Allocation(part, 1) for part in range(1, trials) if trials % part == 0]
    return turns + [Allocation(trials, workers) for workers in range(1, most_workers + 1)]
