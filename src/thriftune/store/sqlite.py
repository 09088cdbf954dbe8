"""The store in one SQLite file.

It needs no server, and readers never block the writer. Commits go to the write-ahead log, the -wal file. A
commit survives the death of any process at once. It survives a power cut only after sync(), because SQLite runs
with synchronous = NORMAL and does not sync the log on every commit. In SQLite, a checkpoint is a copy of the
write-ahead log into the main file. It is made when a study is created, every few seconds while a study runs, and
at the end of a drive.
"""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from reprlib import repr as short
from typing import Any, Self

from thriftune.errors import (
    StoreConflict,
    StoreError,
    StudyBusy,
    StudyDamaged,
    StudyExists,
    StudyNotFound,
)
from thriftune.state.event_checks import is_time
from thriftune.state.events import Codec, Event
from thriftune.store.locks import FileLocks, LockHeld, Locks, MemoryLocks
from thriftune.store.log_segments import Line
from thriftune.store.messages import busy, conflict, exists, new_name_exists, not_found
from thriftune.store.protocol import DriverInfo, StudyListing
from thriftune.store.sqlite_errors import ADVICE, BUSY_SECONDS, error_code, translated_errors
from thriftune.store.sqlite_schema import APPLICATION_ID, CREATE_SHIPPED, SCHEMA, VERSION
from thriftune.store.write_ahead_log import WriteAheadLog, companion_path, has_no_log, modification_stamp

UPDATE_HEAD = "UPDATE heads SET entries = ?, summary = coalesce(?, summary) WHERE study = ? AND entries = ?"
ADD_ENTRY = "INSERT INTO log (study, number, kind, trial, at, body) VALUES (?, ?, ?, ?, ?, ?)"


class SqliteStore:
    """The studies in one SQLite file.

    If `path` is None, the studies are in memory, and end with this object.
    """

    def __init__(self, path: Path | None, *, create: bool = True) -> None:
        # Resolved, so that all processes with this file use the same locks.
        self._path = path and path.expanduser().resolve()
        # One thread at a time may use the connection. Re-entrant, because a transaction may run a query.
        self._mutex = threading.RLock()
        self._ids: dict[str, int] = {}  # a cache of the ids of studies by name, for append(); no id is used twice
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._locks: Locks = MemoryLocks()
        self._read_only = False
        # modification_stamp() of a file that SQLite opened as immutable; None for any other file.
        self._immutable_stamp: tuple[int, ...] | None = None
        address = ":memory:"
        if self._path:
            self._locks = FileLocks(companion_path(self._path, ".locks"))
            self._check_path(self._path, create)
            address = f"{self._path.as_uri()}?{self._mode(self._path, create)}"
        with self._errors():
            self._db = sqlite3.connect(
                address, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        self._log = WriteAheadLog(self._db, self._path) if self._path else None
        try:
            self._prepare()
            self._inode = self._path.stat().st_ino if self._path else 0
        except BaseException:
            self._db.close()
            raise

    @property
    def url(self) -> str:
        return str(self._path or ":memory:")

    @property
    def folder(self) -> Path:
        if self._path:
            return companion_path(self._path, ".files")
        if self._temporary is None:  # removed by close()
            self._temporary = tempfile.TemporaryDirectory(prefix="thriftune-")
        return Path(self._temporary.name)

    # --- studies ------------------------------------------------------------------------------------------

    def create(self, name: str, spec: Mapping[str, Any], at: float, entries: Sequence[Event] = ()) -> None:
        text = json.dumps(spec)
        with self._writing() as db:
            if db.execute("SELECT 1 FROM studies WHERE name = ?", (name,)).fetchall():
                raise StudyExists(exists(name, self._where))
            new = "INSERT INTO studies (name, created_at, spec) VALUES (?, ?, ?)"
            study = db.execute(new, (name, at, text)).lastrowid or 0
            db.execute("INSERT INTO heads (study, entries) VALUES (?, ?)", (study, len(entries)))
            db.executemany(ADD_ENTRY, _rows(study, 0, entries))
        self._checkpoint()

    def spec(self, name: str) -> dict[str, Any]:
        try:
            return _json_object(self._look_up(name, "CAST(spec AS BLOB)"))
        except ValueError as error:
            raise StudyDamaged(name, self.url, f"its settings cannot be read ({error})") from error

    def update_spec(self, name: str, spec: Mapping[str, Any]) -> None:
        text = json.dumps(spec)
        with self._writing() as db:
            db.execute("UPDATE studies SET spec = ? WHERE id = ?", (text, self._id(name)))

    def studies(self) -> list[StudyListing]:
        # The texts are read as blobs, because SQLite's conversion to text fails for all rows if one is not valid.
        rows = self._rows(
            "SELECT id, CAST(name AS BLOB), created_at, CAST(spec AS BLOB), CAST(summary AS BLOB), entries "
            "FROM studies LEFT JOIN heads ON study = id ORDER BY created_at DESC, id DESC"
        )
        return [self._listed(*row) for row in rows]

    def _listed(
        self, study: int, named: bytes, at: object, spec: object, summary: object, entries: object
    ) -> StudyListing:
        """Return the listing of a study from a row of the tables `studies` and `heads`."""
        name, driver = named.decode(errors="replace"), self._holder(study)
        try:
            settings = _json_object(spec)
            created_at, length = _time(at), _length(entries)
        except ValueError as error:
            return StudyListing(name, 0.0, {}, {}, 0, driver, f"its settings cannot be read ({error})")
        try:
            known = _json_object(summary)
        except ValueError:  # the summary can always be computed from the log again
            known = {}
        return StudyListing(name, created_at, settings, known, length, driver)

    def rename(self, name: str, new: str, spec: Mapping[str, Any]) -> None:
        text = json.dumps(spec)
        with self._driving(name) as study:
            with self._writing() as db:
                if db.execute("SELECT 1 FROM studies WHERE name = ?", (new,)).fetchall():
                    raise StudyExists(new_name_exists(new, self._where))
                db.execute("UPDATE studies SET name = ?, spec = ? WHERE id = ?", (new, text, study))
            self._ids.pop(name, None)
            self._checkpoint()

    def delete(self, name: str) -> None:
        with self._driving(name) as study:
            with self._writing() as db:
                db.execute("DELETE FROM studies WHERE id = ?", (study,))
            self._locks.remove(study)

    # --- the log ------------------------------------------------------------------------------------------

    def append(
        self, name: str, after: int, entries: Sequence[Event], summary: Mapping[str, Any] | None = None
    ) -> None:
        # The rows are prepared before the transaction, because drivers of other studies wait for its end.
        study = self._ids.get(name) or self._id(name)
        rows = _rows(study, after, entries)
        head = (after + len(rows), None if summary is None else json.dumps(summary), study, after)
        with self._writing(sync=False) as db:
            if db.execute(UPDATE_HEAD, head).rowcount == 0:
                self._ids.pop(name, None)  # the name may belong to another study now
                raise StoreConflict(conflict(name, self._where, self.length(name), after))
            db.executemany(ADD_ENTRY, rows)

    def sync(self) -> None:
        with self._mutex, self._errors():
            if self._log is not None:
                self._log.sync()

    def read(self, name: str, after: int = 0) -> list[Event]:
        min_length = self.length(name)  # read before the entries, because a driver may append some
        select = (
            "SELECT number, CAST(kind AS BLOB), CAST(body AS BLOB) FROM log WHERE study = ? AND number > ? "
            "ORDER BY number"
        )
        number = after
        events: list[Event] = []
        try:
            for stored_number, kind, body in self._rows(select, self._id(name), after):
                number += 1
                if stored_number != number:
                    raise ValueError("it is missing")
                events.append(Codec.event(kind.decode(), body.decode("ascii")))
        except ValueError as error:
            raise StudyDamaged(name, self.url, f"entry {number}: {error}") from error
        if number < min_length and after < min_length:
            raise StudyDamaged(name, self.url, f"its log ends at entry {number}, and should have {min_length}")
        return events

    def lines(self, name: str, first: int, entries: int) -> list[Line]:
        """Return entries as they are stored, without checks. `first`: the number of the first, counted from 0."""
        select = "SELECT kind, trial, at, body FROM log WHERE study = ? AND number BETWEEN ? AND ? ORDER BY number"
        rows = self._rows(select, self._id(name), first + 1, first + entries)
        return [Line(*row) for row in rows]

    def shipped_by(self, name: str) -> str:
        """Return the id of the drive that ships this log, or has shipped it last; empty if none has.

        A log that was replaced since, or that another machine has continued, has another drive elsewhere.
        """
        if not self._rows("SELECT 1 FROM sqlite_master WHERE name = 'shipped'"):
            return ""
        rows = self._rows("SELECT drive FROM shipped WHERE study = ?", self._id(name))
        return str(rows[0][0]) if rows else ""

    def set_shipped_by(self, name: str, drive: str) -> None:
        """Record the id of the drive that ships this log from now on."""
        study = self._id(name)
        with self._writing() as db:
            db.execute(CREATE_SHIPPED)
            db.execute("INSERT OR REPLACE INTO shipped (study, drive) VALUES (?, ?)", (study, drive))

    def replace_log(self, name: str, lines: Sequence[Line], summary: Mapping[str, Any]) -> None:
        """Replace the whole log with entries as lines() returns them. Called by the study's driver."""
        study, text = self._id(name), json.dumps(summary)
        with self._writing() as db:
            db.execute("DELETE FROM log WHERE study = ?", (study,))
            db.executemany(ADD_ENTRY, ((study, number, *line) for number, line in enumerate(lines, 1)))
            db.execute("UPDATE heads SET entries = ?, summary = ? WHERE study = ?", (len(lines), text, study))
        self._checkpoint()

    def listing(self, name: str) -> StudyListing:
        """Return the data of one study for a list of studies."""
        select = (
            "SELECT id, CAST(name AS BLOB), created_at, CAST(spec AS BLOB), CAST(summary AS BLOB), entries "
            "FROM studies LEFT JOIN heads ON study = id WHERE id = ?"
        )
        return self._listed(*self._rows(select, self._id(name))[0])

    def length(self, name: str) -> int:
        try:
            return _length(self._look_up(name, "entries"))
        except ValueError as error:
            raise StudyDamaged(name, self.url, f"the length of its log cannot be read ({error})") from error

    # --- drivers and requests -----------------------------------------------------------------------------

    @contextmanager
    def drive(self, name: str) -> Iterator[None]:
        with self._driving(name):
            try:
                yield
            finally:
                self._checkpoint()

    def driver(self, name: str) -> DriverInfo | None:
        return self._holder(self._id(name))

    def request(self, name: str, what: str, at: float) -> None:
        with self._writing() as db:
            insert = "INSERT INTO requests (study, what, at) VALUES (?, ?, ?)"
            db.execute(insert, (self._id(name), what, at))

    def take_requests(self, name: str) -> list[str]:
        self._check_file()
        if self._log is not None:
            with self._mutex, self._errors():
                self._log.check()
                self._log.checkpoint_if_due()
        select = "SELECT id, what FROM requests WHERE study = ? ORDER BY id"
        rows = self._rows(select, self._id(name))
        if rows:
            with self._writing() as db:
                db.executemany("DELETE FROM requests WHERE id = ?", [(number,) for number, _ in rows])
        return [what for _, what in rows]

    def close(self) -> None:
        with self._mutex:
            if self._log is not None:
                self._log.prepare_to_close()
            self._db.close()
            if self._log is not None:
                self._log.close()
            if self._temporary is not None:
                self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- opening ------------------------------------------------------------------------------------------

    def _check_path(self, path: Path, create: bool) -> None:
        """Check the path of the store, and create its folder if needed.

        With `create`, also creates the file. Raises an error if the file cannot be a store, or if it does not
        exist and shall not be created.
        """
        if not create and not (path.exists() and path.stat().st_size):
            raise StudyNotFound(
                f"there is no store at {path}: no study has been run there yet; if yours is in another store, "
                "name it with --store PATH, or set THRIFTUNE_STORE"
            )
        # SQLite and the locks find the other files of a store by its name.
        if path.is_file() and (names := path.stat().st_nlink) > 1:
            raise StoreError(
                f"store {path}: the file has {names} names (hard links), and drivers under different names "
                "would not see each other; remove the other names, or copy it and use the copy"
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"store {path}: its folder cannot be made ({error.strerror})") from error
        if create:
            # No other user may write to the file, whatever the umask is, because resuming a study runs code that
            # the store names. mknod() creates the file without opening it, because closing a file releases the
            # locks that other threads have on it. If mknod() fails, SQLite raises the error.
            with suppress(OSError):
                os.mknod(path, 0o644)

    def _mode(self, path: Path, create: bool) -> str:
        """Return the URL parameters with which SQLite opens the file.

        A user without write permission can use existing -wal and -shm files, but cannot create them. If they do
        not exist, SQLite must be told that the file is immutable. _rows() checks that it did not change.
        """
        if create or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            return "mode=rwc" if create else "mode=rw"
        self._read_only = True
        if not has_no_log(path):
            return "mode=ro"
        self._immutable_stamp = modification_stamp(path)
        return "mode=ro&immutable=1"

    def _check_file(self) -> None:
        """Raise StoreError if the file was removed or replaced.

        SQLite does not notice this.
        """
        if self._path is None:
            return
        try:
            inode = self._path.stat().st_ino
        except OSError:
            inode = None
        if inode != self._inode:
            raise StoreError(
                f"store {self._where}: the file was removed or replaced while it was in use, "
                "and what was written since is lost with it"
            )

    def _prepare(self) -> None:
        with self._errors():
            self._db.execute("PRAGMA foreign_keys = ON")
            # The file stays valid after a power cut. sync() makes the latest commits durable.
            self._db.execute("PRAGMA synchronous = NORMAL")
        if self._pragma("application_id") != APPLICATION_ID:
            self._create_schema()
        if (version := self._pragma("user_version")) != VERSION:
            raise StoreError(
                f"{self._where} is a store of version {version}, but this thriftune knows only version "
                f"{VERSION}; upgrade thriftune"
            )
        if self._path and not self._read_only and not self._enable_wal():
            raise StoreError(
                f"{self._where} is on a file system where readers would block the study "
                "(SQLite's write-ahead log does not work there); put the store on a local disk"
            )

    def _create_schema(self) -> None:
        # Not with _writing(): the write-ahead log is not enabled yet.
        with self._mutex, self._errors(), self._transaction() as db:
            if self._pragma("application_id") == APPLICATION_ID:
                return  # another process has created it
            if db.execute("SELECT 1 FROM sqlite_master").fetchall():
                raise StoreError(f"{self._where} is the database of another program; name another file")
            for statement in SCHEMA.split(";"):
                db.execute(statement)

    def _enable_wal(self) -> bool:
        """Switch the write-ahead log on; return whether it works here.

        Retries while other processes open the new file, because SQLite does not wait for them.
        """
        give_up_at = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                return bool(self._pragma("journal_mode = WAL") == "wal")
            except StoreError as error:
                if error_code(error.__cause__) != sqlite3.SQLITE_BUSY or time.monotonic() > give_up_at:
                    raise
                time.sleep(0.005)

    def _pragma(self, pragma: str) -> Any:
        return self._rows(f"PRAGMA {pragma}")[0][0]

    # --- access to the database ---------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        return str(self._path or "memory")

    def _errors(self) -> AbstractContextManager[None]:
        """Return translated_errors() for this store."""
        return translated_errors(self._path, read_only=self._read_only)

    @contextmanager
    def _writing(self, *, sync: bool = True) -> Iterator[sqlite3.Connection]:
        """Run a `with` block as a transaction.

        It is committed at the end of the block, or rolled back after an error. `sync`: sync the commit to disk.
        """
        if self._read_only:
            raise StoreError(f"store {self._where}: {ADVICE[sqlite3.SQLITE_READONLY]}")
        with self._mutex, self._errors():
            if self._log is not None:
                self._log.check()
            with self._transaction() as db:
                if self._log is not None:
                    self._log.open()
                yield db
            if self._log is not None:
                self._log.committed()
                if sync:
                    self._log.sync()
                self._log.checkpoint_if_due()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            # IMMEDIATE: wait for the write lock here, so that no later statement fails because of it.
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _checkpoint(self) -> None:
        if self._log is not None:
            with self._mutex:
                self._log.checkpoint()

    def _rows(self, select: str, *values: object) -> list[Any]:
        """Return all rows of a query.

        All rows are fetched at once, because an unfinished query prevents checkpoints of the write-ahead log.
        """
        with self._mutex, self._errors():
            try:
                return self._db.execute(select, values).fetchall()
            finally:
                expected = self._immutable_stamp
                if expected is not None and self._path and expected != modification_stamp(self._path):
                    raise StoreError(f"store {self._where}: a study has begun to write to it; look again")

    def _look_up(self, name: str, column: str) -> Any:
        if rows := self._rows(f"SELECT {column} FROM studies LEFT JOIN heads ON study = id WHERE name = ?", name):
            return rows[0][0]
        raise StudyNotFound(self._not_found(name))

    def _id(self, name: str) -> int:
        self._ids[name] = study = int(self._look_up(name, "id"))
        return study

    def _not_found(self, name: str) -> str:
        return not_found(name, self._where, [other for (other,) in self._rows("SELECT name FROM studies")])

    # --- access to the locks ------------------------------------------------------------------------------

    @contextmanager
    def _driving(self, name: str) -> Iterator[int]:
        """Hold the study's lock during a `with` block, and yield the study's id.

        Raises StudyBusy if another driver holds the lock.
        """
        study = self._id(name)
        with ExitStack() as stack:
            try:
                stack.enter_context(self._locks.hold(study))
            except LockHeld as error:
                raise StudyBusy(busy(name, self.url, error.holder)) from None
            except OSError as error:
                raise StoreError(f"store {self._where}: a study's lock cannot be taken ({error})") from error
            # An earlier holder of the lock may have deleted the study. Its lock is then removed, too.
            if not self._rows("SELECT 1 FROM studies WHERE id = ?", study):
                self._locks.remove(study)
                raise StudyNotFound(self._not_found(name))
            yield study

    def _holder(self, study: int) -> DriverInfo | None:
        try:
            return self._locks.holder(study)
        except OSError as error:
            raise StoreError(f"store {self._where}: a study's lock cannot be read ({error})") from error


def _rows(study: int, after: int, entries: Sequence[Event]) -> list[tuple[object, ...]]:
    """Return the rows of the table `log` for entries that follow entry number `after`."""
    return [
        (study, number, Codec.kind(entry), getattr(entry, "trial", None), entry.at, Codec.body(entry))
        for number, entry in enumerate(entries, after + 1)
    ]


def _json_object(text: object) -> dict[str, Any]:
    """Return the JSON object in a blob; raise ValueError if it has none."""
    try:
        value = json.loads(text if isinstance(text, bytes) else b"")
    except RecursionError as error:
        raise ValueError(str(error)) from error
    if not isinstance(value, dict):
        raise ValueError(f"{short(value)} is not a JSON object")
    return value


def _length(value: object) -> int:
    """Return a stored length of a log; raise ValueError if it is not a length."""
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{short(value)} is not a number of entries")
    return value


def _time(value: object) -> float:
    """Return a stored time in unix seconds; raise ValueError if it is not a time."""
    if not isinstance(value, float) or not is_time(value):
        raise ValueError(f"{short(value)} is not a time")
    return value
