"""Store studies in one SQLite file: no server, and readers never block the writer (write-ahead log).

Commits go to the write-ahead log, the -wal file. A commit survives the death of any process at once. It survives
a power cut only after sync(): SQLite runs with synchronous = NORMAL, which does not sync the log on every commit.
The log is copied into the main file (a checkpoint, in SQLite's words) when a study is made, every few seconds, and
at the end of a drive.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from reprlib import repr as short
from typing import Any, Self

from thriftune.errors import (
    StoreConflict,
    StoreError,
    StoreFull,
    StudyBusy,
    StudyDamaged,
    StudyExists,
    StudyNotFound,
)
from thriftune.state.event_checks import is_time
from thriftune.state.events import Codec, Event
from thriftune.store.locks import FileLocks, LockHeld, Locks, MemoryLocks
from thriftune.store.protocol import DriverInfo, StudyListing
from thriftune.store.write_ahead_log import WriteAheadLog, companion_path, has_no_log, modification_stamp

BUSY_SECONDS = 60.0
"""How long to wait for the commits of other studies' drivers; one takes well under a millisecond."""

APPLICATION = 0x74687266
"""Marks a database as ours ("thrf"), so that one of another program is never touched."""

VERSION = 1
"""Of the schema. A store of a later version is refused, as nobody can know what it means."""

# AUTOINCREMENT: the number of a deleted study is never given again, so whoever still has it finds nothing
# rather than another study. SQLite writes whole rows, so what every append changes (heads) is apart from the
# long spec, which hardly ever does.
SCHEMA = f"""
CREATE TABLE studies (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    created_at REAL NOT NULL,
    spec TEXT NOT NULL
);
CREATE TABLE heads (
    study INTEGER PRIMARY KEY REFERENCES studies(id) ON DELETE CASCADE,
    entries INTEGER NOT NULL DEFAULT 0,
    summary TEXT NOT NULL DEFAULT '{{}}'
);
CREATE TABLE log (
    study INTEGER NOT NULL REFERENCES studies(id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    trial INTEGER,
    at REAL NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (study, number)
) WITHOUT ROWID;
CREATE TABLE requests (
    id INTEGER PRIMARY KEY,
    study INTEGER NOT NULL REFERENCES studies(id) ON DELETE CASCADE,
    what TEXT NOT NULL,
    at REAL NOT NULL
);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
"""

MOVE_HEAD = "UPDATE heads SET entries = ?, summary = coalesce(?, summary) WHERE study = ? AND entries = ?"
ADD_ENTRY = "INSERT INTO log (study, number, kind, trial, at, body) VALUES (?, ?, ?, ?, ?, ?)"

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

PROBE_BYTES = 65536
"""What is written to find out whether a disk is full: more than any one write of SQLite's."""

WAYS_OUT = {
    sqlite3.SQLITE_BUSY: f"another program has kept it locked for {BUSY_SECONDS:.0f} s; end that program",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check that you may write to its folder",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore a copy, or rescue the rest with sqlite3's .recover",
    sqlite3.SQLITE_FULL: "the disk is full; nothing was written: free some room and go on",
    sqlite3.SQLITE_IOERR: "the disk failed or is full; nothing was written: free some room or check the disk",
    sqlite3.SQLITE_IOERR_SHORT_READ: "the file or its -wal file ends too early; it was cut, or removed while a "
    "study ran. If one still runs, stop it and look again; else restore a copy",
    sqlite3.SQLITE_NOTADB: "the file is no database; name another file",
    sqlite3.SQLITE_READONLY: "it cannot be written; put the store where you may write",
}


class SqliteStore:
    """The studies of one SQLite file, or of this object's own memory (`path` None)."""

    def __init__(self, path: Path | None, *, create: bool = True) -> None:
        # One true path, so that all who mean this file meet at the same locks.
        self._path = path and path.expanduser().resolve()
        # SQLite wants one thread at a time, whichever it is. Re-entrant: a transaction may look something up.
        self._turn = threading.RLock()
        self._ids: dict[str, int] = {}  # of studies by name, for append(): no id is ever used twice
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._locks: Locks = MemoryLocks()
        self._read_only = False
        self._at_rest: tuple[int, ...] | None = None  # the stamp of a file that is read as one that never changes
        address = ":memory:"
        if self._path:
            self._locks = FileLocks(companion_path(self._path, ".locks"))
            self._check_place(self._path, create)
            address = f"{self._path.as_uri()}?{self._mode(self._path, create)}"
        with self._explained():
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
        if self._temporary is None:  # it lives as long as this object
            self._temporary = tempfile.TemporaryDirectory(prefix="thriftune-")
        return Path(self._temporary.name)

    # --- studies ------------------------------------------------------------------------------------------

    def create(self, name: str, spec: Mapping[str, Any], at: float, entries: Sequence[Event] = ()) -> None:
        text = json.dumps(spec)
        with self._writing() as db:
            if db.execute("SELECT 1 FROM studies WHERE name = ?", (name,)).fetchall():
                raise StudyExists(
                    f"study {name!r} is already in {self._where}; resume it, delete it, or take another name"
                )
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
        # As blobs: SQLite's own conversion fails as a whole where one text is none.
        rows = self._rows(
            "SELECT id, CAST(name AS BLOB), created_at, CAST(spec AS BLOB), CAST(summary AS BLOB), entries "
            "FROM studies LEFT JOIN heads ON study = id ORDER BY created_at DESC, id DESC"
        )
        return [self._listed(*row) for row in rows]

    def _listed(
        self, study: int, named: bytes, at: object, spec: object, summary: object, entries: object
    ) -> StudyListing:
        """Return a row of a study and its head as a listing shows it."""
        name, driver = named.decode(errors="replace"), self._holder(study)
        try:
            settings = _json_object(spec)
            created_at, length = _time(at), _whole(entries)
        except ValueError as error:
            return StudyListing(name, 0.0, {}, {}, 0, driver, f"its settings cannot be read ({error})")
        try:
            known = _json_object(summary)
        except ValueError:  # it is only a shortcut to what the log says
            known = {}
        return StudyListing(name, created_at, settings, known, length, driver)

    def rename(self, name: str, new: str, spec: Mapping[str, Any]) -> None:
        text = json.dumps(spec)
        with self._driving(name) as study:
            with self._writing() as db:
                if db.execute("SELECT 1 FROM studies WHERE name = ?", (new,)).fetchall():
                    raise StudyExists(f"study {new!r} is already in {self._where}; take another name")
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
        # What can be done before taking the file's one write lock is done before: other studies wait for it.
        study = self._ids.get(name) or self._id(name)
        rows = _rows(study, after, entries)
        head = (after + len(rows), None if summary is None else json.dumps(summary), study, after)
        with self._writing(sync=False) as db:
            if db.execute(MOVE_HEAD, head).rowcount == 0:
                self._ids.pop(name, None)  # it may be another study by now
                raise StoreConflict(
                    f"study {name!r} has {self.length(name)} entries in {self._where}, but its driver knows "
                    f"of {after}: another driver wrote to it. Nothing was written; load the study again"
                )
            db.executemany(ADD_ENTRY, rows)

    def sync(self) -> None:
        with self._turn, self._explained():
            if self._log is not None:
                self._log.sync()

    def read(self, name: str, after: int = 0) -> list[Event]:
        at_least = self.length(name)  # before the entries are read, as a driver may be adding some
        select = (
            "SELECT number, CAST(kind AS BLOB), CAST(body AS BLOB) FROM log WHERE study = ? AND number > ? "
            "ORDER BY number"
        )
        number = after
        events: list[Event] = []
        try:
            for found, kind, body in self._rows(select, self._id(name), after):
                number += 1
                if found != number:
                    raise ValueError("it is missing")
                events.append(Codec.event(kind.decode(), body.decode("ascii")))
        except ValueError as error:
            raise StudyDamaged(name, self.url, f"entry {number}: {error}") from error
        if number < at_least and after < at_least:
            raise StudyDamaged(name, self.url, f"its log ends at entry {number}, and should have {at_least}")
        return events

    def length(self, name: str) -> int:
        try:
            return _whole(self._look_up(name, "entries"))
        except ValueError as error:
            raise StudyDamaged(name, self.url, f"the length of its log cannot be read ({error})") from error

    # --- the driver ---------------------------------------------------------------------------------------

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
            ask = "INSERT INTO requests (study, what, at) VALUES (?, ?, ?)"
            db.execute(ask, (self._id(name), what, at))

    def take_requests(self, name: str) -> list[str]:
        self._check_file()
        if self._log is not None:
            with self._turn, self._explained():
                self._log.check()
                self._log.checkpoint_if_due()
        select = "SELECT id, what FROM requests WHERE study = ? ORDER BY id"
        rows = self._rows(select, self._id(name))
        if rows:
            with self._writing() as db:
                db.executemany("DELETE FROM requests WHERE id = ?", [(number,) for number, _ in rows])
        return [what for _, what in rows]

    def close(self) -> None:
        with self._turn:
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

    def _check_place(self, path: Path, create: bool) -> None:
        """Make the store's folder; raise where there is no store to look at or the file cannot be one."""
        if not create and not (path.exists() and path.stat().st_size):
            raise StudyNotFound(
                f"there is no store at {path}: no study has been run there yet; if yours is in another store, "
                "name it with --store PATH, or set THRIFTUNE_STORE"
            )
        # SQLite and our locks find a file's companions by its name.
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
            # Whatever the umask, others may not write: resuming a study runs what its store says. By mknod, as
            # opening and closing the file would end the locks of other threads on it. SQLite tells what is wrong.
            with suppress(OSError):
                os.mknod(path, 0o644)

    def _mode(self, path: Path, create: bool) -> str:
        """Choose how SQLite opens the file.

        One who may not write can use the -wal and -shm files of others, but not make any. Where there are none,
        SQLite has to be told that the file will not change; _rows() checks that it did not.
        """
        if create or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            return "mode=rwc" if create else "mode=rw"
        self._read_only = True
        if not has_no_log(path):
            return "mode=ro"
        self._at_rest = modification_stamp(path)
        return "mode=ro&immutable=1"

    def _check_file(self) -> None:
        """SQLite goes on writing to a file that has been removed, where nobody will ever find it."""
        if self._path is None:
            return
        try:
            there = self._path.stat().st_ino
        except OSError:
            there = None
        if there != self._inode:
            raise StoreError(
                f"store {self._where}: the file was removed or replaced while it was in use, "
                "and what was written since is lost with it"
            )

    def _prepare(self) -> None:
        with self._explained():
            self._db.execute("PRAGMA foreign_keys = ON")
            # The file stays sound whatever happens; that the latest is on disk, sync() sees to.
            self._db.execute("PRAGMA synchronous = NORMAL")
        if self._pragma("application_id") != APPLICATION:
            self._lay_out()
        if (version := self._pragma("user_version")) != VERSION:
            raise StoreError(
                f"{self._where} is a store of version {version}, but this thriftune knows only version "
                f"{VERSION}; upgrade thriftune"
            )
        if self._path and not self._read_only and not self._turn_wal_on():
            raise StoreError(
                f"{self._where} is on a file system where readers would block the study "
                "(SQLite's write-ahead log does not work there); put the store on a local disk"
            )

    def _lay_out(self) -> None:
        with self._turn, self._explained(), self._transaction() as db:  # there is no write-ahead log yet
            if self._pragma("application_id") == APPLICATION:
                return  # somebody else was quicker
            if db.execute("SELECT 1 FROM sqlite_master").fetchall():
                raise StoreError(f"{self._where} is the database of another program; name another file")
            for statement in SCHEMA.split(";"):
                db.execute(statement)

    def _turn_wal_on(self) -> bool:
        """Several may open a new file at once, and here, unlike elsewhere, SQLite does not wait its turn."""
        give_up_at = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                return bool(self._pragma("journal_mode = WAL") == "wal")
            except StoreError as error:
                if _kind(error.__cause__) != sqlite3.SQLITE_BUSY or time.monotonic() > give_up_at:
                    raise
                time.sleep(0.005)

    def _pragma(self, pragma: str) -> Any:
        return self._rows(f"PRAGMA {pragma}")[0][0]

    # --- one way to the database --------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        return str(self._path or "memory")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise errors of SQLite and of the disk as StoreError, or as StoreFull where there is no room."""
        try:
            yield
        except sqlite3.Error as error:
            kind = StoreFull if self._means_full(error) else StoreError
            what = WAYS_OUT.get(_code(error)) or WAYS_OUT.get(_kind(error)) or str(error)
            if self._path is not None and self._path.exists() and not os.access(self._path, os.R_OK):
                what = "you may not read it; ask its owner for permission, or name another store"
            elif self._read_only and _kind(error) == sqlite3.SQLITE_CANTOPEN:
                what = (
                    f"{self._where}-wal has to be copied into it first; have someone who may write look at it once"
                )
            raise kind(f"store {self._where}: {what}") from error
        except OSError as error:
            kind = StoreFull if error.errno in NO_ROOM else StoreError
            raise kind(f"store {self._where}: it cannot be brought to disk ({error.strerror})") from error
        except UnicodeEncodeError as error:
            raise StoreError(f"store {self._where}: {error.object!r} is no valid text") from error

    def _means_full(self, error: sqlite3.Error) -> bool:
        """Return whether SQLite failed for want of room. It gives some such failures as plain IO errors."""
        if _kind(error) != sqlite3.SQLITE_IOERR or _code(error) == sqlite3.SQLITE_IOERR_SHORT_READ:
            return _kind(error) == sqlite3.SQLITE_FULL
        if self._path is None:
            return False
        try:
            with tempfile.TemporaryFile(dir=self._path.parent, buffering=0) as probe:
                probe.write(bytes(PROBE_BYTES))
                os.fsync(probe.fileno())
        except OSError as failed:
            return failed.errno in NO_ROOM
        return False

    @contextmanager
    def _writing(self, *, sync: bool = True) -> Iterator[sqlite3.Connection]:
        """Give a transaction that is committed at the end, or of which nothing stays."""
        if self._read_only:
            raise StoreError(f"store {self._where}: {WAYS_OUT[sqlite3.SQLITE_READONLY]}")
        with self._turn, self._explained():
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
            # IMMEDIATE: wait for the write lock here, rather than fail for want of it half way.
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _checkpoint(self) -> None:
        if self._log is not None:
            with self._turn:
                self._log.checkpoint()

    def _rows(self, select: str, *values: object) -> list[Any]:
        """Always all rows at once: a read left open would keep the write-ahead log from being folded in."""
        with self._turn, self._explained():
            try:
                return self._db.execute(select, values).fetchall()
            finally:
                if (
                    self._at_rest is not None
                    and self._path is not None
                    and self._at_rest != modification_stamp(self._path)
                ):
                    raise StoreError(f"store {self._where}: a study has begun to write to it; look again")

    def _look_up(self, name: str, column: str) -> Any:
        if rows := self._rows(f"SELECT {column} FROM studies LEFT JOIN heads ON study = id WHERE name = ?", name):
            return rows[0][0]
        raise StudyNotFound(self._not_found(name))

    def _id(self, name: str) -> int:
        self._ids[name] = study = int(self._look_up(name, "id"))
        return study

    def _not_found(self, name: str) -> str:
        from difflib import get_close_matches  # late: only those who mistype wait for it

        close = get_close_matches(name, [other for (other,) in self._rows("SELECT name FROM studies")])
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
        return f"there is no study {name!r} in {self._where}{hint}"

    # --- one way to the locks -----------------------------------------------------------------------------

    @contextmanager
    def _driving(self, name: str) -> Iterator[int]:
        study = self._id(name)
        with ExitStack() as stack:
            try:
                stack.enter_context(self._locks.hold(study))
            except LockHeld as held:
                raise StudyBusy(self._busy(name, held.by)) from None
            except OSError as error:
                raise StoreError(f"store {self._where}: a study's lock cannot be taken ({error})") from error
            # Whoever held the lock before may have deleted the study; the lock is then of no use to anybody.
            if not self._rows("SELECT 1 FROM studies WHERE id = ?", study):
                self._locks.remove(study)
                raise StudyNotFound(self._not_found(name))
            yield study

    def _busy(self, name: str, driver: DriverInfo) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(driver.since))
        return (
            f"study {name!r} is being run by process {driver.pid} on {driver.host} since {since}; "
            f"wait for it to end, or stop it: thriftune stop {name} --store {self.url}"
        )

    def _holder(self, study: int) -> DriverInfo | None:
        try:
            return self._locks.holder(study)
        except OSError as error:
            raise StoreError(f"store {self._where}: a study's lock cannot be read ({error})") from error


def _rows(study: int, after: int, entries: Sequence[Event]) -> list[tuple[object, ...]]:
    """Of the log."""
    return [
        (study, number, Codec.kind(entry), getattr(entry, "trial", None), entry.at, Codec.body(entry))
        for number, entry in enumerate(entries, after + 1)
    ]


def _json_object(text: object) -> dict[str, Any]:
    """Return the JSON object that a blob holds. Raises ValueError."""
    try:
        found = json.loads(text if isinstance(text, bytes) else b"")
    except RecursionError as error:
        raise ValueError(str(error)) from error
    if not isinstance(found, dict):
        raise ValueError(f"{short(found)} is no JSON object")
    return found


def _whole(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{short(value)} is no number of entries")
    return value


def _time(value: object) -> float:
    if not isinstance(value, float) or not is_time(value):
        raise ValueError(f"{short(value)} is no time")
    return value


def _code(error: BaseException | None) -> int:
    """Return SQLite's extended error code."""
    return int(getattr(error, "sqlite_errorcode", 0))


def _kind(error: BaseException | None) -> int:
    """Return the kind of SQLite's error: the low byte of its code."""
    return _code(error) & 0xFF
