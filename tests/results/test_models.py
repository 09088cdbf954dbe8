"""Tests saving, loading and copying the models of trials and of a study."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import thriftune as tt
from thriftune.errors import CheckpointError, NoBestTrial, NoCheckpoint, SettingError
from thriftune.results.model_copy import copy_model
from thriftune.results.models import find_best_model
from thriftune.state.trial_record import State
from thriftune.stopping import ASHA

SPACE = {"x": tt.Float(0.0, 1.0)}


def save_loss(loss: float) -> Callable[[Path], object]:
    """Return a save function that writes the loss as the model."""
    return lambda folder: (folder / "loss").write_text(repr(loss))


def valley(trial: tt.Trial) -> None:
    """Train with a loss that falls until step 3 and then rises."""
    for step in trial.steps():
        loss = trial["x"] + abs(step - 3)
        trial.report(loss=loss, save=save_loss(loss))


def tune(train: Callable[[tt.Trial], object], folder: Path, **settings: Any) -> tt.Result:
    merged: dict[str, Any] = {
        "minimize": "loss",
        "trials": 3,
        "max_steps": 7,
        "workers": 1,
        "seed": 0,
        "name": "s",
    }
    merged |= {"stopping": "none", "system": "off", "progress": False, **settings}
    return tt.tune(train, SPACE, store=folder / "s.db", **merged)


def read(folder: Path) -> float:
    return float((folder / "loss").read_text())


# --- the best model ---------------------------------------------------------------------------------------


def test_the_best_classifier_has_the_accuracy_that_the_study_reports(tmp_path: Path) -> None:
    from sklearn.datasets import load_digits
    from sklearn.linear_model import SGDClassifier
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    train_x, val_x, train_y, val_y = train_test_split(images / 16.0, labels, random_state=0)
    marker = tmp_path / "killed"

    def train(trial: tt.Trial) -> None:
        model = SGDClassifier(alpha=trial["alpha"], random_state=trial.seed)

        def load(folder: Path) -> None:
            nonlocal model
            model = pickle.loads((folder / "model").read_bytes())

        def save(folder: Path) -> None:
            (folder / "model").write_bytes(pickle.dumps(model))

        trial.restore(load)
        for step in trial.steps():
            model.partial_fit(train_x, train_y, classes=np.arange(10))
            trial.report(accuracy=model.score(val_x, val_y), save=save)
            if step == 5 and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    space = {"alpha": tt.Float(1e-5, 1.0, log=True)}
    result = tt.tune(train, space, maximize="accuracy", trials=4, max_steps=8, store=tmp_path / "s.db", seed=1)
    assert sum(trial.losses for trial in result.trials) == 1, "one attempt was killed"
    model = result.best.load(lambda folder: pickle.loads((folder / "model").read_bytes()))
    assert model.score(val_x, val_y) == result.best.value
    best = result.best_model
    assert best.value >= model.score(val_x, val_y)
    assert (
        best.load(lambda folder: pickle.loads((folder / "model").read_bytes())).score(val_x, val_y) == best.value
    )


def test_if_the_best_value_counts_a_trial_has_the_model_of_its_best_step(tmp_path: Path) -> None:
    result = tune(valley, tmp_path)
    for trial in result.trials:
        assert trial.checkpoint_step == 3
        assert trial.checkpoint is not None
        assert read(trial.checkpoint) == trial.load(read) == trial.value == trial["x"]
    again = tt.load("s", tmp_path / "s.db")
    assert again.best.checkpoint == result.best.checkpoint
    assert (again.best_model.trial.id, again.best_model.step) == (result.best.id, 3)
    assert repr(result.best_model) == f"<BestModel trial={result.best.id} step=3 value={result.best.value:.6g}>"


def test_if_the_last_value_counts_the_best_model_may_be_of_an_earlier_step(tmp_path: Path) -> None:
    result = tune(valley, tmp_path, value="last")
    best = result.best
    assert best.checkpoint_step == 7
    assert best.load(read) == best.value == best["x"] + 4
    model = result.best_model
    assert (model.trial.id, model.step, model.value) == (best.id, 3, best["x"])
    assert model.load(read) == read(model.checkpoint) == model.value


def test_a_paused_trial_may_have_the_best_model(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> None:
        trial.restore(lambda folder: None)
        for step in trial.steps():
            loss = {0: 1 / (step + 1), 1: {1: 0.6, 2: 0.01}.get(step, 5.0)}.get(trial.id, 2.0 + trial.id)
            trial.report(loss=loss, save=save_loss(loss))

    result = tune(train, tmp_path, trials=9, max_steps=9, value="last", stopping=ASHA(eta=3, how="pause"))
    assert (result.best.id, result.best.checkpoint_step) == (0, 9)
    model = result.best_model
    assert (model.trial.id, model.step, model.value) == (1, 2, 0.01)
    assert model.trial.state is State.PAUSED
    assert model.load(read) == model.value


def test_if_the_best_step_was_not_saved_the_model_is_the_best_saved_one(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> None:
        for step in trial.steps():
            loss = trial["x"] + abs(step - 4)
            trial.report(loss=loss, save=save_loss(loss) if step % 3 == 0 else None)

    best = tune(train, tmp_path).best
    assert (best.value, best.checkpoint_step) == (best["x"], 3)
    assert best.load(read) == best["x"] + 1


def test_a_model_without_a_value_is_that_of_the_last_step(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> float:
        for _ in range(3):
            trial.report(epoch=1, save=save_loss(0.5))
        trial.report(epoch=4)
        return 0.5

    result = tune(train, tmp_path, max_steps=None)
    assert (result.best.checkpoint_step, result.best.load(read)) == (3, 0.5)
    with pytest.raises(NoCheckpoint, match="no good checkpoint with a value of 'loss' is left in"):
        _ = result.best_model


# --- constraints, several objectives ----------------------------------------------------------------------


def test_the_best_model_meets_the_constraints(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> None:
        for step in trial.steps():
            loss = trial["x"] + 1 / step
            trial.report(loss=loss, size=step, save=save_loss(loss))

    result = tune(train, tmp_path, constraints="size <= 4")
    model = result.best_model
    assert model.step == 4
    assert model.load(read) == model.value
    none = tune(train, tmp_path, constraints="size <= 0", name="none")
    with pytest.raises(NoBestTrial, match=r"no saved model is known to meet the constraints \(size <= 0\)"):
        _ = none.best_model


def test_with_several_objectives_each_trial_has_its_last_model(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> None:
        for step in trial.steps():
            trial.report(loss=trial["x"], size=1 - trial["x"], save=save_loss(step))

    result = tune(train, tmp_path, minimize=["loss", "size"])
    assert [trial.load(read) for trial in result.front] == [7.0, 7.0, 7.0]
    with pytest.raises(NoBestTrial, match="2 objectives, so no single best model"):
        _ = result.best_model


# --- no model ---------------------------------------------------------------------------------------------


def test_the_error_without_a_saved_model_says_what_to_do(tmp_path: Path) -> None:
    result = tune(lambda trial: trial["x"], tmp_path, max_steps=None)
    assert result.best.checkpoint is None
    assert result.best.checkpoint_step is None
    with pytest.raises(NoCheckpoint, match=r"Give save= to trial.report\(\)") as none:
        result.best.load(read)
    assert str(tmp_path) in str(none.value), "the folder of the trial's own files"
    with pytest.raises(NoCheckpoint, match="no trial has saved a model with its report"):
        _ = result.best_model


def test_a_trial_of_an_ask_and_tell_study_has_no_model(tmp_path: Path) -> None:
    study = tt.Study(SPACE, minimize="loss")
    study.tell(study.ask(), 0.5)
    assert study.best.checkpoint is None
    with pytest.raises(NoCheckpoint, match="nothing was saved"):
        study.best.load(read)
    record = tt.TrialRecord(0, {"x": 0.5}, 0.0)
    assert record.checkpoint is None
    with pytest.raises(NoCheckpoint, match="its folder is not known"):
        record.load(read)


def test_a_loader_that_is_not_a_function_is_refused(tmp_path: Path) -> None:
    result = tune(valley, tmp_path, trials=1)
    nothing: Any = None
    for load in (result.best.load, result.best_model.load):
        with pytest.raises(SettingError, match="load: None is not a function; give one that takes a folder"):
            load(nothing)
        none: Any = lambda: None  # noqa: E731
        with pytest.raises(
            SettingError, match="takes no argument; it is called with one, the checkpoint's folder"
        ):
            load(none)


# --- damage -----------------------------------------------------------------------------------------------


def test_a_corrupt_model_is_skipped_with_a_warning(tmp_path: Path) -> None:
    result = tune(valley, tmp_path, trials=2)
    best, other = sorted(result.trials, key=lambda trial: trial.value or 0.0)
    assert best.checkpoint is not None
    (best.checkpoint / "loss").write_text("0.0")
    warning = rf"trial {best.id}: checkpoint of step 3 is corrupt \(loss: .*\); using step 6"
    with pytest.warns(UserWarning, match=warning):
        assert best.load(read) == best["x"] + 3
    with pytest.warns(UserWarning, match=warning):
        assert best.checkpoint is not None
    assert best.checkpoint_step == 6
    with pytest.warns(UserWarning, match=rf"trial {best.id}: checkpoint of step 3 is corrupt"):
        assert result.best_model.trial is other
    for path in Path(best.folder).glob("checkpoints/*/state/loss"):
        path.write_text("0.0")
    with (
        pytest.warns(UserWarning, match="no other one is left"),
        pytest.raises(NoCheckpoint, match="no good check"),
    ):
        best.load(read)


def test_a_deleted_model_is_skipped_without_a_warning(tmp_path: Path) -> None:
    best = tune(valley, tmp_path, trials=1).best
    assert best.checkpoint is not None
    shutil.rmtree(best.checkpoint.parent)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert best.checkpoint_step == 6
    shutil.rmtree(Path(best.folder) / "checkpoints")
    assert best.checkpoint is None
    with pytest.raises(NoCheckpoint, match="if its study is running or was renamed since, load it again"):
        best.load(read)


def test_a_renamed_study_finds_its_model_in_its_new_folder(tmp_path: Path) -> None:
    tune(valley, tmp_path, trials=1)
    tt.rename("s", "renamed", tmp_path / "s.db")
    study = tt.load("renamed", tmp_path / "s.db")
    assert study.best.load(read) == study.best.value == study.best_model.load(read)


def test_a_failed_trial_has_a_model_but_never_the_best_one(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> None:
        valley(trial)
        if trial["x"] < 0.5:
            raise RuntimeError("too good")

    result = tune(train, tmp_path, trials=2, retries=0, enqueue=[{"x": 0.1}, {"x": 0.9}])
    failed, good = result.trials
    assert failed.state is State.FAILED
    assert failed.load(read) == 0.1
    assert result.best_model.trial is good


def test_among_equal_models_the_best_trials_comes_first(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> None:
        for step in trial.steps():
            loss = 1.0 if step > 1 or trial.id else 0.5
            trial.report(loss=loss, save=save_loss(loss))

    result = tune(train, tmp_path, value="last")
    assert result.best_model.value == 0.5
    shutil.rmtree(result.best_model.checkpoint.parent)
    model, skipped = find_best_model(result.history)
    assert model is not None
    assert (model.trial, skipped) == (result.best, ())


# --- copies -----------------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "part").mkdir(parents=True)
    (folder / "weights").write_bytes(bytes(range(256)))
    (folder / "part" / "names").write_text("a b")
    return folder


@pytest.mark.parametrize("exists", [False, True])
def test_a_copy_is_the_same(model: Path, tmp_path: Path, exists: bool) -> None:
    to = tmp_path / "far" / "copy"
    if exists:
        to.mkdir(parents=True)
    assert copy_model(model, to) == to
    assert sorted(path.name for path in to.rglob("*")) == ["names", "part", "weights"]
    assert (to / "weights").read_bytes() == bytes(range(256))
    assert [path.name for path in to.parent.iterdir()] == ["copy"]


def test_a_copy_replaces_nothing(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for existing in (tmp_path / "file", model):
        with pytest.raises(SettingError, match="exists already; name a new folder or an empty one"):
            copy_model(model, existing)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_copy_that_fails_leaves_nothing(model: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="was deleted"):
        copy_model(tmp_path / "none", tmp_path / "far" / "copy")
    os.mkfifo(model / "pipe")
    with pytest.raises(CheckpointError, match="cannot be copied to"):
        copy_model(model, tmp_path / "far" / "copy")
    assert list((tmp_path / "far").iterdir()) == []
