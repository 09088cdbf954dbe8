"""Guard the write-ahead log of SQLite against removal and truncation.

The log is the -wal file beside a store. Commits go to this file. A checkpoint copies them into the main file.

SQLite keeps the log open and does not notice when another program changes it. If the log is removed, SQLite
continues to write to a file that no later process finds. If it is cut, SQLite copies zeros into the main file in
place of the missing part. The -shm file beside it contains the index of the log and its locks. If that file is
removed, two processes may write to the log at the same time.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from thriftune.errors import StoreError

CHECKPOINT_SECONDS = 5.0
"""The longest time for which a commit is only in the log. A checkpoint for each commit would be too slow."""

CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"
"""PASSIVE does not wait for readers. The next checkpoint copies the part that a reader still needs."""

RESCUE_SECONDS = 10.0
"""How long to try to copy a removed log into the main file. Readers can delay the copy by some milliseconds."""

_HEADER_BYTES = 32
"""The size of the log's header. It contains random numbers, which change when SQLite overwrites the log from its
beginning."""


def companion_path(store: Path, suffix: str) -> Path:
    """Return the path of a file or folder that belongs to the store.

    It is beside the store, and its name is that of the store with the suffix.
    """
    return store.with_name(f"{store.name}{suffix}")


def modification_stamp(store: Path) -> tuple[int, ...]:
    """Return numbers that change whenever a program writes to the store."""
    file, log = store.stat(), companion_path(store, "-wal")
    return file.st_ino, file.st_mtime_ns, file.st_size, log.stat().st_size if log.exists() else 0


def has_no_log(store: Path) -> bool:
    """Return whether the main file is complete.

    This is so if no program has the store open, and no log is left.
    """
    log = companion_path(store, "-wal")
    return not companion_path(store, "-shm").exists() and not (log.exists() and log.stat().st_size)


class WriteAheadLog:
    """The -wal file of an open store. Only one thread at a time may use it."""

    def __init__(self, db: sqlite3.Connection, store: Path) -> None:
        self._db = db
        self._store = store
        self._path = companion_path(store, "-wal")
        self._file: int | None = None  # open from this connection's first transaction on
        self._index: os.stat_result | None = None  # of the -shm file that SQLite has open; None if _file is None
        self._header, self._size = b"", 0  # header and size in bytes of the file after the last commit
        self._ahead = False  # the log has commits that are not in the main file
        self._checkpointed_at = float("-inf")  # monotonic seconds

    def open(self) -> None:
        """Open the file unless it is open.

        Called in a transaction, when SQLite has already created the file.
        """
        if self._file is not None:
            return
        self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        self._index = companion_path(self._store, "-shm").stat()
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        os.fsync(folder)  # makes the name of the file durable
        os.close(folder)
        self._remember()

    def committed(self) -> None:
        """Remember the present state of the file as valid. Called after each commit."""
        self._ahead = True
        self._remember()

    def sync(self) -> None:
        """Sync the file to disk."""
        if self._file is not None:
            os.fdatasync(self._file)

    def checkpoint(self) -> None:
        """Copy the log into the main file, except for what readers still need."""
        if not self._is_cut:
            self._copy()

    def checkpoint_if_due(self) -> None:
        """Make a checkpoint if one is due.

        It is due if new commits exist, and the last checkpoint was CHECKPOINT_SECONDS ago.
        """
        if self._ahead and time.monotonic() - self._checkpointed_at >= CHECKPOINT_SECONDS:
            self.checkpoint()

    def check(self) -> None:
        """Raise StoreError if the file was removed or cut since the last commit.

        Called before each commit, so that no commit is lost after it was confirmed. This process can still read a
        removed file, and copies its content into the main file before it raises the error.
        """
        if self._is_cut:
            self._empty()
            if self._copy() == (0, 0):  # another program emptied it after a checkpoint: nothing is lost
                self._remember()
                return
            raise StoreError(
                f"store {self._store}: {self._path} was cut while it was in use, and what was recorded in the "
                f"last {CHECKPOINT_SECONDS:.0f} s may be lost; the study can be resumed from what is left"
            )
        if (removed := self._removed()) is not None:
            outcome = f"all of it is now in {self._store}" if self._rescue() else "what was recorded last is lost"
            raise StoreError(
                f"store {self._store}: {removed} was removed or replaced while it was in use; {outcome}, "
                "and the study can be resumed"
            )

    def prepare_to_close(self) -> None:
        """Empty the file if it was cut.

        SQLite would otherwise copy it into the main file when its last connection closes.
        """
        if self._is_cut:
            self._empty()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _removed(self) -> Path | None:
        """Return the path of the log or of its index if that file was removed or replaced.

        Returns None if neither was.
        """
        if self._file is None or self._index is None:
            return None
        for path, opened in (
            (self._path, os.fstat(self._file)),
            (companion_path(self._store, "-shm"), self._index),
        ):
            try:
                if not os.path.samestat(path.stat(), opened):
                    return path
            except FileNotFoundError:
                return path
        return None

    @property
    def _is_cut(self) -> bool:
        """Return whether another program has cut the file.

        SQLite itself extends or overwrites it, but does not shorten it.
        """
        if self._file is None:
            return False
        header = os.pread(self._file, _HEADER_BYTES, 0)
        if header == self._header:
            return os.fstat(self._file).st_size < self._size
        return not any(header)  # zeros: the file was cut, and SQLite has then written after the old end

    def _remember(self) -> None:
        """Remember the present header and size of the file."""
        assert self._file is not None
        self._header = os.pread(self._file, _HEADER_BYTES, 0)
        self._size = os.fstat(self._file).st_size

    def _empty(self) -> None:
        """Discard the rest of a cut file, so that SQLite cannot copy zeros from it."""
        assert self._file is not None
        os.ftruncate(self._file, 0)

    def _copy(self) -> tuple[int, int] | None:
        """Copy the log into the main file.

        Returns (pages in the log, pages copied), or None if the copy failed. A failure is not an error, because
        the commits are still in the log.
        """
        self._checkpointed_at = time.monotonic()
        try:
            ((_, pages, copied),) = self._db.execute(CHECKPOINT).fetchall()
        except sqlite3.Error:
            return None
        self._ahead = pages > copied
        return pages, copied

    def _rescue(self) -> bool:
        """Copy all of a removed file into the main file; return whether this succeeded."""
        give_up_at = time.monotonic() + RESCUE_SECONDS
        while (done := self._copy()) is None or self._ahead:
            if time.monotonic() > give_up_at:
                break
            time.sleep(0.01)
        return done is not None and not self._ahead
