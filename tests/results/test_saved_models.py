"""Tests of models in an object store: which one is fetched, when, and what happens if it is damaged or gone."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import thriftune as tt
from tests.training.memory_objects import MemoryObjects, store_checkpoint
from thriftune.cli import cli
from thriftune.errors import NoCheckpoint
from thriftune.launch.manage import delete_study
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import ObjectStoreError, StoreUnavailable
from thriftune.results.loading import load_history
from thriftune.results.models import best_model, find_best_model, find_model
from thriftune.settings.make_spec import make_spec
from thriftune.settings.table import Settings
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.spec import Spec, Target
from thriftune.store.opening import open_store
from thriftune.store.protocol import Store
from thriftune.store.study_files import StudyFiles
from thriftune.training.checkpoint_files import Checkpoints
from thriftune.training.checkpoint_objects import checkpoint_name, manifest_key, trial_prefix

LOSSES = [0.5, 0.1, 0.3]
DRIVE = "3fa9c1d2"


class Study:
    """A study with one trial, which has saved three steps in an object store. Step 2 is the best."""

    def __init__(self, store: Store, url: str) -> None:
        settings = Settings(minimize="loss", trials=1, storage=url)
        self.spec = make_spec({"x": tt.Float(0, 1)}, settings, target=Target("pickled"), name="s")
        self.store = store
        self.files = StudyFiles.of(self.spec, store)
        self.objects = open_objects(self.files.objects)
        events: list[ev.Event] = [
            ev.DriverStarted(0.0, 1, "host", DRIVE),
            ev.MachineReady(0.0, "m", "desk", 1, 0.0),
            ev.Create(0.0, 0, {"x": 0.5}),
            ev.Place(0.0, 0, 1, "m", 0),
        ]
        for step, loss in enumerate(LOSSES, 1):
            events += [ev.Reported(1.0, 0, 1, step, step, {"loss": loss}), self._save(step, repr(loss))]
        store.create("s", self.spec.to_json(), 0.0, [*events, ev.Ended(2.0, 0, 1, 1.0), ev.DriverStopped(2.0)])

    def _save(self, step: int, model: str, *, partial: bool = False) -> ev.CheckpointSaved:
        local = MemoryObjects()
        name = checkpoint_name(1, DRIVE, step)
        store_checkpoint(local, name, {"model": model.encode()}, step=step, trial=0)
        for key, data in local.data.items():
            self.objects.put(key, data)
        return ev.CheckpointSaved(1.0, 0, 1, name, step, partial)

    def load(self) -> History:
        return load_history(self.store, self.spec)

    def keys(self, step: int) -> list[str]:
        """Return the keys of a step's checkpoint."""
        prefix = trial_prefix(0) + checkpoint_name(1, DRIVE, step)
        return [each.key for each in self.objects.list_objects(prefix)]

    def damage(self, step: int) -> None:
        part = next(key for key in self.keys(step) if not key.endswith(".json"))
        self.objects.put(part, b"????")


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Study]:
    monkeypatch.setenv("THRIFTUNE_CACHE", str(tmp_path / "cache"))
    with open_store(tmp_path / "s.db") as store:
        yield Study(store, f"memory://{tmp_path.name}-{os.getpid()}/a")


def read(folder: Path) -> float:
    return float((folder / "model").read_text())


def all_files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_the_model_of_a_trial_is_fetched_once(study: Study, tmp_path: Path) -> None:
    trial = study.load().trials[0]
    assert trial.checkpoint_step == 2
    assert trial.load(read) == 0.1
    folder = trial.checkpoint
    assert folder is not None
    assert folder.is_relative_to(tmp_path / "cache" / "checkpoints" / study.spec.id)
    study.objects.delete(study.keys(2))
    assert trial.load(read) == 0.1  # from the cache
    assert best_model(study.load()).load(read) == 0.1


def test_a_study_that_owns_its_folder_has_the_cache_in_there(study: Study, tmp_path: Path) -> None:
    study.files.claim()
    model = find_model(study.load().trials[0])
    assert model.folder is not None
    assert model.folder.is_relative_to(study.files.folder / "trials" / "0")
    assert not (tmp_path / "cache").exists()


def test_a_list_of_models_fetches_nothing(study: Study, tmp_path: Path) -> None:
    history = study.load()
    model = find_model(history.trials[0], verify=False)
    assert model.step == 2
    where = f"{study.files.objects}/{manifest_key(0, checkpoint_name(1, DRIVE, 2))}"
    assert model.where == where
    best, _ = find_best_model(history, verify=False)
    assert best is not None
    assert (best.step, best.where) == (2, where)
    assert not (tmp_path / "cache").exists()
    find_model(history.trials[0])
    listed = find_model(history.trials[0], verify=False)
    assert listed.where == str(listed.folder)


def test_a_damaged_model_is_passed_over_with_a_warning(study: Study) -> None:
    study.damage(2)
    trial = study.load().trials[0]
    with pytest.warns(UserWarning, match=r"trial 0: checkpoint of step 2 is corrupt .*; using step 3"):
        assert trial.load(read) == 0.3
    with pytest.warns(
        UserWarning, match=r"trial 0: checkpoint of step 2 is corrupt .*; using the next best model"
    ):
        assert best_model(study.load()).step == 3


def test_a_model_that_was_deleted_is_passed_over_with_a_warning(study: Study) -> None:
    study.objects.delete(study.keys(2))
    history = study.load()
    found = find_model(history.trials[0])
    assert found.step == 3
    assert found.passed_over == (
        "trial 0: checkpoint of step 2 is not in the object store any more; using step 3",
    )
    with pytest.warns(UserWarning, match=r"trial 0: .* step 2 is not in .* any more; using the next best model"):
        assert best_model(history).value == 0.3
    for step in (1, 3):
        study.objects.delete(study.keys(step))
    shutil.rmtree(os.environ["THRIFTUNE_CACHE"])
    with (
        pytest.warns(UserWarning, match="no other one is left"),
        pytest.raises(NoCheckpoint, match="trial 0 has no good checkpoint left in the object store"),
    ):
        history.trials[0].load(read)


def test_a_model_that_was_not_to_be_kept_is_passed_over_silently(study: Study) -> None:
    study.objects.delete([*study.keys(1), *study.keys(3)])
    history = study.load()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert best_model(history).step == 2
    study.objects.delete(study.keys(2))
    shutil.rmtree(os.environ["THRIFTUNE_CACHE"])
    _, skipped = find_best_model(history)
    assert len(skipped) == 1  # only the best step was to be kept


def test_a_damaged_copy_in_the_cache_is_fetched_again(study: Study) -> None:
    trial = study.load().trials[0]
    folder = trial.checkpoint
    assert folder is not None
    (folder / "model").write_text("9.9")
    assert trial.load(read) == 0.1


def test_a_kill_while_fetching_leaves_no_model(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = study.load().trials[0]

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            trial.load(read)
    assert trial.load(read) == 0.1


def test_the_command_line_says_where_a_model_is_and_copies_it(study: Study, tmp_path: Path) -> None:
    run = CliRunner()
    store = ["--store", str(tmp_path / "s.db")]
    shown = run.invoke(cli, ["show", "s", "--trial", "0", *store])
    assert f"{study.files.objects}/trials/0/checkpoints/" in shown.output.replace("\n", "")
    copied = run.invoke(cli, ["best", "s", "--model", "--to", str(tmp_path / "copy"), *store])
    assert copied.exit_code == 0, copied.output
    assert read(tmp_path / "copy") == 0.1


def test_deleting_a_study_deletes_its_objects_and_no_others(study: Study, tmp_path: Path) -> None:
    other = open_objects(f"{study.spec.storage}/studies/other")
    other.put("trials/0/x", b"x")
    study.load().trials[0].load(read)
    assert delete_study(study.store, "s") == ""
    assert not all_files(tmp_path / "cache")
    assert list(study.objects.list_objects()) == []
    assert [each.key for each in other.list_objects()] == ["trials/0/x"]
    assert study.store.studies() == []


def test_a_study_whose_objects_cannot_be_deleted_stays(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    store = type(study.objects)
    delete: Callable[..., None] = store.delete

    def fails(*_: object) -> None:
        raise StoreUnavailable("connection refused")

    monkeypatch.setattr(store, "delete", fails)
    with pytest.raises(
        ObjectStoreError, match=r"study 's' is not deleted, .* connection refused\. Try again when"
    ):
        delete_study(study.store, "s")
    assert study.load().trials[0].checkpoints
    monkeypatch.setattr(store, "delete", delete)
    delete_study(study.store, "s")
    assert study.store.studies() == []


def test_a_store_in_an_object_store_keeps_checkpoints_there_and_deletes_them(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = study.spec.storage
    monkeypatch.setattr(type(study.store), "url", property(lambda store: url))
    spec = replace(study.spec, storage="")
    assert StudyFiles.of(spec, study.store) == study.files
    assert StudyFiles.of(replace(spec, storage="/elsewhere"), study.store).objects == ""
    delete_study(study.store, "s")
    assert list(study.objects.list_objects())  # the store's own work, which this one does not know


def test_the_objects_of_a_study_do_not_move_when_it_is_renamed(study: Study) -> None:
    tt.rename("s", "t", study.store)
    spec = Spec.from_json(study.store.spec("t"))
    assert StudyFiles.of(spec, study.store).objects == study.files.objects
    assert load_history(study.store, spec).trials[0].load(read) == 0.1
