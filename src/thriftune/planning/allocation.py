"""The fair ways in which the trials of a stage can share a cluster.

An allocation is fair when all trials of the stage have the same number of workers. In RubberBand (section 4.3) the
number of slots is a multiple of the number of trials, or a divisor of it; with a divisor, trials of one worker
train in rounds of equal size. If parallel trials are limited, there is often no divisor near the limit. With a
limit, the last round may therefore be smaller than the others.
"""

from __future__ import annotations

from typing import NamedTuple

from thriftune.planning.cloud_profile import CloudProfile


class Allocation(NamedTuple):
    """The number of trials that train at a time, and the workers of each."""

    at_a_time: int
    workers: int

    @property
    def slots(self) -> int:
        return self.at_a_time * self.workers


class StageAllocation(NamedTuple):
    """The machines that a stage holds, and how its trials share them.

    `machines` is at least the number that `allocation` needs.
    """

    cloud: CloudProfile
    machines: int
    allocation: Allocation


def fair_allocations(trials: int, max_workers: int, max_at_a_time: int | None = None) -> list[Allocation]:
    """Return all fair allocations of a stage, in order of their slots.

    `max_workers` limits the workers of a trial, `max_at_a_time` the trials that train in parallel (None: no
    limit).
    """
    if max_at_a_time is None:
        round_sizes = [size for size in range(1, trials) if trials % size == 0]
    else:
        round_sizes = sorted({-(-trials // rounds) for rounds in range(2, trials + 1)})
    allocations = [Allocation(size, 1) for size in round_sizes]
    allocations += [Allocation(trials, workers) for workers in range(1, max_workers + 1)]
    return [each for each in allocations if max_at_a_time is None or each.at_a_time <= max_at_a_time]
