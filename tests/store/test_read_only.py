"""Tests of reading a store without write permission."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli import studies
from tests.store.test_sqlite import child, line
from thriftune.cli import cli
from thriftune.errors import StoreError
from thriftune.store.opening import open_store

NOBODY = 65534


@pytest.fixture
def path() -> Iterator[Path]:
    """Create a store with one study, in a folder that every user can reach."""
    folder = Path(tempfile.mkdtemp())
    path = folder / "studies.db"
    with open_store(path) as store:
        studies.write(store, studies.spec(), studies.log())
    folder.chmod(0o755)
    path.chmod(0o644)
    yield path
    folder.chmod(0o755)
    shutil.rmtree(folder)


def without_permission(path: Path, look: Callable[[], None]) -> None:
    """Call `look` as a user who may only read the store: another user if this one is root, else this one."""
    if os.geteuid() != 0:
        modes = {each: each.stat().st_mode for each in (path.parent, *path.parent.glob(f"{path.name}*"))}
        for each, mode in modes.items():
            each.chmod(mode & ~0o222)
        try:
            look()
        finally:
            for each, mode in modes.items():
                each.chmod(mode)
        return
    read_end, write_end = os.pipe()
    if (forked := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            look()
        except BaseException:
            os.write(write_end, traceback.format_exc()[-10_000:].encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as failed:
        wrong = failed.read()
    os.waitpid(forked, 0)
    assert not wrong, wrong


def typed(*args: str) -> str:
    result = CliRunner().invoke(cli, args)
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


COMMANDS = [["list"], ["show", "digits"], ["best", "digits"], ["bill", "digits"], ["export", "digits"]]


def test_an_unused_store_can_be_read(path: Path) -> None:
    expected = [typed(*command, "--store", str(path)) for command in COMMANDS]
    before = sorted(path.parent.iterdir())

    def look() -> None:
        assert [typed(*command, "--store", str(path)) for command in COMMANDS] == expected

    without_permission(path, look)
    assert sorted(path.parent.iterdir()) == before


def test_a_store_in_use_can_be_read(path: Path) -> None:
    def look() -> None:
        with open_store(path, create=False) as reader:
            assert reader.length("digits") == len(studies.log())
            assert reader.driver("digits") is not None

    with child("drive", path, "digits") as other:
        assert line(other) == "driving"
        without_permission(path, look)


def test_a_store_of_a_killed_driver_can_be_read(path: Path) -> None:
    """The last entries are only in the write-ahead log."""
    with open_store(path) as store:
        store.create("s", {}, 1.0)
    with child("write", path, "s") as other:
        for _ in range(20):
            acknowledged = int(line(other))
    for file in path.parent.glob("studies.db-*"):
        file.chmod(0o644)

    def look() -> None:
        with open_store(path, create=False) as reader:
            assert len(reader.read("s")) == reader.length("s") >= acknowledged

    without_permission(path, look)


def test_a_log_that_needs_a_writer_is_explained(path: Path) -> None:
    with open_store(path) as store:
        store.create("s", {}, 1.0)
    with child("write", path, "s") as other:
        line(other)
    path.with_name("studies.db-shm").unlink()

    def look() -> None:
        with pytest.raises(StoreError, match=r"studies\.db-wal.*someone who may write"):
            open_store(path, create=False)

    without_permission(path, look)


def test_a_store_without_read_permission_raises_an_error(path: Path) -> None:
    path.chmod(0o200)

    def look() -> None:
        with pytest.raises(StoreError, match="you may not read it; ask its owner for permission"):
            open_store(path, create=False)

    without_permission(path, look)


def test_nothing_can_be_written(path: Path) -> None:
    def look() -> None:
        with open_store(path, create=False) as reader:
            with pytest.raises(StoreError, match="it cannot be written; put the store where you may write"):
                reader.update_spec("digits", {})
            with pytest.raises(StoreError, match="lock cannot be taken"), reader.drive("digits"):
                pass

    without_permission(path, look)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_a_study_that_starts_while_reading_is_noticed(path: Path) -> None:
    """A file that was opened as immutable must not be read while it changes."""
    ready, driven = os.pipe(), os.pipe()
    looked = threading.Event()

    def drive() -> None:
        os.read(ready[0], 1)
        with child("write", path, "digits") as other:
            line(other)
            os.write(driven[1], b"x")
            looked.wait(60)

    def look() -> None:
        with open_store(path, create=False) as reader:
            assert reader.length("digits") == len(studies.log())
            os.write(ready[1], b"x")
            os.read(driven[0], 1)
            with pytest.raises(StoreError, match="a study has begun to write to it; look again"):
                reader.length("digits")

    thread = threading.Thread(target=drive, daemon=True)
    thread.start()
    try:
        without_permission(path, look)
    finally:
        looked.set()
        os.write(ready[1], b"x")  # in case look() did not come so far
        thread.join(60)
