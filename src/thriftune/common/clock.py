"""Tells the time to drivers and their workers, in Unix seconds that never go back.

Durations are differences of such times, so a clock that is corrected while a study runs must not show in them.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Unix seconds, never going back."""
        ...


class WallClock:
    """Takes the wall clock's time when it is made, and counts on from there by the monotonic clock.

    `offset`: Unix seconds when the monotonic clock was at 0; by default, as the wall clock has it now. Processes
    of one machine that use the same offset agree on the time.
    """

    def __init__(self, offset: float | None = None) -> None:
        self.offset = time.time() - time.monotonic() if offset is None else offset

    def now(self) -> float:
        return time.monotonic() + self.offset


_of_this_process = WallClock()


def set_offset(offset: float) -> None:
    """Makes wall_time() count from this offset. Called once, when a worker starts, with its driver's."""
    _of_this_process.offset = offset


def wall_time() -> float:
    """Returns the time in a worker: what its driver's clock says."""
    return _of_this_process.now()
