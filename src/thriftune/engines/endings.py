"""Why did this process end? Tells a trial's own fault from a machine's."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

# Nobody's own code sends itself these; whoever did was taking the machine or the process away.
_FROM_OUTSIDE = {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT}


@dataclass(frozen=True, slots=True)
class Ending:
    """`kind` as in events.Failed, or None where the trial is not to blame."""

    kind: str | None
    message: str


def ending(status: int, out_of_memory: bool) -> Ending:
    """What a wait status means. `out_of_memory`: the kernel's counter of such kills has moved."""
    if not os.WIFSIGNALED(status):
        code = os.waitstatus_to_exitcode(status)
        return Ending("exited", f"the process exited with status {code} in the middle of the trial")
    number = os.WTERMSIG(status)
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    if number == signal.SIGKILL and out_of_memory:
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
