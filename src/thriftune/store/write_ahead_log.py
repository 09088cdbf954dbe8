"""Keeps SQLite's write-ahead log, the -wal file beside a store, safe for its writer.

Commits go to this file. A checkpoint, in SQLite's words, copies them into the main file.

SQLite keeps the file open. If somebody removes it, SQLite goes on writing to a file that no later process finds;
if somebody cuts it, SQLite copies what is missing into the main file as zeros. It notices neither. The -shm file
beside it holds the index of the log and its locks. If that is removed, two processes may write to the log at once.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from thriftune.errors import StoreError

CHECKPOINT_SECONDS = 5.0
"""How long a commit may be in the log alone. A checkpoint syncs two files, so there is not one for each commit."""

CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"
"""PASSIVE waits for nobody: where a reader is in the way, the rest is copied the next time."""

RESCUE_SECONDS = 10.0
"""How long to try to copy a removed log into the main file; readers may be in the way for some milliseconds."""

_HEADER_BYTES = 32
"""The header holds random numbers that SQLite draws anew whenever it writes over the log from its beginning."""


def companion_path(store: Path, suffix: str) -> Path:
    """Return the path of a file or folder that belongs to the store and lies beside it."""
    return store.with_name(f"{store.name}{suffix}")


def modification_stamp(store: Path) -> tuple[int, ...]:
    """Return numbers that change whenever a program writes to the store."""
    file, log = store.stat(), companion_path(store, "-wal")
    return file.st_ino, file.st_mtime_ns, file.st_size, log.stat().st_size if log.exists() else 0


def has_no_log(store: Path) -> bool:
    """Return whether the main file is all there is: no program has the store open, or left a log behind."""
    log = companion_path(store, "-wal")
    return not companion_path(store, "-shm").exists() and not (log.exists() and log.stat().st_size)


class WriteAheadLog:
    """The -wal file of an open store. The caller sees to it that one thread at a time uses it."""

    def __init__(self, db: sqlite3.Connection, store: Path) -> None:
        self._db = db
        self._store = store
        self._path = companion_path(store, "-wal")
        self._file: int | None = None  # open from this connection's first transaction on
        self._index: os.stat_result | None = (
            None  # of the -shm file that SQLite has open; None as long as _file is
        )
        self._header, self._size = b"", 0  # of the file, after the last commit
        self._ahead = False  # whether there was a commit since the last whole checkpoint
        self._checkpointed_at = float("-inf")  # monotonic seconds

    def open(self) -> None:
        """Open the file, if it is not open yet. Called inside a transaction: SQLite has made the file by then."""
        if self._file is not None:
            return
        self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        self._index = companion_path(self._store, "-shm").stat()
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        os.fsync(folder)  # the file's name
        os.close(folder)
        self._remember()

    def committed(self) -> None:
        """Take the file as it is now for sound. Called after each commit."""
        self._ahead = True
        self._remember()

    def sync(self) -> None:
        """Bring the file to disk."""
        if self._file is not None:
            os.fdatasync(self._file)

    def checkpoint(self) -> None:
        """Copy the log into the main file, as far as readers allow."""
        if not self._is_cut:
            self._copy()

    def checkpoint_if_due(self) -> None:
        if self._ahead and time.monotonic() - self._checkpointed_at >= CHECKPOINT_SECONDS:
            self.checkpoint()

    def check(self) -> None:
        """Raise StoreError if the file was removed or cut since the last commit.

        Called before each commit, so that nothing is acknowledged that is not safe. The content of a removed file
        can still be read here, and is copied into the main file first.
        """
        if self._is_cut:
            self._empty()
            if self._copy() == (0, 0):  # another program has emptied it after a checkpoint, which loses nothing
                self._remember()
                return
            raise StoreError(
                f"store {self._store}: {self._path} was cut while it was in use, and what was recorded in the "
                f"last {CHECKPOINT_SECONDS:.0f} s may be lost; the study can be resumed from what is left"
            )
        if (removed := self._removed()) is not None:
            what = f"all of it is now in {self._store}" if self._rescue() else "what was recorded last is lost"
            raise StoreError(
                f"store {self._store}: {removed} was removed or replaced while it was in use; {what}, "
                "and the study can be resumed"
            )

    def prepare_to_close(self) -> None:
        """Keep SQLite from copying a cut file into the main file, as it does when its last connection closes."""
        if self._is_cut:
            self._empty()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _removed(self) -> Path | None:
        """Return the file, the log or its index, that is not any more where a later process would look for it."""
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
        """Whether the file has lost a part. SQLite makes it longer or begins it anew, but never shorter."""
        if self._file is None:
            return False
        header = os.pread(self._file, _HEADER_BYTES, 0)
        if header == self._header:
            return os.fstat(self._file).st_size < self._size
        return not any(header)  # cut, and perhaps written to since then, beyond the old end

    def _remember(self) -> None:
        assert self._file is not None
        self._header = os.pread(self._file, _HEADER_BYTES, 0)
        self._size = os.fstat(self._file).st_size

    def _empty(self) -> None:
        """Discard the rest of a cut file. SQLite then fails to copy it, where it would have copied zeros."""
        assert self._file is not None
        os.ftruncate(self._file, 0)

    def _copy(self) -> tuple[int, int] | None:
        """Copy the log into the main file. Return its length and how much was copied, in pages; None if it failed.

        The commits are in the log all the same, so a failure is no error.
        """
        self._checkpointed_at = time.monotonic()
        try:
            ((_, pages, copied),) = self._db.execute(CHECKPOINT).fetchall()
        except sqlite3.Error:
            return None
        self._ahead = pages > copied
        return pages, copied

    def _rescue(self) -> bool:
        """Copy all of a removed file into the main file; return whether that was done."""
        give_up_at = time.monotonic() + RESCUE_SECONDS
        while (done := self._copy()) is None or self._ahead:
            if time.monotonic() > give_up_at:
                break
            time.sleep(0.01)
        return done is not None and not self._ahead
