"""Tests of the SQLite store: the conformance suite, several processes, kills and full disks."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import fill
from tests.store.conformance import StoreConformance, reports
from thriftune.errors import SettingError, StoreError, StoreFull, StudyBusy, StudyNotFound
from thriftune.state.events import Event, Reported
from thriftune.store import sqlite
from thriftune.store.opening import open_store
from thriftune.store.protocol import Store


class TestFile(StoreConformance):
    where = "studies.db"

    def make(self, folder: Path) -> Store:
        return open_store(folder / "studies.db")

    def reopen(self, store: Store) -> Store:
        return open_store(store.url, create=False)


class TestMemory(StoreConformance):
    where = "memory"

    def make(self, folder: Path) -> Store:
        return open_store(":memory:")

    def reopen(self, store: Store) -> Store:
        return store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a store with one study, "s"."""
    path = tmp_path / "studies.db"
    with open_store(path) as store:
        store.create("s", {}, 1.0)
    return path


@contextmanager
def child(task: str, path: Path, name: str = "s") -> Iterator[subprocess.Popen[str]]:
    """Start another process with a task of child.py; kill it at the end if it still runs."""
    command = [sys.executable, "-m", "tests.store.child", task, str(path), name]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the child died"
    return line.strip()


# --- where it is ------------------------------------------------------------------------------------------


def test_the_path_of_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("THRIFTUNE_HOME", raising=False)
    for where, file in {
        None: "home/.thriftune/studies.db",
        "a/b.db": "a/b.db",
        Path("c ä?.db"): "c ä?.db",
        "~/d.db": "home/d.db",
        "sqlite:///e.db": "e.db",
        "new folder/": "new folder/studies.db",
        f"sqlite:///{tmp_path}/f%20.db": "f%20.db",
    }.items():
        with open_store(where) as store:
            assert (tmp_path / file).is_file()
            assert store.url == str(tmp_path / file)
            assert store.folder == tmp_path / f"{file}.files"
            store.create("s", {}, 1.0)
            with open_store(store.url, create=False) as same:
                assert same.studies() == store.studies()
    monkeypatch.setenv("THRIFTUNE_HOME", str(tmp_path / "elsewhere"))
    with open_store(None) as store:
        assert store.folder == tmp_path / "elsewhere" / "studies.db.files"


def test_a_store_in_memory_is_private() -> None:
    with open_store(":memory:") as one, open_store(one.url) as other:
        assert one.folder.is_dir()
        assert one.folder != other.folder
        one.create("s", {}, 1.0)
        assert other.studies() == []


@pytest.mark.parametrize(
    "where", ["postgresql://me:secret@host/db", "mysql://secret", "sqlite://secret", "sqlite:///"]
)
def test_other_urls_are_refused_without_showing_passwords(where: str) -> None:
    scheme = where.partition(":")[0]
    with pytest.raises(
        SettingError, match=f'store: {scheme}://.*use a path, "sqlite:///path", ":memory:", or an object'
    ) as error:
        open_store(where)
    assert "secret" not in str(error.value)


def test_reading_creates_no_store(tmp_path: Path) -> None:
    with pytest.raises(
        StudyNotFound, match=f"there is no store at {tmp_path}/a/s.db: no study has been run there yet; if yours"
    ):
        open_store(tmp_path / "a" / "s.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_two_paths_to_a_file_are_one_store(path: Path) -> None:
    link = path.parent / "link.db"
    link.symlink_to(path)
    with open_store(path) as store, open_store(link) as linked, store.drive("s"):
        assert linked.driver("s") == store.driver("s")


def test_a_file_with_two_names_is_refused(path: Path) -> None:
    """Each name would have its own write-ahead log and locks, and two drivers could write at the same time."""
    other = path.with_name("other.db")
    other.hardlink_to(path)
    for name in (path, other):
        with pytest.raises(StoreError, match=r"the file has 2 names \(hard links\).*copy it"):
            open_store(name, create=False)
    other.unlink()
    with open_store(path) as store, store.drive("s"):
        other.hardlink_to(path)
        with pytest.raises(StoreError, match="hard links"):
            open_store(other)


def test_many_processes_can_open_a_new_store_at_once(tmp_path: Path) -> None:
    def open_it(path: Path, start: threading.Barrier) -> None:
        start.wait()
        with open_store(path) as store:
            opened.append(store.studies())

    opened: list[Any] = []
    for number in range(40):
        arguments = (tmp_path / f"{number}.db", threading.Barrier(6))
        threads = [threading.Thread(target=open_it, args=arguments) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(opened) == 240


# --- what is no store -------------------------------------------------------------------------------------


def test_default_name_in_a_folder(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        assert store.url == str(tmp_path / "studies.db")


def test_a_file_cannot_be_used_as_a_folder(path: Path) -> None:
    with pytest.raises(StoreError, match=f"store {path}/s.db: its folder cannot be made"):
        open_store(path / "s.db")


def test_a_text_file_is_refused_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary\n" * 500)
    with pytest.raises(StoreError, match=f"store {path}: the file is not a database; name another file"):
        open_store(path)
    assert path.read_text() == "dear diary\n" * 500
    assert list(tmp_path.iterdir()) == [path]


def test_the_database_of_another_program_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "mail.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE studies (x)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=f"{path} is the database of another program; name another file"):
        open_store(path)
    assert path.read_bytes() == before


def test_a_store_of_a_later_version_is_refused(path: Path) -> None:
    _tamper(path, "PRAGMA user_version = 7")
    with pytest.raises(
        StoreError, match="is a store of version 7, but this thriftune knows only version 1; upgrade"
    ):
        open_store(path)


def test_a_damaged_store_raises_an_error(path: Path) -> None:
    with open_store(path) as store:
        store.append("s", 0, reports(1, 1000))
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xff" * (len(content) - 8192)
    path.write_bytes(content)
    with pytest.raises(StoreError, match="the file is damaged; restore a copy"), open_store(path) as store:
        store.read("s")


def test_an_entry_of_a_later_version_is_named(path: Path) -> None:
    with open_store(path) as store:
        store.append("s", 0, reports(1, 9))
    _tamper(path, "UPDATE log SET kind = 'Teleported' WHERE number = 7")
    with open_store(path) as store:
        for after in (0, 5):
            with pytest.raises(StoreError, match=r"study 's' in .*: entry 7: an entry of kind 'Teleported'"):
                store.read("s", after)
        assert store.read("s", 7) == reports(8, 9)


def test_a_file_system_without_shared_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def without_shared_memory(address: str, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(address + "&vfs=unix-dotfile", **options)
        return connection

    monkeypatch.setattr(sqlite3, "connect", without_shared_memory)
    with pytest.raises(StoreError, match=r"readers would block the study .* put the store on a local disk"):
        open_store(tmp_path / "s.db")


def test_a_program_that_keeps_the_file_locked_is_not_waited_for_forever(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with open_store(path) as store:
        with pytest.raises(StoreError, match=r"another program has kept it locked for .*; end that program"):
            store.append("s", 0, reports(1, 1))
        assert store.length("s") == 0
        other.execute("ROLLBACK")
        store.append("s", 0, reports(1, 1))
    other.close()


def _tamper(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as db:
        db.execute(statement)
    db.close()


# --- the disk ---------------------------------------------------------------------------------------------


def test_a_full_disk_loses_nothing_and_writing_goes_on_later(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with open_store(small_disk / "s.db") as store:
        store.create("s", {}, 1.0)
        ballast.write_bytes(bytes(1_500_000))
        written = 0

        def write_until_full() -> None:
            nonlocal written
            while written < 1_000_000:
                store.append("s", written, reports(written + 1, written + 7), {"entries": written + 7})
                written += 7

        with pytest.raises(StoreError, match=r"s\.db: the disk (is|failed or is) full; nothing was written"):
            write_until_full()
        for _ in range(3):
            with pytest.raises(StoreFull):
                store.append("s", written, reports(written + 1, written + 1000))
        assert store.read("s") == reports(1, written)
        assert store.studies()[0].summary == {"entries": written}
        with open_store(store.url, create=False) as reader:
            assert reader.read("s") == reports(1, written)

        ballast.unlink()
        store.append("s", written, reports(written + 1, written + 1000))
        assert store.read("s") == reports(1, written + 1000)


def test_a_full_disk_refuses_a_new_store_and_a_driver(small_disk: Path) -> None:
    with open_store(small_disk / "s.db") as store:
        store.create("s", {}, 1.0)
        fill(small_disk)
        with (
            pytest.raises(StoreError, match=r"s\.db: a study's lock cannot be taken .*No space left"),
            store.drive("s"),
        ):
            pass
        with pytest.raises(StoreError, match=r"new\.db: the disk"):
            open_store(small_disk / "new.db")
        (small_disk / "ballast").unlink()
        with store.drive("s"):
            assert store.driver("s") is not None


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EIO, StoreError)]
)
def test_a_sync_that_fails_tells_a_full_disk_from_a_broken_one(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StoreError]
) -> None:
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    with open_store(path) as store:
        store.append("s", 0, reports(1, 1))
        monkeypatch.setattr(os, "fdatasync", fail)
        with pytest.raises(StoreError, match=os.strerror(number)) as raised:
            store.sync()
        assert type(raised.value) is kind


def test_a_read_only_disk_can_be_read(small_disk: Path) -> None:
    with open_store(small_disk / "s.db") as store:
        store.create("s", {}, 1.0, reports(1, 3))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with open_store(small_disk / "s.db", create=False) as store:
        assert store.read("s") == reports(1, 3)
        assert [study.name for study in store.studies()] == ["s"]
    with pytest.raises(StoreError, match=r"s\.db: it cannot be (opened|written); .*may write"):
        open_store(small_disk / "s.db").studies()
    with pytest.raises(StoreError, match=r"new\.db: it cannot be opened; check that you may write to its folder"):
        open_store(small_disk / "new.db")
    with pytest.raises(StoreError, match=r"its folder cannot be made .*Read-only"):
        open_store(small_disk / "folder" / "s.db")


# --- other processes --------------------------------------------------------------------------------------


def test_two_drivers_may_share_a_file(path: Path) -> None:
    with open_store(path) as store:
        store.create("other", {}, 1.0)
        with child("write_some", path) as one, child("write_some", path, "other") as other:
            assert (line(one), line(other)) == ("done", "done")
        assert store.read("s") == store.read("other") == reports(1, 2000)


def test_readers_and_the_driver_do_not_disturb_each_other(path: Path) -> None:
    with open_store(path) as store, child("follow", path) as one, child("follow", path) as other:
        assert (line(one), line(other)) == ("following", "following")
        for number in range(0, 4000, 2):
            store.append("s", number, reports(number + 1, number + 2))
        store.append("s", 4000, [], {"ending": True})
        assert (line(one), line(other)) == ("4000", "4000")


def test_a_reader_does_not_let_the_log_grow(path: Path) -> None:
    """A reader that stays open must not prevent checkpoints of the write-ahead log."""
    with open_store(path) as store, open_store(path) as reader:
        for number in range(0, 40_000, 100):
            store.append("s", number, reports(number + 1, number + 100))
            reader.length("s")
            reader.read("s", number)
        assert path.with_name("studies.db-wal").stat().st_size < 8_000_000


def test_confirmed_commits_survive_sigkill(path: Path) -> None:
    moment = random.Random(0)
    acknowledged = 0
    for _ in range(20):
        with child("write", path) as writer:
            acknowledged = int(line(writer))
            time.sleep(moment.uniform(0, 0.05))
            writer.kill()
            assert writer.stdout is not None
            for number in writer.stdout:
                acknowledged = int(number)
            writer.wait()
        with open_store(path) as store:
            entries = store.length("s")
            # The last batch may be committed without a confirmation, but never a part of it.
            assert entries in (acknowledged, acknowledged + 3)
            assert store.read("s") == reports(1, entries)
            assert store.studies()[0].summary == {"entries": entries}
            assert store.driver("s") is None


def test_a_study_and_its_first_entries_are_created_together(path: Path) -> None:
    moment = random.Random(0)
    for life in range(10):
        with child("create", path, f"life{life}-") as writer:
            line(writer)
            time.sleep(moment.uniform(0, 0.05))
            writer.kill()
    with open_store(path) as store:
        made = [study.name for study in store.studies() if study.name != "s"]
        assert len(made) >= 10
        assert all(store.read(name) == reports(1, 3) for name in made)


def test_a_driver_in_another_process_is_known_until_it_is_killed(path: Path) -> None:
    with open_store(path) as store, child("drive", path) as other:
        assert line(other) == "driving"
        driver = store.driver("s")
        assert driver is not None
        assert (driver.pid, driver.host) == (other.pid, os.uname().nodename)
        assert abs(time.time() - driver.since) < 60
        with pytest.raises(StudyBusy, match=f"by process {other.pid} on {driver.host} since"), store.drive("s"):
            pass
        with pytest.raises(StudyBusy):
            store.delete("s")
        other.kill()
        other.wait()
        assert store.driver("s") is None
        with store.drive("s"):
            pass


@pytest.mark.parametrize("task", ["drive_and_exec", "drive_and_fork"])
def test_children_of_a_killed_driver_do_not_hold_its_lock(path: Path, task: str) -> None:
    with open_store(path) as store, child(task, path) as other:
        left = int(line(other))
        try:
            assert store.driver("s") is not None
            other.kill()
            other.wait()
            os.kill(left, 0)  # raises an error if the process has ended
            # The kill may have come between fork and exec, before the child closed the file.
            give_up_at = time.monotonic() + 60
            while store.driver("s") is not None and time.monotonic() < give_up_at:
                time.sleep(0.01)
            with store.drive("s"):
                pass
        finally:
            os.kill(left, signal.SIGKILL)


def test_a_forked_child_does_not_end_its_parents_drive(path: Path) -> None:
    with open_store(path) as store, open_store(path) as other:
        with ExitStack() as drive:
            drive.enter_context(store.drive("s"))
            if (forked := os.fork()) == 0:
                try:
                    drive.close()
                finally:
                    os._exit(0)
            os.waitpid(forked, 0)
            assert other.driver("s") is not None
        assert other.driver("s") is None


def test_reading_the_driver_never_prevents_a_driver_from_starting(path: Path) -> None:
    with open_store(path) as store, child("look", path) as one, child("look", path) as other:
        assert (line(one), line(other)) == ("looking", "looking")
        for _ in range(300):
            with store.drive("s"):
                pass


def test_a_study_deleted_while_a_driver_waits_for_its_lock(path: Path) -> None:
    def wait_for_it() -> None:
        with open_store(path) as other:
            try:
                with other.drive("s"):
                    outcome.append(None)
            except Exception as error:
                outcome.append(error)

    outcome: list[Exception | None] = []
    waiting = threading.Thread(target=wait_for_it)
    with open_store(path) as store, store.drive("s"):
        waiting.start()
        time.sleep(0.15)
        _tamper(path, "DELETE FROM heads")
        _tamper(path, "DELETE FROM studies")
    waiting.join()
    assert isinstance(outcome[0], StudyNotFound)
    assert list(path.with_name("studies.db.locks").iterdir()) == []


def test_deleting_a_study_removes_its_lock(path: Path) -> None:
    with open_store(path) as store:
        with store.drive("s"):
            pass
        assert len(list(path.with_name("studies.db.locks").iterdir())) == 1
        store.delete("s")
        assert list(path.with_name("studies.db.locks").iterdir()) == []


def test_a_store_can_be_copied_while_closed(path: Path, tmp_path: Path) -> None:
    with open_store(path) as store:
        store.append("s", 0, reports(1, 9))
    copied = shutil.copy(path, tmp_path / "copy.db")
    with open_store(copied) as store:
        assert store.read("s") == reports(1, 9)


# --- what it costs ----------------------------------------------------------------------------------------


def test_listing_costs_the_same_for_any_length_of_log(path: Path) -> None:
    """Compare SQLite's own counts of instructions, because times depend on the load of the machine."""
    entries: list[Event] = [
        Reported(1.7e9 + step, trial, 1, step, step, {"loss": 1 / step, "accuracy": 0.5}, saved=True)
        for step in range(1, 101)
        for trial in range(1000)
    ]

    def instructions(look: Callable[[], object]) -> int:
        count = 0

        def step() -> None:
            nonlocal count
            count += 1

        store._db.set_progress_handler(step, 1)
        look()
        store._db.set_progress_handler(None, 1)
        return count

    with sqlite.SqliteStore(path) as store:
        looks: list[Callable[[], object]] = [
            store.studies,
            lambda: store.take_requests("s"),
            lambda: store.length("s"),
        ]
        before = [instructions(look) for look in looks]
        store.append("s", 0, entries)
        assert [instructions(look) for look in looks] == before
        assert store.read("s") == entries
