"""Who drives a study? One lock a study, held for as long as its driver lives and not a moment longer.

The locks of a file are flocks: the kernel lets go of them when their holder dies, by SIGKILL too, and they
hold between threads of one process as between processes. A lock file's content tells who holds it, and means
nothing while nobody does. Lock files are removed only with their study: if they were removed at the end of a
drive, two drivers could each hold a lock on a file of that name, one of them unlinked.
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
"""How long a driver tries for its lock. Others may hold it for a moment without being a driver: whoever looks
who the driver is, and a child of a driver just killed that was between fork and exec."""


class LockHeld(Exception):
    """Somebody else holds the lock."""

    def __init__(self, by: DriverInfo) -> None:
        super().__init__(by)
        self.by = by


class Locks(Protocol):
    """The locks of one store, by the number of the study."""

    def hold(self, study: int) -> AbstractContextManager[None]:
        """Hold the study's lock while inside. Raises Held."""

    def holder(self, study: int) -> DriverInfo | None:
        """Who holds the study's lock now."""

    def remove(self, study: int) -> None:
        """Forget the lock of a study that is gone for good. Only its holder may."""


class MemoryLocks:
    """For a store that no other process can see."""

    def __init__(self) -> None:
        self._holders: dict[int, DriverInfo] = {}

    @contextmanager
    def hold(self, study: int) -> Iterator[None]:
        me = _this_process()
        # setdefault is atomic: of two threads, only one finds its own object there.
        if (holder := self._holders.setdefault(study, me)) is not me:
            raise LockHeld(holder)
        try:
            yield
        finally:
            del self._holders[study]

    def holder(self, study: int) -> DriverInfo | None:
        return self._holders.get(study)

    def remove(self, study: int) -> None:
        """Nothing is left behind that could be removed."""


class FileLocks:
    """For a store that is a file: one lock file a study, all in one folder."""

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
            # In a forked child the file is closed already, and the lock is not the child's to let go of.
            if file in _open_locks:
                _open_locks.remove(file)
                # Closing is not enough while a child between fork and exec has the file open too.
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
            time.sleep(0.001)  # it has only just got its lock, and is about to write who it is
    return DriverInfo(0, "an unknown host", os.fstat(file).st_mtime)


# A child forked without exec shares the open file, and with it the lock: a pool's worker that outlives its
# killed parent would keep the study busy. So every child closes its copies at once; the parent's lock stays.
_open_locks: set[int] = set()


def _close_in_child() -> None:
    for file in _open_locks:
        os.close(file)
    _open_locks.clear()


os.register_at_fork(after_in_child=_close_in_child)
