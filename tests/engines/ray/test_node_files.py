"""Tests the folders of actors on a node. Their processes are stood in for by locks."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from thriftune.engines import recovery
from thriftune.engines.ray import node_files
from thriftune.engines.ray.node_files import (
    ActorName,
    begin_attempt,
    make_folder,
    read_actor_files,
    read_study_files,
    remove_actor_files,
)
from thriftune.errors import SettingError
from thriftune.state.events import Reported
from thriftune.store.output_files import OutputPiece, OutputWriter
from thriftune.training.messages import to_line
from thriftune.training.run import Run

ACTOR = ActorName("study1", "1-0")


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a temporary folder of the node, and return the root of its actors' folders."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"thriftune-{os.geteuid()}"


def run(trial: int, attempt: int = 1) -> Run:
    return Run(trial, attempt, {}, 0, ("loss",), 3, 7, "elsewhere", 2)


def spool(actor: Path, *reports: Reported) -> None:
    spools = recovery.spool_folder(actor)
    spools.mkdir(exist_ok=True)
    (spools / "0.spool").write_bytes(b"".join(map(to_line, reports)))


def report(step: int) -> Reported:
    return Reported(float(step), 7, 1, step, step, {"loss": 1.0})


def test_only_its_user_can_read_the_folder_of_an_actor(root: Path) -> None:
    mask = os.umask(0)
    try:
        folder = make_folder(ACTOR)
    finally:
        os.umask(mask)
    assert folder == root / "study1" / "1-0"
    assert {path.stat().st_mode & 0o777 for path in (root, folder.parent, folder)} == {0o700}
    assert make_folder(ACTOR) == folder


@pytest.mark.parametrize("prepare", ["writable", "link"])
def test_a_folder_that_others_may_have_made_is_refused(prepare: str, root: Path, tmp_path: Path) -> None:
    if prepare == "link":
        (tmp_path / "of_others").mkdir(mode=0o700)
        root.symlink_to(tmp_path / "of_others")
    else:
        root.mkdir()
        root.chmod(0o777)
    with pytest.raises(SettingError, match=r"thriftune-\d+ is a link, or other users may use it.*set TMPDIR"):
        make_folder(ACTOR)


def test_what_an_actor_has_left_is_read_and_removed(root: Path) -> None:
    folder = make_folder(ACTOR)
    spool(folder, report(1), report(2))
    attempt = begin_attempt(folder, run(7))
    OutputWriter(attempt, 1).write(b"hello")
    OutputWriter(attempt, 1, rank=2).write(b"world")
    make_folder(ActorName("study1", "1-1"))
    expected = (
        [report(1), report(2)],
        [OutputPiece(7, 1, 0, 0, b"hello"), OutputPiece(7, 1, 2, 0, b"world")],
        False,
    )
    assert read_actor_files(ACTOR, 0.0) == expected
    assert read_study_files("study1", 0.0) == {"1-0": expected, "1-1": ([], [], False)}
    remove_actor_files("study1", ["1-0"], 0.0)
    assert list(read_study_files("study1", 0.0)) == ["1-1"]
    remove_actor_files("study1", ["1-0", "1-1"], 0.0)
    assert list(root.iterdir()) == []


def test_an_unknown_actor_has_left_nothing(root: Path) -> None:
    assert read_actor_files(ACTOR, 0.0) == ([], [], False)
    assert read_study_files("study1", 0.0) == {}
    remove_actor_files("study1", ["1-0"], 0.0)
    assert not root.exists()


def test_reading_waits_for_the_processes_of_the_actor() -> None:
    folder = make_folder(ACTOR)
    with recovery.alive_file(folder).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert read_actor_files(ACTOR, 0.01).running

        def report_and_end() -> None:
            spool(folder, report(1))
            fcntl.flock(lock, fcntl.LOCK_UN)

        timer = threading.Timer(0.2, report_and_end)
        timer.start()
        assert read_actor_files(ACTOR, 60.0) == ([report(1)], [], False)
        timer.join()


def test_an_actor_keeps_the_files_of_one_attempt_and_the_output_of_the_one_before() -> None:
    folder = make_folder(ACTOR)
    for trial in range(4):
        attempt = begin_attempt(folder, run(trial))
        (attempt / "checkpoints" / "1").mkdir(parents=True)
        (attempt / "notes").write_text("...")
        OutputWriter(attempt, 1).write(b"hello")
    assert sorted(path.name for path in (folder / "trials").iterdir()) == ["2-1", "3-1"]
    assert [path.name for path in (folder / "trials" / "2-1").iterdir()] == ["output"]
    assert sorted(path.name for path in attempt.iterdir()) == ["checkpoints", "notes", "output"]


def test_files_that_nobody_has_asked_for_are_removed_after_some_days() -> None:
    old, running, new = (make_folder(ActorName("study2", f"1-{n}")) for n in range(3))
    long_ago = time.time() - node_files._KEEP_SECONDS - 60.0
    for folder in (old, running):
        spool(folder, report(1))
        for path in [*folder.rglob("*"), folder]:
            os.utime(path, (long_ago, long_ago))
    with recovery.alive_file(running).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        os.utime(recovery.alive_file(running), (long_ago, long_ago))
        os.utime(running, (long_ago, long_ago))
        make_folder(ACTOR)
        assert not old.exists()
        assert running.exists()
        assert new.exists()
