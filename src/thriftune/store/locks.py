"""Lock studies, so that each has at most one driver.

If the store is a file, the lock of a study is an flock on a lock file. The kernel releases it when the process
dies, even by SIGKILL. It excludes other threads of the same process as well as other processes. The content of a
lock file names the holder. It has no meaning while no process holds the lock. A lock file is removed only with
its study. If it were removed after each drive, two drivers could hold a lock: one on the removed file, and one
on a new file of the same name.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Protocol

from thriftune.store.protocol import DriverInfo

PATIENCE_SECONDS = 0.5
"""How long a driver tries to get its lock.

Another process may hold it for a short time: one that finds out which process is the driver, or a child that a
killed driver has forked and that has not called exec yet.
"""


class LockHeld(Exception):
    """Raised if another driver holds the lock."""

    def __init__(self, holder: DriverInfo) -> None:
        super().__init__(holder)
        self.holder = holder


class Locks(Protocol):
    """The locks of one store. `study` is the id of the study in the store."""

    def hold(self, study: int) -> AbstractContextManager[None]:
        """Hold the study's lock during a `with` block. Raises LockHeld."""

    def holder(self, study: int) -> DriverInfo | None:
        """Return the process that holds the study's lock; None if no process does."""

    def remove(self, study: int) -> None:
        """Remove the lock of a deleted study. Only its holder may call this."""


class MemoryLocks:
    """The locks of a store in memory, which no other process can open."""

    def __init__(self) -> None:
        self._holders: dict[int, DriverInfo] = {}

    @contextmanager
    def hold(self, study: int) -> Iterator[None]:
        own = _this_process()
        # setdefault() is atomic: of two threads, only one gets its own object back.
        if (holder := self._holders.setdefault(study, own)) is not own:
            raise LockHeld(holder)
        try:
            yield
        finally:
            del self._holders[study]

    def holder(self, study: int) -> DriverInfo | None:
        return self._holders.get(study)

    def remove(self, study: int) -> None:
        """Do nothing: a lock in memory disappears when it is released."""


class FileLocks:
    """The locks of a store in a file: a lock file for each study, in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def hold(self, study: int) -> Iterator[None]:
        self._folder.mkdir(mode=0o755, exist_ok=True)
        file = os.open(self._path(study), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        _open_locks.add(file)
        try:
            give_up_at = time.monotonic() + PATIENCE_SECONDS
            while not _try_lock(file, fcntl.LOCK_EX):
                if time.monotonic() > give_up_at:
                    raise LockHeld(_read_holder(file))
                time.sleep(0.005)
            os.ftruncate(file, 0)
            os.pwrite(file, json.dumps(astuple(_this_process())).encode(), 0)
            yield
        finally:
            # In a forked child the file is already closed, and the parent keeps the lock.
            if file in _open_locks:
                _open_locks.remove(file)
                # Closing does not suffice: a child that has not called exec yet may have the file open, too.
                fcntl.flock(file, fcntl.LOCK_UN)
                os.close(file)

    def holder(self, study: int) -> DriverInfo | None:
        try:
            file = os.open(self._path(study), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return None if _try_lock(file, fcntl.LOCK_SH) else _read_holder(file)
        finally:
            os.close(file)

    def remove(self, study: int) -> None:
        self._path(study).unlink(missing_ok=True)

    def _path(self, study: int) -> Path:
        return self._folder / f"{study}.lock"


def _this_process() -> DriverInfo:
    return DriverInfo(os.getpid(), os.uname().nodename, time.time())


def _try_lock(file: int, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_holder(file: int) -> DriverInfo:
    for _ in range(100):
        try:
            return DriverInfo(*json.loads(os.pread(file, 4096, 0)))
        except (ValueError, TypeError):
            time.sleep(0.001)  # the holder has just got the lock and has not written its name yet
    return DriverInfo(0, "an unknown host", os.fstat(file).st_mtime)


# A forked child shares the open file and thus the lock. A worker of a process pool that outlives its killed parent
# would keep the study locked. Every child therefore closes its copies at once. The parent keeps its lock.
_open_locks: set[int] = set()


def _close_in_child() -> None:
    for file in _open_locks:
        os.close(file)
    _open_locks.clear()


os.register_at_fork(after_in_child=_close_in_child)
