"""Tests of recordings: writing and reading their files, and replaying them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import thriftune as tt
from thriftune.errors import SettingError
from thriftune.replay import recordings
from thriftune.replay.curve_tables import read_table
from thriftune.replay.recordings import Recording
from thriftune.replay.simulated_engine import Curve
from thriftune.space.objectives import Objective, parse_constraints
from thriftune.state.trial_record import State

LOSS = (Objective("loss", False),)
SPACE = tt.Space(
    {
        "lr": tt.Float(1e-4, 1.0, log=True),
        "layers": tt.Int(1, 5),
        "act": tt.Choice(["relu", None, True]),
        "slope": tt.Float(0.0, 1.0, when={"act": "relu"}),
    }
)

# --- writing and reading -----------------------------------------------------------------------------------------

float32_values = st.floats(width=32, allow_nan=True, allow_infinity=True)
step_seconds = st.floats(0.0, 1e6, width=32)


@st.composite
def recorded(draw: st.DrawFn) -> Recording:
    """Draw a recording with float32 values, failed trials, missing reports and missing metrics."""
    metrics = ["loss", "speed", "memory"][: draw(st.integers(1, 3))]
    objectives = tuple(Objective(name, name == "speed") for name in metrics[:2])
    constraints = parse_constraints([f"{name} <= 10" for name in metrics[2:]])
    rows = []
    for number in range(draw(st.integers(1, 5))):
        steps = sorted(draw(st.sets(st.integers(1, 2**40), min_size=number == 0, max_size=6)))
        reports = [{name: draw(float32_values) for name in metrics if draw(st.booleans())} for _ in steps]
        error = draw(st.none() | st.text(max_size=20))
        config = SPACE.sample(np.random.default_rng(draw(st.integers(0, 99))))
        rows.append((config, Curve(steps, reports, [draw(step_seconds) for _ in steps], error)))
    by_cores = draw(st.dictionaries(st.integers(1, 64), st.floats(1e-6, 1e6), max_size=3))
    return Recording(SPACE, objectives, rows, constraints, by_cores)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(recorded())
def test_read_returns_what_was_written(tmp_path: Path, recording: Recording) -> None:
    path = tmp_path / "r.npz"
    recordings.write(recording, path)
    assert recordings.is_recording(path)
    assert repr(recordings.read(path)) == repr(recording)  # repr, since NaN is not equal to itself


def test_values_keep_seven_digits_and_finite_ones_stay_finite(tmp_path: Path) -> None:
    values = [1 / 3, 1e300, -1e300, 1e-60]
    curve = Curve([1, 2, 3, 4], [{"loss": value} for value in values], [0.1] * 4)
    recordings.write(recording_of(curve), tmp_path / "r.npz")
    read_values = [report["loss"] for report in recordings.read(tmp_path / "r.npz").rows[0][1].metrics]
    assert read_values[0] == pytest.approx(1 / 3, rel=1e-7)
    assert read_values[1:] == [float(np.finfo(np.float32).max), -float(np.finfo(np.float32).max), 0.0]


def test_metrics_without_objective_or_constraint_are_left_out(tmp_path: Path) -> None:
    recordings.write(recording_of(Curve([1], [{"loss": 0.5, "epoch_size": 64.0}], [1.0])), tmp_path / "r.npz")
    assert recordings.read(tmp_path / "r.npz").rows[0][1].metrics == [{"loss": 0.5}]


def test_file_of_sixteen_trials_is_small(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    curve = Curve(range(1, 151), [{"loss": float(v)} for v in rng.random(150)], rng.random(150).tolist())
    recordings.write(replace(recording_of(curve), rows=[(config(), curve)] * 16), tmp_path / "r.npz")
    assert (tmp_path / "r.npz").stat().st_size < 30_000


# --- replayed -----------------------------------------------------------------------------------------------


def train(trial: tt.Trial) -> None:
    for step in trial.steps():
        if trial["x"] > 0.8 and step == 2:
            raise ValueError("too far")
        trial.report(loss=trial["x"] + 1 / step, memory=4.0)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tt.Result:
    """Run a real study."""
    arguments: dict[str, Any] = {"searcher": "random", "seed": 3, "retries": 0, "name": "done", "progress": False}
    arguments |= {"store": tmp_path_factory.mktemp("recordings") / "s.db", "stopping": "none"}
    return tt.tune(train, {"x": tt.Float(0.0, 1.0)}, minimize="loss", trials=12, max_steps=9, **arguments)


def test_recording_replays_like_its_study(done: tt.Result, tmp_path: Path) -> None:
    recordings.write(recordings.recording_from_result(done)[0], tmp_path / "done.npz")
    for rule in ("none", "asha", "early_curve"):
        of_study, of_file = tt.simulate(done, stopping=rule), tt.simulate(tmp_path / "done.npz", stopping=rule)
        for recording_of, other in zip(of_study.trials, of_file.trials, strict=True):
            assert (recording_of.config, recording_of.state, recording_of.step, recording_of.error) == (
                other.config, other.state, other.step, other.error,
            )  # fmt: skip
            assert recording_of.value == pytest.approx(other.value, rel=1e-6)
        assert of_study.seconds == pytest.approx(of_file.seconds, rel=1e-5)
    assert any(trial.state is State.FAILED for trial in tt.simulate(str(tmp_path / "done.npz")).trials)


def test_steady_steps_take_the_time_of_quick_ones() -> None:
    disturbed = Curve([1, 2, 3, 4, 5], [{"loss": 1.0}] * 5, [9.0, 1.0, 1.0, 3.0, 1.0])
    never = Curve([], [], [], "at once")
    rows = recordings.with_steady_steps(
        replace(recording_of(disturbed), rows=[(config(), disturbed), (config(), never)])
    ).rows
    assert [list(curve.seconds) for _, curve in rows] == [[1.0] * 5, []]
    assert [curve.metrics for _, curve in rows] == [disturbed.metrics, []]


def test_recording_has_its_own_objectives_and_space(done: tt.Result, tmp_path: Path) -> None:
    path = tmp_path / "done.npz"
    recordings.write(recordings.recording_from_result(done)[0], path)
    hows: tuple[dict[str, Any], ...] = (
        {"minimize": "loss"},
        {"maximize": "loss"},
        {"space": {"x": tt.Float(0, 1)}},
    )
    for arguments in hows:
        with pytest.raises(
            SettingError, match=r"done.npz: a recording has its own objectives and space; leave out"
        ):
            tt.simulate(path, **arguments)


def test_table_needs_an_objective(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", values=np.ones((3, 2)), x=np.ones(3))
    with pytest.raises(
        SettingError, match=r"t.npz: a table does not name its objective; give minimize or maximize"
    ):
        tt.simulate(tmp_path / "t.npz")


# --- invalid recordings -----------------------------------------------------------------------------------


def config() -> dict[str, Any]:
    return {"lr": 0.1, "layers": 2, "act": None}


def recording_of(curve: Curve) -> Recording:
    return Recording(SPACE, LOSS, [(config(), curve)])


def valid_recording() -> Recording:
    return recording_of(Curve([1, 2], [{"loss": 0.5}, {"loss": 0.4}], [1.0, 1.0]))


def change(path: Path, about: Mapping[str, Any] | None = None, **arrays: Any) -> None:
    """Change the JSON text or the arrays of a file."""
    with np.load(path) as found:
        arrays_read = {name: found[name] for name in found.files}
    text = json.loads(str(arrays_read["thriftune_recording"])) | dict(about or {})
    np.savez(path, **(arrays_read | {"thriftune_recording": np.array(json.dumps(text))} | arrays))


@pytest.mark.parametrize(
    ("about", "arrays", "message"),
    [
        ({"version": 2}, {}, "has format version 2; this version of thriftune reads 1"),
        ({"space": {"lr": {"type": "real"}}}, {}, "lr: type 'real' is not known"),
        ({"configs": [{"lr": 7.0, "layers": 2, "act": None}]}, {}, "lr: 7.0 is"),
        ({"configs": []}, {}, "is not a complete recording .its arrays do not have 1 metrics and 0 trials"),
        ({"errors": []}, {}, "is not a complete recording"),
        ({"seconds_by_cores": {"two": 1.0}}, {}, "is not a complete recording"),
        ({"constraints": ["loss < 3"]}, {}, "constraints: 'loss < 3' is not a constraint"),
        ({}, {"steps": np.ones((1, 3), dtype=int)}, "its arrays do not have 1 metrics and 1 trials"),
        ({}, {"seconds": -np.ones((1, 2))}, "takes -1.0 seconds"),
        ({}, {"steps": np.zeros((1, 2), dtype=int)}, "no trial reported a value"),
    ],
)
def test_invalid_recording_is_refused(
    tmp_path: Path, about: dict[str, Any], arrays: dict[str, Any], message: str
) -> None:
    path = tmp_path / "r.npz"
    recordings.write(valid_recording(), path)
    change(path, about, **arrays)
    with pytest.raises(SettingError, match=rf"r\.npz: .*{message}"):
        read_table(path)


def test_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    recordings.write(valid_recording(), path)
    content = path.read_bytes()
    path.write_bytes(content[:-40])
    assert not recordings.is_recording(path)
    path.write_bytes(content[:60] + bytes(200) + content[260:])
    with pytest.raises(
        SettingError, match=r"r\.npz: is not a complete recording .*make one with `thriftune record`"
    ):
        recordings.read(path)


def test_missing_file_raises_file_not_found(tmp_path: Path) -> None:
    for read_file in (recordings.read, recordings.is_recording, tt.simulate):
        with pytest.raises(FileNotFoundError):
            read_file(tmp_path / "nowhere.npz")


def test_recording_must_be_an_npz_file(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"r.csv: a recording is an npz file; give it a name that ends in .npz"):
        recordings.write(valid_recording(), tmp_path / "r.csv")
    assert not list(tmp_path.iterdir())


def test_nan_and_missing_values_of_a_constrained_metric_differ(tmp_path: Path) -> None:
    reports = [{"loss": 0.5, "memory": math.nan}, {"loss": 0.4}]
    recording = replace(
        recording_of(Curve([1, 2], reports, [1.0, 1.0])), constraints=parse_constraints("memory <= 3")
    )
    recordings.write(recording, tmp_path / "r.npz")
    first, second = recordings.read(tmp_path / "r.npz").rows[0][1].metrics
    assert math.isnan(first["memory"])
    assert "memory" not in second


def test_missing_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"missing\.csv: no such file"):
        read_table(tmp_path / "missing.csv")
