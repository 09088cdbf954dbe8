"""Waits for the processes of an earlier driver, which hold a lock as long as any of them lives."""

from __future__ import annotations

import contextlib
import fcntl
import time
from pathlib import Path

from thriftune.engines.wire import read_spool
from thriftune.errors import StudyBusy
from thriftune.events import Event

GONE_WITHIN_SECONDS = 30.0
"""How long the processes of an earlier driver are given to end; they need milliseconds."""

_LOOK_SECONDS = 0.01


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
    """Waits at most this long until no process of the engine in this folder lives; returns whether none does."""
    deadline = time.monotonic() + seconds
    with alive_file(folder).open("a") as alive:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
