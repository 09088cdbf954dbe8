"""The clock of drivers and workers, in unix seconds that never decrease.

Durations are differences of these times. A correction of the system clock during a study must not change them.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of the current time."""

    def now(self) -> float:
        """Return unix seconds that never decrease."""
        ...


class WallClock:
    """A clock that reads the system clock once, when it is created, and then follows the monotonic clock."""

    def __init__(self, offset: float | None = None) -> None:
        """`offset`: unix seconds at which the monotonic clock was 0; None: taken from the system clock.

        Processes of one machine that use the same offset agree on the time.
        """
        self.offset = time.time() - time.monotonic() if offset is None else offset

    def now(self) -> float:
        return time.monotonic() + self.offset


_of_this_process = WallClock()


def set_offset(offset: float) -> None:
    """Set the offset of wall_time().

    Called once, when a worker starts, with its driver's offset.
    """
    _of_this_process.offset = offset


def wall_time() -> float:
    """Return the time in a worker, by its driver's clock, in unix seconds."""
    return _of_this_process.now()
