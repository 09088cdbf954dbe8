"""Tests of a study's files: studies never share them, and they are found after the store was moved."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import thriftune as tt
from thriftune.cli import cli
from thriftune.errors import StoreError, StudyMismatch
from thriftune.store.opening import open_store
from thriftune.store.study_files import StudyFiles

SCRIPT = """
import sys, time
import thriftune as tt

def train(trial):
    def save(folder):
        (folder / "x").write_text(repr(trial["x"]))
    def load(folder):
        assert (folder / "x").read_text() == repr(trial["x"])
    trial.restore(load)
    for step in trial.steps():
        time.sleep(0.05)
        trial.report(loss=trial["x"], save=save)

store, *more = sys.argv[1:]
tt.tune(train, {"x": tt.Float(0, 1)}, minimize="loss", trials=4, max_steps=10, workers=2, name="same", store=store,
        storage=more[0] if more else None, progress=False)
"""


def run(folder: Path, *arguments: str, kill_when: Any = None) -> int:
    folder.mkdir(exist_ok=True)
    (folder / "script.py").write_text(SCRIPT)
    process = subprocess.Popen([sys.executable, "script.py", *arguments], cwd=folder, stderr=subprocess.PIPE)
    patience = time.monotonic() + 60
    while kill_when and not kill_when() and time.monotonic() < patience:
        time.sleep(0.02)
    if kill_when:
        process.kill()
    process.communicate()
    return process.returncode


def some_reports(store: Path) -> bool:
    try:
        return any(trial.step >= 2 for trial in tt.load("same", store=store).trials)
    except Exception:  # not there yet
        return False


def check(store: Path) -> None:
    trials = tt.load("same", store=store).trials
    assert len(trials) == 4
    assert {trial.state for trial in trials} == {tt.State.COMPLETED}
    assert all(trial.value == trial.config["x"] for trial in trials), "each has its own values"


def test_two_stores_in_one_folder_do_not_mix_studies_of_one_name(tmp_path: Path) -> None:
    a, b = tmp_path / "a.db", tmp_path / "b.db"
    run(tmp_path, "b.db", kill_when=lambda: some_reports(b))
    assert run(tmp_path, "a.db") == 0
    assert run(tmp_path, "b.db") == 0
    check(a)
    check(b)
    runner = CliRunner()
    assert runner.invoke(cli, ["delete", "same", "--yes", "--store", str(a)]).exit_code == 0
    with open_store(b) as store:
        assert StudyFiles.of(tt.load("same", store).spec, store).has_trials


def test_a_storage_folder_belongs_to_one_study_of_a_name(tmp_path: Path) -> None:
    assert run(tmp_path, "a.db", "shared") == 0
    assert run(tmp_path, "b.db", "shared") != 0
    with pytest.raises(StudyMismatch, match="holds the files of another study of the same name"):
        tt.tune(
            lambda trial: 0.0,
            {"x": tt.Float(0, 1)},
            minimize="loss",
            trials=1,
            name="same",
            store=tmp_path / "c.db",
            storage=tmp_path / "shared",
        )
    check(tmp_path / "a.db")


def test_another_storage_folder_is_refused_while_checkpoints_lie_in_the_first(tmp_path: Path) -> None:
    assert run(tmp_path, "a.db", "one") == 0
    with pytest.raises(StudyMismatch, match=r"storage: was .*one, is now .*two"):
        tt.tune(
            lambda trial: 0.0,
            {"x": tt.Float(0, 1)},
            minimize="loss",
            trials=9,
            name="same",
            store=tmp_path / "a.db",
            storage=tmp_path / "two",
        )


def test_a_store_may_be_moved_and_copied(tmp_path: Path) -> None:
    here, there, copy = tmp_path / "here", tmp_path / "there", tmp_path / "copy"
    run(here, "s.db", kill_when=lambda: some_reports(here / "s.db"))
    shutil.copytree(here, copy)
    here.rename(there)
    runner = CliRunner()
    gone_on = runner.invoke(cli, ["resume", "same", "--store", str(there / "s.db"), "--quiet"])
    assert gone_on.exit_code == 0, gone_on.output
    check(there / "s.db")
    assert runner.invoke(cli, ["delete", "same", "--yes", "--store", str(copy / "s.db")]).exit_code == 0
    assert not (copy / "s.db.files" / "same").exists()
    assert (there / "s.db.files" / "same" / "trials").exists()


def test_the_removal_of_a_store_in_use_is_noticed(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def slow(trial: tt.Trial) -> None:
        for step in trial.steps():
            time.sleep(0.05)
            trial.report(loss=1 / step)

    def tune() -> None:
        try:
            space = {"x": tt.Float(0, 1)}
            where = tmp_path / "s.db"
            tt.tune(slow, space, minimize="loss", trials=1, max_steps=1000, name="same", store=where, workers=1)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=tune)
    thread.start()
    patience = time.monotonic() + 60
    while not some_reports(tmp_path / "s.db") and time.monotonic() < patience:
        time.sleep(0.02)
    for file in tmp_path.glob("s.db*"):
        if file.is_file():
            file.unlink()
    thread.join(60)
    (error,) = errors
    assert isinstance(error, StoreError)
    assert "was removed or replaced while it was in use" in str(error)
