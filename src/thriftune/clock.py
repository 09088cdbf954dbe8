"""What time is it? Asked by drivers only; everybody else is told."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Unix seconds, never going back."""
        ...


class WallClock:
    """The time on the wall when it was made, and the steady clock from then on: corrections of the wall clock
    must not end a trial or move a deadline."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        return time.monotonic() + self._offset
