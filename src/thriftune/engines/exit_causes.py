"""Find out whether a process ended by a fault of its trial or from outside."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

_SIGNALS_FROM_OUTSIDE = {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT}
"""Signals that a program does not send itself. They come from a user, the system or a shutdown of the machine."""

_UNCLAIMED_SECONDS = 2.0
"""A kill by the kernel that was not claimed within this time is assumed to have ended a process that is no
worker."""


@dataclass(frozen=True, slots=True)
class ExitCause:
    """The cause of the end of a process.

    - `kind`: a value of events.Failed.kind; None if the process was ended from outside.
    - `message`: the cause as a text for users.
    """

    kind: str | None
    message: str


class MemoryKills:
    """Counts the processes that the kernel has killed because memory ran out.

    Each kill can be claimed once, as the cause of the end of one worker.
    """

    def __init__(self) -> None:
        self._claimed = self._seen = out_of_memory_kills()  # kills since the machine booted
        self._checked_at = time.monotonic()

    def check(self) -> None:
        """Discard kills that were not claimed within _UNCLAIMED_SECONDS.

        Must be called often.
        """
        now = time.monotonic()
        if now - self._checked_at >= _UNCLAIMED_SECONDS:
            self._checked_at = now  # not at each call, because reading the count takes longer than a short trial
            self._claimed = max(self._claimed, self._seen)
            self._seen = out_of_memory_kills()

    def claim(self) -> bool:
        """Claim a recent kill for a worker that has just ended.

        Returns False if there is none to claim.
        """
        if out_of_memory_kills() <= self._claimed:
            return False
        self._claimed += 1
        return True


def exit_cause(status: int, memory_kills: MemoryKills) -> ExitCause:
    """Return why a process has ended. `status`: its wait status."""
    if not os.WIFSIGNALED(status):
        code = os.waitstatus_to_exitcode(status)
        return ExitCause("exited", f"the process exited with status {code} in the middle of the trial")
    number = os.WTERMSIG(status)
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    if number == signal.SIGKILL and memory_kills.claim():
        return ExitCause("memory", "killed by the kernel: the machine, or the group's limit, ran out of memory")
    if number in _SIGNALS_FROM_OUTSIDE:
        return ExitCause(None, f"the process was ended from outside ({name})")
    return ExitCause("signal", f"the process died of {name}")


def out_of_memory_kills() -> int:
    """Return how many processes the kernel has killed because memory ran out.

    The count begins when the machine boots. Returns 0 if it is unknown.
    """
    try:
        with Path("/proc/vmstat").open() as lines:
            return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
    except OSError:
        return 0
