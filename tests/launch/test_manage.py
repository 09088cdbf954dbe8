"""Tests of listing, stopping, renaming and deleting studies, from Python and from the command line."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import thriftune as tt
from tests.cli import studies as written
from thriftune.cli import cli
from thriftune.errors import SettingError, StudyBusy, StudyExists, StudyNotFound
from thriftune.launch.drive import resume
from thriftune.launch.renaming import rename_study, set_aside
from thriftune.launch.shipping import shipping
from thriftune.object_store.opening import open_objects
from thriftune.results.loading import load_spec
from thriftune.show.progress import SilentView
from thriftune.store.opening import open_store
from thriftune.store.study_files import StudyFiles

SPACE = {"x": tt.Float(0.0, 1.0)}


def train(trial: tt.Trial) -> None:
    trial.restore(lambda folder: (folder / "x").read_text())
    for step in trial.steps():
        trial.report(loss=trial["x"] / step, save=lambda folder: (folder / "x").write_text("saved"))


def tune(store: Path, name: str = "first", **settings: Any) -> tt.Result:
    defaults: dict[str, Any] = {"minimize": "loss", "trials": 2, "max_steps": 2, "seed": 0, "workers": 2}
    return tt.tune(train, SPACE, name=name, store=store, progress=False, **{**defaults, **settings})


def run_cli(store: Path, *arguments: str) -> Any:
    return CliRunner().invoke(cli, [*arguments, "--store", str(store)])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store with the finished study "first"."""
    tune(tmp_path / "studies.db")
    return tmp_path / "studies.db"


# --- listing ----------------------------------------------------------------------------------------------


def test_studies_are_listed_newest_first(store: Path) -> None:
    tt.Study(SPACE, minimize="loss", name="ask-tell", store=store).ask()
    ask_tell, first = tt.studies(store)
    assert (first.name, first.state, first.trials, first.limit) == ("first", "finished", 2, 2)
    best = tt.load("first", store).best
    assert (first.best, first.best_config) == (best.value, best.config)
    assert first.finished == "all 2 trials done"
    assert first.seconds > 0
    assert repr(first).startswith("<StudySummary first: finished, 2 of 2 trials, best loss 0.")
    assert (ask_tell.name, ask_tell.state, ask_tell.trials, ask_tell.best) == ("ask-tell", "ask-tell", 1, None)
    with pytest.raises(FrozenInstanceError):
        first.name = "second"  # type: ignore[misc]


def test_a_store_that_does_not_exist_has_no_studies_and_is_not_created(tmp_path: Path) -> None:
    assert tt.studies(tmp_path / "nothing.db") == []
    assert not (tmp_path / "nothing.db").exists()


def test_a_damaged_study_is_listed_with_its_damage(tmp_path: Path) -> None:
    with open_store(tmp_path / "s.db") as store:
        written.write(store, written.spec("good"), written.log())
        store.create("bad", {"target": 3}, 1.0)
        good, bad = tt.studies(store)
    assert (good.name, good.state, good.damage) == ("good", "finished", None)
    assert (bad.name, bad.state, bad.trials, bad.best) == ("bad", "damaged", 0, None)
    assert "its settings cannot be read" in (bad.damage or "")
    assert "damaged, its settings" in repr(bad)


# --- stopping ---------------------------------------------------------------------------------------------

SLOW = """
import sys, time
import thriftune as tt

def train(trial):
    for step in trial.steps():
        time.sleep(0.05)
        trial.report(loss=trial["x"], save=lambda folder: (folder / "x").write_text("saved"))

tt.tune(train, {"x": tt.Float(0, 1)}, minimize="loss", trials=2, max_steps=100_000, workers=1, name="slow",
        store=sys.argv[1], progress=False)
"""


def start_slow(folder: Path) -> subprocess.Popen[bytes]:
    """Start a long study in another process, and return when it has reported two steps."""
    (folder / "slow.py").write_text(SLOW)
    process = subprocess.Popen([sys.executable, "slow.py", "s.db"], cwd=folder, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if tt.load("slow", folder / "s.db").trials[0].step >= 2:
                return process
        except (LookupError, tt.ThriftuneError):
            pass
        time.sleep(0.05)
    process.kill()
    raise AssertionError(process.communicate())


def test_a_running_study_is_stopped_from_another_process(tmp_path: Path) -> None:
    process = start_slow(tmp_path)
    try:
        (running,) = tt.studies(tmp_path / "s.db")
        assert running.state == "running"
        assert running.driver is not None
        assert running.driver.pid == process.pid
        with pytest.raises(StudyBusy):
            tt.rename("slow", "quick", tmp_path / "s.db")
        with pytest.raises(StudyBusy, match="stop it first: thriftune stop slow"):
            tt.delete("slow", tmp_path / "s.db")
        assert tt.stop("slow", tmp_path / "s.db") is True
        assert tt.studies(tmp_path / "s.db")[0].state == "stopped"
        assert tt.stop("slow", tmp_path / "s.db") is False
        process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()


def test_stop_can_return_without_waiting(tmp_path: Path) -> None:
    process = start_slow(tmp_path)
    try:
        assert tt.stop("slow", tmp_path / "s.db", wait=False) is True
        process.communicate(timeout=60)
        assert tt.studies(tmp_path / "s.db")[0].state == "stopped"
    finally:
        process.kill()
        process.communicate()


def test_an_ask_and_tell_study_cannot_be_stopped(tmp_path: Path) -> None:
    tt.Study(SPACE, minimize="loss", name="ask-tell", store=tmp_path / "s.db")
    with pytest.raises(SettingError, match="runs in its user's own code"):
        tt.stop("ask-tell", tmp_path / "s.db")


# --- renaming ---------------------------------------------------------------------------------------------


def test_a_study_is_renamed_with_its_files(store: Path) -> None:
    files = store.with_name("studies.db.files")
    before = tt.load("first", store).trials
    tt.rename("first", "second", store)
    assert [study.name for study in tt.studies(store)] == ["second"]
    assert sorted(folder.name for folder in files.iterdir()) == ["second"]
    after = tt.load("second", store).trials
    assert [trial.value for trial in after] == [trial.value for trial in before]
    assert all(Path(trial.folder).parent == files / "second" / "trials" for trial in after)
    assert all(Path(trial.folder).is_dir() for trial in after)
    tune(store, "second", trials=3)
    assert len(tt.load("second", store).trials) == 3
    with pytest.raises(StudyNotFound, match="there is no study 'first'"):
        tt.load("first", store)


def test_a_study_is_renamed_on_the_command_line(store: Path) -> None:
    renamed = run_cli(store, "rename", "first", "second")
    assert (renamed.exit_code, renamed.stdout) == (0, "study 'first' is now 'second'\n")
    assert run_cli(store, "best", "second").exit_code == 0
    failed = run_cli(store, "rename", "first", "third")
    assert failed.exit_code == 1
    assert "there is no study 'first'" in failed.stderr


def test_renaming_to_a_used_or_invalid_name_is_an_error(store: Path) -> None:
    tune(store, "other")
    with pytest.raises(StudyExists, match="study 'other' is already in"):
        tt.rename("first", "other", store)
    with pytest.raises(SettingError, match="has that name already"):
        tt.rename("first", "first", store)
    with pytest.raises(SettingError, match="'a/b' must be letters"):
        tt.rename("first", "a/b", store)
    others_folder = store.with_name("studies.db.files") / "mine"
    others_folder.mkdir()
    (others_folder / "notes").write_text("not a study")
    with pytest.raises(SettingError, match=r"the folder .*mine exists; give another name"):
        tt.rename("first", "mine", store)
    assert {study.name for study in tt.studies(store)} == {"first", "other"}
    assert (others_folder / "notes").read_text() == "not a study"


def test_a_folder_under_storage_is_renamed(tmp_path: Path) -> None:
    tune(tmp_path / "s.db", storage=tmp_path / "big disk")
    tt.rename("first", "second", tmp_path / "s.db")
    assert [folder.name for folder in (tmp_path / "big disk").iterdir()] == ["second"]


def test_the_old_name_can_be_used_again(store: Path) -> None:
    tt.rename("first", "second", store)
    tune(store, "first", trials=1)
    assert [len(tt.load(name, store).trials) for name in ("first", "second")] == [1, 2]


def rename_without_folder(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rename the study "first" but not its folder, as a process that is killed in between does."""
    with monkeypatch.context() as patch, open_store(store) as opened:
        patch.setattr(StudyFiles, "move", lambda files, name: files)
        rename_study(opened, "first", "second")
    folders = [folder.name for folder in store.with_name("studies.db.files").iterdir()]
    assert folders == ["first"]


def test_files_of_a_partly_renamed_study_are_found(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename_without_folder(store, monkeypatch)
    assert all(Path(trial.folder).is_dir() for trial in tt.load("second", store).trials)
    tune(store, "second", trials=3)
    assert [folder.name for folder in store.with_name("studies.db.files").iterdir()] == ["second"]
    assert all(Path(trial.folder).is_dir() for trial in tt.load("second", store).trials)


def test_a_new_study_with_the_old_name_does_not_use_the_files_of_a_partly_renamed_one(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename_without_folder(store, monkeypatch)
    tune(store, "first", trials=1)
    assert len(tt.load("first", store).trials) == 1
    for name in ("first", "second"):
        assert all(f"/{name}/" in trial.folder for trial in tt.load(name, store).trials)
        assert all(Path(trial.folder).is_dir() for trial in tt.load(name, store).trials)


def test_a_partly_renamed_study_can_be_renamed_again_and_deleted(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename_without_folder(store, monkeypatch)
    tt.rename("second", "third", store)
    assert [folder.name for folder in store.with_name("studies.db.files").iterdir()] == ["third"]
    tt.rename("third", "first", store)
    rename_without_folder(store, monkeypatch)
    tt.delete("second", store)
    assert list(store.with_name("studies.db.files").iterdir()) == []


def test_a_killed_study_resumes_from_its_checkpoints_under_its_new_name(tmp_path: Path) -> None:
    process = start_slow(tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    path = tmp_path / "s.db"
    tt.rename("slow", "renamed", path)
    step_at_kill = tt.load("renamed", path).trials[0].step

    def stop_soon() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and tt.load("renamed", path).trials[0].step < step_at_kill + 3:
            time.sleep(0.05)
        tt.stop("renamed", path, wait=False)

    thread = threading.Thread(target=stop_soon)
    thread.start()
    with open_store(path) as store, pytest.raises(tt.StudyInterrupted, match="thriftune resume renamed"):
        resume("renamed", store, SilentView())
    thread.join()
    trial = tt.load("renamed", path).trials[0]
    assert [report.step for report in trial.reports] == list(range(1, len(trial.reports) + 1)), "no step is lost"


def test_an_old_study_is_renamed_to_a_free_name_for_a_fresh_start(store: Path) -> None:
    with open_store(store) as opened:
        first_name = set_aside(opened, "first")
        tune(store, "first")
        second_name = set_aside(opened, "first")
        assert first_name != second_name
        assert {first_name, second_name} == {study.name for study in tt.studies(opened)}
        assert first_name.startswith("first-before-20")
        tune(store, "a" * 100)
        assert load_spec(opened, set_aside(opened, "a" * 100)).name.startswith("a" * 75)


# --- deleting ---------------------------------------------------------------------------------------------


def test_a_study_is_deleted_with_its_files(store: Path) -> None:
    tt.delete("first", store)
    assert tt.studies(store) == []
    assert list(store.with_name("studies.db.files").iterdir()) == []
    with pytest.raises(StudyNotFound):
        tt.delete("first", store)


def test_delete_keeps_files_that_are_not_the_studys_and_warns(store: Path) -> None:
    folder = store.with_name("studies.db.files") / "first"
    (folder / "notes").write_text("mine")
    with pytest.warns(UserWarning, match=f"study 'first' is deleted; {folder} has links or files of others"):
        tt.delete("first", store)
    assert (folder / "notes").read_text() == "mine"


def test_a_store_that_is_passed_as_an_object_stays_open(store: Path) -> None:
    with open_store(store) as opened:
        tt.rename("first", "second", opened)
        tt.delete("second", opened)
        assert tt.studies(opened) == []


def test_a_study_that_another_machine_drives_is_not_deleted(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"memory://{secrets.token_hex(4)}"
    with open_store(store) as opened:
        opened.update_spec("first", {**opened.spec("first"), "storage": url})
        with shipping(opened, load_spec(opened, "first"), print):
            pass
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    with open_store(url) as elsewhere:
        with elsewhere.drive("first"):
            with pytest.raises(StudyBusy, match="study 'first'"):
                tt.delete("first", store)
            assert elsewhere.read("first")
        assert tt.load("first", store=store).trials
        tt.delete("first", store)
        assert elsewhere.studies() == []
    assert list(open_objects(url).list_objects()) == []
