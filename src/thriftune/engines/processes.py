"""Finds and ends the descendants of a process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def adopt_orphans() -> None:
    """Makes this process the parent of each descendant whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(number: signal.Signals) -> None:
    """Has the kernel send this signal to this process when its parent ends. The parent may have ended before."""
    _prctl(_PR_SET_PDEATHSIG, number)


def end_children() -> None:
    """Kills all descendants and waits until they are gone. This process must have adopted their orphans."""
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
    """Returns the children of a process with one thread, also those that have ended and are not reaped."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # a kernel built without that file
        stats = [entry / "stat" for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [int(stat.parent.name) for stat in stats if _fields(stat)[1:2] == [b"%d" % pid]]


def has_ended(pid: int) -> bool:
    """Returns whether a process is gone, or only waits to be reaped."""
    return _fields(Path(f"/proc/{pid}/stat"))[:1] in ([], [b"Z"])


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _fields(stat: Path) -> list[bytes]:
    """Returns the state of a process, the id of its parent, and more; nothing where it is gone."""
    try:
        return stat.read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)
