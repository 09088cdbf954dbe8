"""Wait for the processes of an earlier driver, and read their reports."""

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

END_WITHIN_SECONDS = 30.0
"""How long to wait for the processes of an earlier driver. They usually end within milliseconds."""

_POLL_SECONDS = 0.01
_CONTINUE_SECONDS = 0.5
"""The time between two searches for stopped processes, longer than between polls because a search reads all of
/proc."""


def alive_file(folder: Path) -> Path:
    """Return the file that each process of the engine locks while it runs.

    `folder`: the folder of the engine.
    """
    return folder / "alive"


def spool_folder(folder: Path) -> Path:
    """Return the folder of the spool files. `folder`: the folder of the engine."""
    return folder / "spools"


def recover(folder: Path) -> list[Event]:
    """Wait for the processes of an earlier driver, and return their workers' events.

    The events are ordered by time. `folder`: the folder of the engine.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wait_for_processes(folder)
    timed_events: list[tuple[float, Event]] = []
    for spool in sorted(spool_folder(folder).glob("*.spool")):
        latest = 0.0  # keeps the order of a worker's events if the clock was set back
        for event in read_spool(spool):
            latest = max(latest, event.at)
            timed_events.append((latest, event))
    return [event for _, event in sorted(timed_events, key=lambda pair: pair[0])]


def wait_for_processes(folder: Path) -> None:
    """Wait for an earlier driver's processes to end; raise StudyBusy if they do not.

    They end when their driver ends. Without the wait, two processes could run the same trial.
    """
    if not processes_end_within(folder, END_WITHIN_SECONDS):
        lock = alive_file(folder)
        raise StudyBusy(
            f"processes of an earlier run still hold {lock} after {END_WITHIN_SECONDS:g} s; "
            f"see which with 'fuser {lock}', then resume"
        )


def processes_end_within(folder: Path, seconds: float) -> bool:
    """Wait at most this long for the engine's processes to end.

    Returns whether all have ended. Called after their driver has ended. Processes that were stopped by a signal
    are continued, so that they can end.
    """
    began = time.monotonic()
    deadline, continue_at = began + seconds, began + _CONTINUE_SECONDS
    with alive_file(folder).open("a") as lock:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            now = time.monotonic()
            if now > deadline:
                return False
            if now > continue_at:
                continue_at = now + _CONTINUE_SECONDS
                _continue_processes_with_open(alive_file(folder))
            time.sleep(_POLL_SECONDS)


def _continue_processes_with_open(file: Path) -> None:
    """Send SIGCONT to each process of this machine that has the file open.

    Does nothing without /proc.
    """
    with contextlib.suppress(OSError):
        file_status = file.stat()
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and int(process.name) != os.getpid() and _has_open(process, file_status):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(int(process.name), signal.SIGCONT)


def _has_open(process: Path, file_status: os.stat_result) -> bool:
    try:
        return any(_is_same(descriptor, file_status) for descriptor in (process / "fd").iterdir())
    except OSError:  # the process has ended, or belongs to another user
        return False


def _is_same(descriptor: Path, file_status: os.stat_result) -> bool:
    try:
        return os.path.samestat(descriptor.stat(), file_status)
    except OSError:  # it has been closed
        return False
