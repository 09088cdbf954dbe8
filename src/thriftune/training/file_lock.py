"""Lock files between the processes of a machine. The kernel releases the lock of a process that dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

_not_in_children: set[int] = set()
"""The descriptors of exclusive locks. A forked child closes its copies, or it would hold the locks of a dead
parent."""


class FileLock:
    """A lock that this process holds on a lock file, until release()."""

    def __init__(self, fd: int, *, exclusive: bool) -> None:
        self._fd: int | None = fd
        self._exclusive = exclusive

    @classmethod
    def try_take(cls, path: Path, *, exclusive: bool) -> FileLock | None:
        """Take the lock, unless another process, or another thread of this one, has it; return None then.

        The file is created if it is missing. Only the holder of its exclusive lock may remove it.

        - `exclusive`: nobody else may hold the lock. Any number may hold a shared lock at the same time.
        """
        while True:
            # A worker that keeps a writable file open is not used for another trial, so shared locks only read.
            fd = os.open(path, (os.O_RDWR if exclusive else os.O_RDONLY) | os.O_CREAT | os.O_CLOEXEC, 0o600)
            lock = cls(fd, exclusive=exclusive)
            if exclusive:
                _not_in_children.add(fd)
            try:
                fcntl.flock(fd, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
                if _is_file(fd, path):
                    return lock
            except BlockingIOError:
                lock.release()
                return None
            except BaseException:
                lock.release()
                raise
            lock.release()  # its holder has removed the file, and another process may lock a new one

    def release(self) -> None:
        """Release the lock, unless it is released. Children that were forked meanwhile keep a shared lock."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        if self._exclusive:
            if fd not in _not_in_children:  # in a forked child, which has closed it
                return
            fcntl.flock(fd, fcntl.LOCK_UN)  # also for a child that has not yet closed its copy
            _not_in_children.discard(fd)
        os.close(fd)

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _is_file(fd: int, path: Path) -> bool:
    """Return whether a descriptor is that of the file which has this path now."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _close_in_child() -> None:
    for fd in _not_in_children:
        os.close(fd)
    _not_in_children.clear()


os.register_at_fork(after_in_child=_close_in_child)
