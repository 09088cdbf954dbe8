"""Find and end the descendants of a process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def adopt_orphans() -> None:
    """Make this process the parent of each descendant whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(number: signal.Signals) -> None:
    """Have the kernel send this process a signal when its parent ends.

    The caller must check afterwards whether the parent has already ended.
    """
    _prctl(_PR_SET_PDEATHSIG, number)


def end_children() -> None:
    """Kill all descendants and wait for their end.

    adopt_orphans() must have been called, so that orphans are found, too.
    """
    while True:
        for pid in children_of(os.getpid()):
            kill(pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def children_of(pid: int) -> list[int]:
    """Return the process ids of the children of a process that has one thread.

    They include children that have ended but were not waited for.
    """
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # a kernel built without that file
        stats = [entry / "stat" for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [int(stat.parent.name) for stat in stats if _fields(stat)[1:2] == [b"%d" % pid]]


def has_ended(pid: int) -> bool:
    """Return whether a process has ended, even if its parent has not waited for it."""
    return _fields(Path(f"/proc/{pid}/stat"))[:1] in ([], [b"Z"])


def kill(pid: int) -> None:
    """Kill a process, unless it has ended or belongs to another user."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _fields(stat: Path) -> list[bytes]:
    """Return the fields of a file /proc/PID/stat: state, parent's id and so on.

    Returns an empty list if the process does not exist any more.
    """
    try:
        return stat.read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)
