"""Tests of the write-ahead log: commits soon reach the main file, and the loss of the log is noticed."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.store.conformance import reports
from tests.store.test_sqlite import child, line
from thriftune.errors import StoreError
from thriftune.store import write_ahead_log
from thriftune.store.opening import open_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "studies.db"


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def main_file_alone(path: Path) -> Path:
    """Copy the main file without its log, in another process: closing the file here would end SQLite's locks."""
    copy = path.with_name("copy.db")
    subprocess.run(["cp", path, copy], check=True)
    return copy


def remove(log: Path) -> None:
    log.unlink()


def empty(log: Path) -> None:
    os.truncate(log, 0)


def halve(log: Path) -> None:
    os.truncate(log, log.stat().st_size // 2)


def replace(log: Path) -> None:
    content = log.read_bytes()
    log.unlink()
    log.write_bytes(content)


# --- into the main file -----------------------------------------------------------------------------------


def test_a_new_study_is_in_the_main_file_at_once(path: Path) -> None:
    with open_store(path) as store:
        store.create("s", {"a": 1}, 1.0, reports(1, 3))
        with open_store(main_file_alone(path)) as copy:
            assert copy.spec("s") == {"a": 1}
            assert copy.read("s") == reports(1, 3)


def test_commits_are_soon_in_the_main_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_ahead_log, "CHECKPOINT_SECONDS", 0.0)
    with open_store(path) as store:
        store.create("s", {}, 1.0)
        store.append("s", 0, reports(1, 5))
        with open_store(main_file_alone(path)) as copy:
            assert copy.read("s") == reports(1, 5)


def test_an_idle_driver_copies_its_last_commits_into_the_main_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(path) as store:
        store.create("s", {}, 1.0)
        store.append("s", 0, reports(1, 5))
        monkeypatch.setattr(write_ahead_log, "CHECKPOINT_SECONDS", 0.0)
        assert store.take_requests("s") == []
        with open_store(main_file_alone(path)) as copy:
            assert copy.read("s") == reports(1, 5)


def test_the_end_of_a_drive_copies_everything_into_the_main_file(path: Path) -> None:
    with open_store(path) as store:
        store.create("s", {}, 1.0)
        with store.drive("s"):
            store.append("s", 0, reports(1, 5))
        with open_store(main_file_alone(path)) as copy:
            assert copy.read("s") == reports(1, 5)


def test_a_reader_does_not_hold_up_a_writer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_ahead_log, "CHECKPOINT_SECONDS", 0.0)
    with open_store(path) as store:
        store.create("s", {}, 1.0)
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM log").fetchall()
        for number in range(0, 50, 5):
            store.append("s", number, reports(number + 1, number + 5))
        assert store.read("s") == reports(1, 50)
        reader.close()


def test_a_failed_checkpoint_does_not_fail_the_append(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_ahead_log, "CHECKPOINT_SECONDS", 0.0)
    with open_store(path) as store:
        store.create("s", {}, 1.0)
        monkeypatch.setattr(write_ahead_log, "CHECKPOINT", "SELECT * FROM nowhere")  # fails
        store.append("s", 0, reports(1, 5))
        assert store.read("s") == reports(1, 5)


# --- its loss ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lose", [remove, replace])
@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_a_removed_log_is_noticed_and_its_content_is_saved(
    path: Path, suffix: str, lose: Callable[[Path], None]
) -> None:
    """The -shm file holds the locks of the log: without it, another process could write to the same place."""
    with open_store(path) as store:
        store.create("s", {}, 1.0)
        store.append("s", 0, reports(1, 394))
        lose(path.with_name(f"{path.name}{suffix}"))
        with pytest.raises(
            StoreError, match=rf"studies\.db{suffix} was removed or replaced.*all of it is now in "
        ):
            store.append("s", 394, reports(395, 400))
        with open_store(main_file_alone(path)) as copy:
            assert copy.read("s") == reports(1, 394)
        with pytest.raises(StoreError, match="removed"):
            store.append("s", 394, reports(395, 400))
    with open_store(path) as store:
        assert store.read("s") == reports(1, 394)
        store.append("s", 394, reports(395, 400))
    assert _is_sound(path)


def test_an_idle_driver_notices_a_removed_log(path: Path) -> None:
    with open_store(path) as store:
        store.create("s", {}, 1.0)
        store.append("s", 0, reports(1, 9))
        log_of(path).unlink()
        with pytest.raises(StoreError, match="removed"):
            store.take_requests("s")
        with open_store(main_file_alone(path)) as copy:
            assert copy.read("s") == reports(1, 9)


def test_no_confirmed_commit_is_lost_with_the_log(path: Path) -> None:
    """A driver whose log is removed ends by itself, and all confirmed commits are in the store."""
    with open_store(path) as store:
        store.create("s", {}, 1.0)
        with child("write", path) as writer:
            acknowledged = int(line(writer))
            log_of(path).unlink()
            assert writer.stdout is not None
            for number in writer.stdout:
                acknowledged = int(number)
            assert writer.wait(60) != 0
    with open_store(path) as store:
        assert store.length("s") >= acknowledged
        assert store.read("s") == reports(1, store.length("s"))


@pytest.mark.parametrize("lose", [empty, halve])
def test_a_cut_log_is_noticed_and_does_no_further_harm(path: Path, lose: Callable[[Path], None]) -> None:
    with open_store(path) as store:
        store.create("s", {}, 1.0)
        with store.drive("s"):
            store.append("s", 0, reports(1, 300))
        store.append("s", 300, reports(301, 400))
        lose(log_of(path))
        with pytest.raises(StoreError, match=r"studies\.db-wal was cut.*last 5 s may be lost"):
            store.append("s", 400, reports(401, 402))
        with pytest.raises(StoreError):
            store.append("s", 400, reports(401, 402))
    with open_store(path) as store:
        assert store.read("s") == reports(1, 300)
        store.append("s", 300, reports(301, 302))
    assert _is_sound(path)


def test_closing_a_store_whose_log_was_cut_does_no_harm(path: Path) -> None:
    with open_store(path) as store:
        store.create("s", {}, 1.0)
        store.append("s", 0, reports(1, 400))
        halve(log_of(path))
    with open_store(path) as store:
        assert store.read("s") == []
    assert _is_sound(path)


def test_another_program_may_empty_the_log(path: Path) -> None:
    """`PRAGMA wal_checkpoint(TRUNCATE)` loses nothing, so it is no reason to stop."""
    with open_store(path) as store:
        store.create("s", {}, 1.0)
        store.append("s", 0, reports(1, 9))
        other = sqlite3.connect(path)
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        other.close()
        assert log_of(path).stat().st_size == 0
        store.append("s", 9, reports(10, 12))
        assert store.take_requests("s") == []
        assert store.read("s") == reports(1, 12)


def test_an_overwritten_log_is_no_loss(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite writes over a log from its beginning once all of it is in the main file."""
    monkeypatch.setattr(write_ahead_log, "CHECKPOINT_SECONDS", 0.0)
    with open_store(path) as store, open_store(path) as other:
        store.create("s", {}, 1.0)
        other.create("t", {}, 1.0)
        for number in range(100):
            store.append("s", number, reports(number + 1, number + 1))
            other.append("t", number, reports(number + 1, number + 1))
        assert store.read("s") == store.read("t") == reports(1, 100)


def test_a_reader_is_told_that_the_log_was_removed(path: Path) -> None:
    with open_store(path) as store:
        store.create("s", {}, 1.0)
        store.append("s", 0, reports(1, 400))
        os.truncate(log_of(path), 0)
        with pytest.raises(StoreError, match=r"-wal.*ends too early"), open_store(path, create=False) as reader:
            reader.read("s")


def _is_sound(path: Path) -> bool:
    db = sqlite3.connect(path)
    found = db.execute("PRAGMA integrity_check").fetchall()
    db.close()
    return found == [("ok",)]
