"""Tests of attributes: how users attach them, and how they are checked."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import thriftune as tt
from tests.cli import studies
from tests.support.tables import Table
from thriftune.cli import cli
from thriftune.errors import SettingError, StudyBusy
from thriftune.state import events as ev
from thriftune.state.attributes import LARGEST_BYTES, checked_attribute, checked_attributes, set_attribute
from thriftune.store.opening import open_store

SPACE = {"x": tt.Float(0, 1)}


def train(trial: tt.Trial) -> None:
    trial.set_attr("git", "a1b2c3")
    for step in trial.steps():
        trial.report(loss=trial["x"] / step)
        trial.set_attr("sizes", (step, [np.int64(2), {"deep": None}]))


def tune(folder: Path, function: Any = train, **settings: Any) -> tt.Result:
    given: dict[str, Any] = {"trials": 2, "max_steps": 2, "workers": 1, "name": "s", "seed": 0, **settings}
    return tt.tune(function, SPACE, minimize="loss", store=folder / "s.db", progress=False, **given)


def test_a_training_function_attaches_values_and_the_last_one_wins(tmp_path: Path) -> None:
    result = tune(tmp_path, attrs={"purpose": "baseline", "x": 1})
    for trial in result.trials:
        assert trial.attrs == {"git": "a1b2c3", "sizes": [2, [2, {"deep": None}]]}
    assert result.attrs == {"purpose": "baseline", "x": 1}
    assert tune(tmp_path, attrs={"purpose": "longer"}, trials=3).attrs == {"purpose": "longer", "x": 1}
    loaded = tt.load("s", tmp_path / "s.db")
    assert loaded.attrs == {"purpose": "longer", "x": 1}
    frame = loaded.result.to_pandas()
    assert list(frame["git"]) == ["a1b2c3"] * 3
    shown = CliRunner().invoke(cli, ["show", "s", "--trial", "0", "--store", str(tmp_path / "s.db")]).output
    assert "a1b2c3" in shown


def failing(trial: tt.Trial) -> float:
    trial.set_attr("model", object())
    return 1.0


def test_a_value_that_json_cannot_hold_fails_the_trial(tmp_path: Path) -> None:
    result = tune(tmp_path, failing, trials=1, retries=0, on_failure="go_on")
    assert "attribute 'model': a value of type object cannot be written as JSON" in (result.trials[0].error or "")


def test_attributes_are_set_from_outside_also_after_the_study(tmp_path: Path) -> None:
    tune(tmp_path, trials=1)
    study = tt.load("s", tmp_path / "s.db")
    study.set_attr("verdict", {"ok": True}, trial=0)
    study.set_attr("ticket", 7)
    assert study.trials[0].attrs["verdict"] == {"ok": True}
    again = tt.load("s", tmp_path / "s.db")
    assert again.attrs == {"ticket": 7}
    again.set_attr("git", "other", again.trials[0])
    assert study.trials[0].attrs["git"] == "other"
    with pytest.raises(SettingError, match="set_attr: study 's' has no trial 5; its only trial is 0"):
        study.set_attr("a", 1, trial=5)
    with open_store(tmp_path / "s.db") as store, store.drive("s"), pytest.raises(StudyBusy):
        study.set_attr("a", 1)


def test_ask_and_tell_attaches_values(tmp_path: Path) -> None:
    study = tt.Study(SPACE, minimize="loss", name="s", store=tmp_path / "s.db")
    trial = study.ask()
    study.set_attr("host", "a", trial)
    study.tell(trial, 0.5)
    study.set_attr("host", "b", trial)
    assert tt.load("s", tmp_path / "s.db").trials[0].attrs == {"host": "b"}


def test_a_command_attaches_values(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    code = (
        "import thriftune; trial = thriftune.current_trial(); "
        "trial.set_attr('git', 'a1b2c3'); trial.report(loss=trial['x'])"
    )
    file.write_text(
        f"""
        command = ["{sys.executable}", "-c", "{code}"]
        minimize = "loss"
        trials = 1
        workers = 1
        store = "s.db"
        attrs = {{ purpose = "baseline" }}

        [space.x]
        type = "float"
        low = 0.0
        high = 1.0
        """
    )
    done = CliRunner().invoke(cli, ["run", str(file), "--quiet"])
    assert done.exit_code == 0, done.output
    study = tt.load("study", tmp_path / "s.db")
    assert study.trials[0].attrs == {"git": "a1b2c3"}
    assert study.attrs == {"purpose": "baseline"}


def test_columns_of_attributes_do_not_replace_other_columns() -> None:
    pytest.importorskip("pandas")
    spec = studies.spec()
    entries = [*studies.log(), *(ev.AttributeSet(111.0, name, [1], 0) for name in ("lr", "note", "state"))]
    frame = tt.Result(spec, studies.fold(entries, spec)).to_pandas()
    assert frame["attrs_lr"][0] == [1]
    assert frame["note"][0] == [1]
    assert frame["attrs_state"][0] == [1]
    assert frame["note"].isna()[1]


@pytest.mark.parametrize("value", [1, 0.5, "a", None, True, [1, [2]], {"a": {"b": 1}}])
def test_json_values_do_not_change(value: object) -> None:
    assert checked_attribute("a", value) == value


def test_values_are_converted_to_json() -> None:
    assert checked_attribute("a", np.float32(0.5)) == 0.5
    assert checked_attribute("a", np.arange(3)) == [0, 1, 2]
    assert checked_attribute("a", {1: (2,)}) == {"1": [2]}
    assert math.isnan(checked_attribute("a", float("nan")))


def test_invalid_attributes_are_refused_with_a_hint() -> None:
    with pytest.raises(SettingError, match="attribute: 3 is not a name"):
        checked_attribute(3, 1)
    with pytest.raises(SettingError, match="attribute: '' is not a name"):
        checked_attribute("", 1)
    with pytest.raises(
        SettingError, match=r"attribute 'a': a value of type PosixPath cannot be written as JSON .*; give numbers"
    ):
        checked_attribute("a", Path("/tmp"))
    circular: list[Any] = []
    circular.append(circular)
    with pytest.raises(SettingError, match="cannot be written as JSON"):
        checked_attribute("a", circular)
    with pytest.raises(SettingError, match="bytes as JSON, and the limit is 65536; write the value to a file"):
        checked_attribute("a", "x" * LARGEST_BYTES)
    with pytest.raises(SettingError, match="attrs: 3 is not a dict"):
        checked_attributes(3)
    assert checked_attributes(None) == {}


def test_setting_an_equal_attribute_changes_nothing() -> None:
    attributes: dict[str, Any] = {}
    assert set_attribute(attributes, "a", 1)
    assert not set_attribute(attributes, "a", 1)
    assert set_attribute(attributes, "a", True)
    assert set_attribute(attributes, "b", math.nan)
    assert not set_attribute(attributes, "b", math.nan)


def test_an_ended_attempt_cannot_set_attributes() -> None:
    table = Table(retries=1)
    table(ev.AttributeSet(table.now, "note", 1, 0, 1))
    table.fail(0)
    assert table.dropped(ev.AttributeSet(table.now, "note", 2, 0, 1))
    assert table.dropped(ev.AttributeSet(table.now, "note", 2, 7))
    table(ev.AttributeSet(table.now, "note", 3, 0))
    assert table.trial(0).attrs == {"note": 3}
