"""Keep folders with code and packages in the cache of a machine.

    ~/.cache/thriftune/KIND/HASH/          a folder, which is complete as soon as it exists
    ~/.cache/thriftune/KIND/HASH.used      locked by each process that uses the folder; keeps it in the cache
    ~/.cache/thriftune/KIND/HASH.lock      locked by the process that creates the folder

All workers of one machine share the cache, also those of other studies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

_UNUSED_SECONDS = 14 * 86_400.0
"""A folder that no process has used for this long is removed from the cache."""

_used_locks: dict[Path, int] = {}
"""The descriptors of the locks on folders that this process uses, by path."""


def cached_folder(cache: Path, name: str, fill: Callable[[Path, int], object]) -> Path:
    """Return a folder of the cache, and keep it there until this process ends. Create it if it is missing.

    Several processes may call it at the same time: one creates the folder, and the others wait.

    - `name`: tells the contents of the folder, such as their hash.
    - `fill`: called with an empty folder and the descriptor of a lock. A process that inherits the descriptor
      holds the lock until it ends, too.
    """
    folder = cache / name
    used = folder.with_suffix(".used")
    if used not in _used_locks:
        descriptor = _lock(used, fcntl.LOCK_SH)
    else:
        descriptor = _used_locks[used]
    try:
        if not folder.exists():  # also if it was removed by hand
            creating = _lock(folder.with_suffix(".lock"), fcntl.LOCK_EX)
            try:
                if not folder.exists():
                    _remove_unfinished(folder)
                    _create(folder, fill, creating)
            finally:
                os.close(creating)
        os.utime(used)
    except BaseException:
        _used_locks.pop(used, None)
        os.close(descriptor)
        raise
    _used_locks[used] = descriptor
    _remove_unused(cache)
    return folder


def _create(folder: Path, fill: Callable[[Path, int], object], lock: int) -> None:
    unfinished = folder.with_suffix(f".unfinished-{os.getpid()}")
    unfinished.mkdir(mode=0o700)
    try:
        fill(unfinished, lock)
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)  # it may have filled the disk
        raise


def _lock(path: Path, kind: int) -> int:
    """Wait until a file can be locked, and return its descriptor. The lock is held until that is closed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, kind)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _remove_unfinished(folder: Path) -> None:
    """Remove what processes that were killed have left. Called by the process that holds the lock."""
    for left in folder.parent.glob(f"{folder.name}.unfinished-*"):
        shutil.rmtree(left, ignore_errors=True)


def _remove_unused(cache: Path) -> None:
    """Remove folders that no process has used for a long time."""
    for used in cache.glob("*.used"):
        folder = used.with_suffix("")
        with contextlib.suppress(OSError):
            if used.stat().st_mtime > time.time() - _UNUSED_SECONDS or not folder.exists():
                continue
            with used.open("r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                doomed = folder.with_suffix(".unfinished-removed")  # removed later if this process is killed
                shutil.rmtree(doomed, ignore_errors=True)
                folder.rename(doomed)
                shutil.rmtree(doomed, ignore_errors=True)
