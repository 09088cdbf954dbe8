"""Why did this process end? Tells a trial's own fault from a machine's."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

# Nobody's own code sends itself these; whoever did was taking the machine or the process away.
_FROM_OUTSIDE = {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT}

_UNCLAIMED_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Ending:
    """`kind` as in events.Failed, or None where the trial is not to blame."""

    kind: str | None
    message: str


class MemoryKills:
    """The kernel's kills for want of memory, of which each explains the death of one process of ours.

    One that nobody has claimed for a while hit something else on this machine.
    """

    def __init__(self) -> None:
        self._explained = self._seen = out_of_memory_kills()
        self._looked_at = time.monotonic()

    def look(self) -> None:
        """To be called often, so that a kill of long ago explains nothing."""
        now = time.monotonic()
        if now - self._looked_at >= _UNCLAIMED_SECONDS:
            self._looked_at = now  # reading costs more than a short trial
            self._explained = max(self._explained, self._seen)
            self._seen = out_of_memory_kills()

    def claim(self) -> bool:
        """Whether one happened lately that explains a death which is known just now."""
        if out_of_memory_kills() <= self._explained:
            return False
        self._explained += 1
        return True


def ending(status: int, memory_kills: MemoryKills) -> Ending:
    """What a wait status means."""
    if not os.WIFSIGNALED(status):
        code = os.waitstatus_to_exitcode(status)
        return Ending("exited", f"the process exited with status {code} in the middle of the trial")
    number = os.WTERMSIG(status)
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    if number == signal.SIGKILL and memory_kills.claim():
        return Ending("memory", "killed by the kernel: the machine, or the group's limit, ran out of memory")
    if number in _FROM_OUTSIDE:
        return Ending(None, f"the process was ended from outside ({name})")
    return Ending("signal", f"the process died of {name}")


def out_of_memory_kills() -> int:
    """How often the kernel has killed for memory since it booted; 0 where it does not say."""
    try:
        with Path("/proc/vmstat").open() as lines:
            return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
    except OSError:
        return 0
