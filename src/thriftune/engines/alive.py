"""Waits for the processes of an earlier driver, which hold a lock as long as any of them lives."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from pathlib import Path

from thriftune.errors import StudyBusy
from thriftune.state.events import Event
from thriftune.training.messages import read_spool

GONE_WITHIN_SECONDS = 30.0
"""How long the processes of an earlier driver are given to end; they need milliseconds."""

_LOOK_SECONDS, _WAKE_SECONDS = 0.01, 0.5
"""How often the lock is tried, and how often its holders are looked for, which takes longer."""


def alive_file(folder: Path) -> Path:
    """The file that is locked while a process of the engine in this folder lives."""
    return folder / "alive"


def spools(folder: Path) -> Path:
    """The folder of its workers' spool files."""
    return folder / "spools"


def recover(folder: Path) -> list[Event]:
    """Waits until the engine's earlier processes are gone; returns what its workers said, in order of time."""
    folder.mkdir(parents=True, exist_ok=True)
    wait_until_gone(folder)
    found: list[tuple[float, Event]] = []
    for spool in sorted(spools(folder).glob("*.spool")):
        latest = 0.0  # a clock that was set back must not turn the order of one worker's words
        for event in read_spool(spool):
            latest = max(latest, event.at)
            found.append((latest, event))
    return [event for _, event in sorted(found, key=lambda pair: pair[0])]


def wait_until_gone(folder: Path) -> None:
    """Waits for the processes of an earlier driver, which end when it does: two of one trial must never run."""
    if not is_gone_within(folder, GONE_WITHIN_SECONDS):
        held = alive_file(folder)
        raise StudyBusy(
            f"processes of an earlier run still hold {held} after {GONE_WITHIN_SECONDS:g} s; "
            f"see which with 'fuser {held}', then resume"
        )


def is_gone_within(folder: Path, seconds: float) -> bool:
    """Waits at most this long until no process of the engine in this folder lives; returns whether none does.

    Called when their driver is gone: those that somebody has stopped are continued, and then end.
    """
    began = time.monotonic()
    deadline, wake_at = began + seconds, began + _WAKE_SECONDS
    with alive_file(folder).open("a") as alive:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            now = time.monotonic()
            if now > deadline:
                return False
            if now > wake_at:
                wake_at = now + _WAKE_SECONDS
                _continue_holders(alive_file(folder))
            time.sleep(_LOOK_SECONDS)


def _continue_holders(held: Path) -> None:
    """Sends SIGCONT to each process of this machine that has the file open; nothing where that is not known."""
    with contextlib.suppress(OSError):
        where = held.stat()
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and int(process.name) != os.getpid() and _has_open(process, where):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(int(process.name), signal.SIGCONT)


def _has_open(process: Path, where: os.stat_result) -> bool:
    try:
        return any(_is_same(descriptor, where) for descriptor in (process / "fd").iterdir())
    except OSError:  # it has ended, or is another user's
        return False


def _is_same(descriptor: Path, where: os.stat_result) -> bool:
    try:
        return os.path.samestat(descriptor.stat(), where)
    except OSError:  # closed since
        return False
