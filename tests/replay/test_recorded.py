"""Tests of the recordings that are shipped with thriftune."""

from __future__ import annotations

import tomllib
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import thriftune as tt
from tests import ROOT
from tests.conftest import needs_torch
from thriftune.errors import SettingError
from thriftune.launch.drive import drive
from thriftune.launch.open_study import open_study
from thriftune.replay import recorded, recordings
from thriftune.replay.recordings import Recording
from thriftune.replay.simulated_engine import Curve
from thriftune.settings.study_file import read_study_file
from thriftune.show.progress import make_view
from thriftune.store.opening import open_store
from thriftune.study.result import Result

WORKLOADS = ROOT / "examples" / "workloads"
NAMES = ["convolutional", "linear", "logistic", "residual", "svm", "trees"]


def last_value(curve: Curve, metric: str) -> float:
    return curve.metrics[-1][metric]


def test_names_lists_all_six() -> None:
    assert recorded.names() == NAMES
    assert tt.recorded.names() == NAMES


def test_files_are_small() -> None:
    folder = Path(recorded.__file__).parent
    assert all((folder / f"{name}.npz").stat().st_size < 50_000 for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_recording_has_the_full_grid_of_its_study_file(name: str) -> None:
    recording, spec = recorded.load(name), read_study_file(WORKLOADS / f"{name}.toml").spec
    assert (recording.space, recording.objectives) == (spec.space, spec.objectives)
    assert [config for config, _ in recording.rows] == list(spec.space.every())
    assert len(recording.rows) == spec.trials == 16
    for _, curve in recording.rows:
        assert list(curve.steps) == list(range(1, 1 + (spec.max_steps or 0)))
        assert curve.error is None


@pytest.mark.parametrize("name", NAMES)
def test_values_decrease(name: str) -> None:
    recording = recorded.load(name)
    (objective,) = recording.objectives
    for _, curve in recording.rows:
        values = np.array([metrics[objective.metric] for metrics in curve.metrics])
        assert np.isfinite(values).all()
        assert values[-10:].mean() < values[:3].mean()


@pytest.mark.parametrize("name", ["convolutional", "residual"])
def test_values_are_lower_after_the_learning_rate_drops(name: str) -> None:
    recording = recorded.load(name)
    drops = []
    for config, curve in recording.rows:
        values, drop = [metrics["cross_entropy"] for metrics in curve.metrics], config["drop_epoch"]
        drops.append(np.mean(values[drop - 8 : drop]) - np.mean(values[drop : drop + 8]))
    assert np.mean(np.array(drops) > 0.0) > 0.9


@pytest.mark.parametrize("name", NAMES)
def test_steps_of_a_trial_take_the_same_time(name: str) -> None:
    for _, curve in recorded.load(name).rows:
        assert len(set(curve.seconds)) == 1
        assert 1e-4 < curve.seconds[0] < 1.0


@pytest.mark.parametrize("name", NAMES)
def test_early_curve_finds_one_of_the_best_in_fewer_steps(name: str) -> None:
    recording = recorded.load(name)
    stopped_early = tt.simulate(recording, stopping=tt.stopping.EarlyCurve(theta=0.7, top=3), workers=4)
    full = tt.simulate(recording, stopping="none", workers=4)
    assert stopped_early.finished
    assert sum(trial.step for trial in stopped_early.trials) < 0.8 * sum(trial.step for trial in full.trials)
    (objective,) = recording.objectives
    ends = sorted(last_value(curve, objective.metric) for _, curve in recording.rows)
    assert stopped_early.best.value is not None
    assert stopped_early.best.value <= ends[2]


# --- cores --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_more_cores_are_faster_within_limits(name: str) -> None:
    measured = recorded.seconds_by_cores(name)
    assert set(measured) == {1, 2}
    assert all(seconds > 0.0 for seconds in measured.values())
    paces = [recorded.pace(name, cores) for cores in (1, 2, 4, 8, 16)]
    assert paces[0] == 1.0
    assert paces == sorted(paces, reverse=True)
    assert all(pace >= 1.0 / cores for pace, cores in zip(paces, (1, 2, 4, 8, 16), strict=True))


@pytest.mark.parametrize(
    ("two_cores_seconds", "four_cores"),
    [(1.0, 0.25), (1.5, 0.5 + 0.5 / 4), (2.0, 1.0), (2.4, 1.0), (0.8, 0.25)],
)
def test_pace_follows_amdahls_law(
    two_cores_seconds: float, four_cores: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    curve = Curve([1], [{"loss": 0.5}], [1.0])
    objectives = recorded.load("svm").objectives
    recording = Recording(
        tt.Space({"x": tt.Int(0, 1)}), objectives, [({"x": 0}, curve)], (), {1: 2.0, 2: two_cores_seconds}
    )
    monkeypatch.setattr(recorded, "load", lambda _: recording)
    assert recorded.pace("recording", 1) == 1.0
    assert recorded.pace("recording", 4) == pytest.approx(four_cores)


def test_unknown_recording_and_invalid_cores_are_refused() -> None:
    with pytest.raises(
        SettingError, match="recording 'resnet' is not shipped with thriftune; choose one of convolut"
    ):
        recorded.load("resnet")
    with pytest.raises(SettingError, match="cores: 0 is too small; use 1 or more"):
        recorded.pace("svm", 0)


# --- the training functions ------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_study_file_has_one_trial_for_each_configuration(name: str) -> None:
    study_file = tomllib.loads((WORKLOADS / f"{name}.toml").read_text())
    assert (
        len(list(product(*(parameter["choices"] for parameter in study_file["space"].values()))))
        == study_file["trials"]
    )
    assert study_file["stopping"] == "none"


@pytest.mark.parametrize("name", ["svm", "trees", pytest.param("residual", marks=needs_torch)])
def test_training_again_gives_the_recorded_values(name: str, tmp_path: Path) -> None:
    """Compare the first three steps of the first trial."""
    study = read_study_file(WORKLOADS / f"{name}.toml", {"trials": 1, "max_steps": 3})
    with open_store(tmp_path / "s.db") as store:
        result = Result(*drive(store, open_study(store, study.spec), make_view(study.spec, False)))
    ((config, curve),) = recordings.recording_from_result(result)[0].rows
    recorded_row, metric = recorded.load(name).rows[0], study.spec.metric
    assert config == recorded_row[0]
    values = [[metrics[metric] for metrics in each.metrics[:3]] for each in (curve, recorded_row[1])]
    assert values[0] == pytest.approx(values[1], rel=1e-2)
