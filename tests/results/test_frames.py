"""Tests the data frames of a study."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import thriftune as tt
from tests.cli import studies
from thriftune.errors import MissingExtra
from thriftune.space.objectives import parse_constraints
from thriftune.state import events as ev
from thriftune.study.result import Result

pd = pytest.importorskip("pandas")


def result(entries: list[ev.Event] | None = None, **settings: Any) -> Result:
    spec = studies.spec(**settings)
    return Result(spec, studies.fold(studies.log() if entries is None else entries, spec))


def train(trial: tt.Trial) -> None:
    for step in trial.steps():
        trial.report(loss=(trial["lr"] - 0.1) ** 2 / step, momentum=0.5, seconds=2.0)


SPACE = {
    "lr": tt.Float(0.001, 1.0, log=True),
    "optimizer": tt.Choice(["adam", "sgd"]),
    "momentum": tt.Float(0.0, 0.9, when={"optimizer": "sgd"}),
    "layers": tt.Int(1, 3, when={"optimizer": "sgd"}),
}


def test_the_frames_of_a_result(tmp_path: Path) -> None:
    tuned = tt.tune(train, SPACE, minimize="loss", trials=6, max_steps=2, store=tmp_path / "s.db", progress=False)
    frame = tuned.to_pandas()
    assert list(frame["trial"]) == [trial.id for trial in tuned.trials]
    assert set(frame["state"]) <= {"COMPLETED", "STOPPED"}
    finished = frame[frame.state == "COMPLETED"]
    best = finished.sort_values("loss").iloc[0]
    assert best["trial"] == tuned.best.id
    assert best["lr"] == tuned.best["lr"]
    assert best["value"] == best["loss"] == tuned.best.value
    assert str(frame["started"].dtype).endswith("UTC]")
    assert (frame["ended"] >= frame["started"]).all()
    assert (frame["seconds"] < 1e6).all(), "the fixed column keeps its name"
    assert (frame["metrics_seconds"] == 2.0).all()
    assert (frame["momentum"] == 0.5).all(), "the metric keeps its name, and the parameter gets a prefix"
    adam = frame["optimizer"] == "adam"
    assert frame["params_momentum"].isna().tolist() == adam.tolist()
    assert frame["layers"].isna().tolist() == adam.tolist()
    assert str(frame["layers"].dtype) == "Int64" if adam.any() else "int64"
    reports = tuned.to_pandas(reports=True)
    assert len(reports) == sum(len(trial.reports) for trial in tuned.trials)
    assert list(reports.columns) == ["trial", "step", "loss", "momentum", "seconds", "time", "attempt", "saved"]
    merged = reports.merge(frame, on="trial")
    assert len(merged) == len(reports)


def test_the_columns_and_their_values() -> None:
    frame = result().to_pandas()
    assert list(frame.columns) == [
        "trial",
        "state",
        "value",
        "loss",
        "gap",
        "lr",
        "act",
        "step",
        "value_step",
        "seconds",
        "started",
        "ended",
        "attempts",
        "failures",
        "losses",
        "origin",
        "error",
    ]
    assert frame["state"].tolist() == ["COMPLETED", "COMPLETED", "FAILED"]
    assert frame["loss"].tolist()[:2] == [4.0 / 3, 2.0 / 3]
    assert frame["loss"].isna().tolist() == [False, False, True]
    assert frame["error"].tolist()[2] == "ValueError: bad [red]"
    assert frame["failures"].tolist() == [0, 0, 2]
    assert frame["started"][0] == pd.Timestamp(101.0, unit="s", tz="UTC")
    assert frame["ended"][1] == pd.Timestamp(106.0, unit="s", tz="UTC")
    assert frame["gap"].isna().all()


def test_the_frame_has_the_values_that_count() -> None:
    entries = studies.log_of_two_objectives((0.5, 1.0))
    first_best = [
        replace(entry, metrics={"loss": 0.1}) if isinstance(entry, ev.Reported) and entry.step == 1 else entry
        for entry in entries
    ]
    frame = result(first_best, value="best").to_pandas()
    assert (frame["value"][0], frame["loss"][0], frame["value_step"][0]) == (0.1, 0.1, 1)
    frame = result(first_best, value="last").to_pandas()
    assert (frame["value"][0], frame["loss"][0], frame["value_step"][0]) == (0.5, 0.5, 2)


def test_several_objectives_and_constraints() -> None:
    tuned = result(
        studies.log_of_two_objectives((0.5, 3.0), (0.2, 1.0)),
        objectives=studies.TWO_OBJECTIVES,
        constraints=parse_constraints("speed >= 2"),
    )
    frame = tuned.to_pandas()
    assert "value" not in frame.columns
    assert frame["loss"].tolist() == [0.5, 0.2]
    assert frame["speed"].tolist() == [3.0, 1.0]
    assert frame["feasible"].tolist() == [True, False]


def test_a_metric_with_the_name_value(tmp_path: Path) -> None:
    study = tt.Study({"value": tt.Float(0, 1), "x": tt.Int(1, 3)}, maximize="value", seed=0)
    study.tell(study.ask(), 2.0)
    running = study.ask()
    frame = study.to_pandas()
    assert frame["value"][0] == 2.0
    assert math.isnan(frame["value"][1])
    assert frame["params_value"].tolist() == [0.5, running["value"]]
    assert not [name for name in frame.columns if name.startswith("metrics_")]
    assert frame["x"].dtype == "int64"
    assert frame["state"].tolist() == ["COMPLETED", "RUNNING"]
    assert frame["ended"].isna().tolist() == [False, True]


def test_the_frame_of_an_empty_study_has_the_columns() -> None:
    frame = result([]).to_pandas()
    assert len(frame) == 0
    assert {"trial", "value", "loss", "lr", "act", "started"} <= set(frame.columns)
    assert len(result([]).to_pandas(reports=True)) == 0


def test_the_error_without_pandas_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"pip install 'thriftune\[pandas\]'"):
        result().to_pandas()
