"""Translate errors of SQLite and of the disk into errors for users.

Their messages tell the user what to do.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from thriftune.errors import StoreError, StoreFull

BUSY_SECONDS = 60.0
"""How long to wait for commits of other studies' drivers. A commit usually takes less than a millisecond."""

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

PROBE_BYTES = 65536
"""The size of a write that tests whether the disk is full: larger than any single write of SQLite."""

ADVICE = {
    sqlite3.SQLITE_BUSY: f"another program has kept it locked for {BUSY_SECONDS:.0f} s; end that program",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check that you may write to its folder",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore a copy, or rescue the rest with sqlite3's .recover",
    sqlite3.SQLITE_FULL: "the disk is full; nothing was written: free some space and go on",
    sqlite3.SQLITE_IOERR: "the disk failed or is full; nothing was written: free some space or check the disk",
    sqlite3.SQLITE_IOERR_SHORT_READ: "the file or its -wal file ends too early; it was cut, or removed while a "
    "study ran. If one still runs, stop it and look again; else restore a copy",
    sqlite3.SQLITE_NOTADB: "the file is not a database; name another file",
    sqlite3.SQLITE_READONLY: "it cannot be written; put the store where you may write",
}
"""By SQLite's error code: a text that says what is wrong and what to do."""


@contextmanager
def translated_errors(path: Path | None, *, read_only: bool) -> Iterator[None]:
    """Translate errors in a `with` block to StoreError or StoreFull.

    These are errors of SQLite and of the disk. StoreFull says that the disk is full.

    - `path`: the file of the store; None for a store in memory.
    - `read_only`: the user may not write to the store.
    """
    name = path or "memory"
    try:
        yield
    except sqlite3.Error as error:
        kind = StoreFull if _is_disk_full(error, path) else StoreError
        reason = ADVICE.get(_extended_code(error)) or ADVICE.get(error_code(error)) or str(error)
        if path is not None and path.exists() and not os.access(path, os.R_OK):
            reason = "you may not read it; ask its owner for permission, or name another store"
        elif read_only and error_code(error) == sqlite3.SQLITE_CANTOPEN:
            reason = f"{name}-wal has to be copied into it first; ask someone who may write to open it once"
        raise kind(f"store {name}: {reason}") from error
    except OSError as error:
        kind = StoreFull if error.errno in NO_SPACE else StoreError
        raise kind(f"store {name}: it cannot be brought to disk ({error.strerror})") from error
    except UnicodeEncodeError as error:
        raise StoreError(f"store {name}: {error.object!r} is not valid text") from error


def _is_disk_full(error: sqlite3.Error, path: Path | None) -> bool:
    """Return whether SQLite failed because the disk is full.

    SQLite reports some of these failures as IO errors.
    """
    if error_code(error) != sqlite3.SQLITE_IOERR or _extended_code(error) == sqlite3.SQLITE_IOERR_SHORT_READ:
        return error_code(error) == sqlite3.SQLITE_FULL
    if path is None:
        return False
    try:
        with tempfile.TemporaryFile(dir=path.parent, buffering=0) as probe:
            probe.write(bytes(PROBE_BYTES))
            os.fsync(probe.fileno())
    except OSError as failed:
        return failed.errno in NO_SPACE
    return False


def error_code(error: BaseException | None) -> int:
    """Return the SQLite error code of an error; 0 if the error is not one of SQLite.

    It is the low byte of the extended error code.
    """
    return _extended_code(error) & 0xFF


def _extended_code(error: BaseException | None) -> int:
    return int(getattr(error, "sqlite_errorcode", 0))
