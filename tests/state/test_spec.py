"""Tests of specs: invalid settings, JSON, and changes of a study."""

from __future__ import annotations

import datetime
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from thriftune.common.durations import seconds
from thriftune.errors import SettingError
from thriftune.space.objectives import Constraint, Objective
from thriftune.space.parameters import Choice, Float, Int
from thriftune.space.space import Space
from thriftune.state.spec import Spec, Target
from thriftune.training.command_line import command_target

PARAMETERS: dict[str, Float | Int | Choice] = {
    "opt": Choice(["sgd", "adam"]),
    "lr": Float(1e-4, 1e-1, log=True),
    "m": Float(0, 1, when={"opt": "sgd"}),
}
SPACE = Space(PARAMETERS)
LOSS = (Objective("loss", False),)
SEVERAL = (Objective("loss", False), Objective("accuracy", True))
FAST = Constraint("latency_ms", 10.0, True)


def spec(**settings: Any) -> Spec:
    given: dict[str, Any] = {"name": "a", "space": SPACE, "objectives": LOSS, "seed": 0}
    return Spec(**{**given, **settings})


# --- settings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "7", "digits-2.1_b", "x" * 100])
def test_names(name: str) -> None:
    assert spec(name=name).name == name


@pytest.mark.parametrize("name", ["", "..", "-a", "a/b", "a b", "a\n", "é", "x" * 101, None, 3])
def test_invalid_names(name: Any) -> None:
    with pytest.raises(SettingError, match=r"name: .* must be letters, digits"):
        spec(name=name)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objectives": (Objective("", False),)}, "the metric to optimise must be a name, not ''"),
        ({"objectives": ()}, "there is no metric to optimise; name at least one"),
        ({"objectives": LOSS * 2}, "loss: is named twice; name each metric once, in minimize or in maximize"),
        ({"trials": 0}, "trials: 0 is too small; use 1 or more"),
        ({"trials": 1.5}, "trials: 1.5 must be a whole number, at least 1"),
        ({"trials": True}, "trials: True must be a whole number, at least 1"),
        ({"trials": "9"}, "trials: '9' must be a whole number, at least 1"),
        ({"max_steps": 0}, "max_steps: 0 is too small; use 1 or more"),
        ({"retries": -1}, "retries: -1 is too small; use 0 or more"),
        ({"retries": None}, "retries: None must be a whole number, at least 0"),
        ({"workers": 0}, "workers: 0 is too small; use 1 or more"),
        ({"workers": None}, "workers: None must be a whole number, at least 1"),
        ({"keep": 1}, "keep: 1 is too small; use 2 or more"),
        ({"seed": -1}, "seed: -1 is too small; use 0 or more"),
        ({"seed": None}, "seed: None must be a whole number, at least 0"),
        ({"deadline_seconds": 0}, "deadline: 0 must be above zero and finite"),
        ({"deadline_seconds": math.inf}, "deadline: inf must be above zero and finite"),
        ({"timeout_seconds": -1}, "timeout: -1 must be above zero and finite"),
        ({"timeout_seconds": math.nan}, "timeout: nan must be above zero and finite"),
        ({"budget_dollars": 0.0}, "budget: 0.0 must be above zero and finite"),
        ({"budget_dollars": "15"}, "budget: '15' must be a number"),
        ({"budget_dollars": True}, "budget: True must be a number"),
        ({"disk_full": "panic"}, "disk_full: 'panic' must be 'stop' or 'go_on'"),
    ],
)
def test_invalid_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError) as error:
        spec(**settings)
    assert str(error.value) == message


# --- durations --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (90, 90.0),
        (0.5, 0.5),
        ("90", 90.0),
        ("1.5", 1.5),
        ("90s", 90.0),
        ("20m", 1200.0),
        ("1h30m", 5400.0),
        (" 1h 30m ", 5400.0),
        ("1.5h", 5400.0),
        ("2d", 172_800.0),
        (datetime.timedelta(minutes=2), 120.0),
    ],
)
def test_durations(value: Any, expected: float | None) -> None:
    assert seconds("deadline", value) == expected


@pytest.mark.parametrize("value", ["", "soon", "20 minutes", "-5m", "1h30", "m", "1,5h", "inf", True, [], b"90"])
def test_invalid_durations(value: Any) -> None:
    with pytest.raises(SettingError, match=r"deadline: .* is not a duration; write seconds, or '90s', '20m'"):
        seconds("deadline", value)


# --- the written form -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        spec(),
        spec(
            objectives=SEVERAL,
            constraints=(FAST, Constraint("val/accuracy top 1", -0.125, False)),
            seed=2**32,
            searcher="grid",
            searcher_options={"points": 3},
            target=Target("command", command=("echo", "{lr}"), patterns={"loss": "(.*)"}, folder="/tmp"),
            trials=9,
            max_steps=5,
            deadline_seconds=60.0,
            budget_dollars=1.5,
            timeout_seconds=3.0,
            retries=0,
            workers=8,
            storage="/tmp/x",
            keep=5,
            disk_full="go_on",
        ),
        spec(target=Target("pickled", where="/tmp/f.pickle", folder="/tmp", paths=("/a", "/b"))),
    ],
)
def test_a_spec_survives_json(given: Spec) -> None:
    assert Spec.from_json(json.loads(json.dumps(given.to_json()))) == given


def test_json_of_objectives_and_constraints() -> None:
    data = spec(objectives=SEVERAL, constraints=(FAST,)).to_json()
    assert data["objectives"] == [["loss", False], ["accuracy", True]]
    assert data["constraints"] == ["latency_ms <= 10"]


@pytest.mark.parametrize("maximize", [False, True])
def test_old_specs_with_a_single_metric_are_read(maximize: bool) -> None:
    data = spec(objectives=(Objective("loss", maximize),)).to_json()
    del data["objectives"], data["constraints"]
    read = Spec.from_json({**data, "metric": "loss", "maximize": maximize})
    assert read == spec(objectives=(Objective("loss", maximize),))
    assert (read.metric, read.maximize, read.needed_metrics) == ("loss", maximize, ("loss",))


def test_settings_of_a_later_version_are_refused() -> None:
    data = {**spec().to_json(), "zeal": 3, "colour": "red"}
    with pytest.raises(SettingError, match="the study has settings this version does not know: colour, zeal"):
        Spec.from_json(data)


# --- the same question ------------------------------------------------------------------------------------


def test_limits_may_change() -> None:
    there = spec(trials=5, seed=3, searcher="random")
    given = spec(trials=9, seed=4, searcher="sobol", workers=4, retries=3, deadline_seconds=9.0)
    assert there.difference(given) == []
    now = there.with_limits_of(given)
    assert (now.trials, now.searcher, now.workers, now.retries, now.deadline_seconds) == (9, "sobol", 4, 3, 9.0)
    assert now.seed == 3  # another seed would repeat suggestions


def test_the_definition_may_not_change() -> None:
    error, upwards = (Objective("error", False),), (Objective("loss", True),)
    assert spec().difference(spec(objectives=error)) == ["metric: was loss, is now error"]
    assert spec().difference(spec(objectives=upwards)) == ["direction: was minimize, is now maximize"]
    assert spec().difference(spec(objectives=SEVERAL)) == [
        "objectives: were minimize loss, are now minimize loss, maximize accuracy"
    ]
    assert spec(objectives=SEVERAL).difference(spec(objectives=SEVERAL[::-1])), "another one is the first"
    assert spec().difference(spec(constraints=(FAST,))) == ["constraints: were none, are now latency_ms <= 10"]
    (sentence,) = spec().difference(spec(space=Space({**PARAMETERS, "width": Int(1, 2)})))
    assert "width" in sentence
    other = (Objective("error", True),)
    everything = spec().difference(spec(objectives=other, constraints=(FAST,), space=Space({"x": Float(0, 1)})))
    assert len(everything) > 4


def test_the_order_of_constraints_may_change() -> None:
    bounds = (FAST, Constraint("accuracy", 0.5, False))
    there, given = spec(constraints=bounds), spec(constraints=bounds[::-1])
    assert there.difference(given) == []
    assert there.with_limits_of(given) == there


def test_a_study_is_run_either_by_the_user_or_by_a_driver() -> None:
    """A driver would wait forever for a trial that a user took with ask() and never finished with tell()."""
    given, driven = spec(), spec(target=Target("pickled"))
    assert given.difference(driven) == ["trials: were run by ask and tell, are now run by thriftune"]
    assert driven.difference(given) == ["trials: were run by thriftune, are now run by ask and tell"]
    assert driven.difference(replace(driven, target=Target("function", where="a.py:b"))) == []


# --- commands ---------------------------------------------------------------------------------------------


def test_a_command(tmp_path: Path) -> None:
    target = command_target(["train", "--lr={lr}", "{m}"], {"loss": r"loss=(\S+)"}, SPACE, ["loss"], tmp_path)
    assert target == Target(
        "command", command=("train", "--lr={lr}", "{m}"), patterns={"loss": r"loss=(\S+)"}, folder=str(tmp_path)
    )
    assert str(target) == "train --lr={lr} {m}"


@pytest.mark.parametrize(
    ("command", "patterns", "message"),
    [
        (["train"], {"loss": "("}, r"metrics: loss: '\(' is not a regular expression"),
        (["train"], {"loss": 3}, "metrics: loss: 3 is not a regular expression"),
        (["train"], {"loss": "loss=.*"}, "metrics: loss: 'loss=.*' has 0 groups; put exactly one"),
        (["train"], {"loss": "(.)(.)"}, "metrics: loss: .* has 2 groups"),
        (
            ["train"],
            {"acc": "(.)"},
            "metrics: there is no pattern for 'loss'; every objective",
        ),
        (
            ["train"],
            {"loss": "(.)"},
            "metrics: there is no pattern for 'gap'; every objective",
        ),
    ],
)
def test_invalid_commands(command: Any, patterns: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=message):
        command_target(command, patterns, SPACE, ["loss", "gap"], tmp_path)


@pytest.mark.parametrize(
    ("target", "text"),
    [(Target("outside"), "outside"), (Target("function", where="train.py:train"), "train.py:train")],
)
def test_a_target_as_text(target: Target, text: str) -> None:
    assert str(target) == text


# --- giving up early --------------------------------------------------------------------------------------


def test_the_default_stopping_rule_judges_only_single_objectives_with_max_steps() -> None:
    assert spec(stopping="auto", max_steps=9).judged
    assert not spec(stopping="auto").judged
    assert not spec(stopping="auto", max_steps=9, objectives=SEVERAL).judged
    assert not spec(stopping="auto", max_steps=9, constraints=(FAST,)).judged
    assert spec(stopping="asha", objectives=SEVERAL, constraints=(FAST,)).judged
    assert not spec(stopping="none", max_steps=9).judged


def test_old_specs_without_a_stopping_rule_are_not_judged() -> None:
    written = spec().to_json()
    del written["stopping"], written["stopping_options"]
    assert Spec.from_json(written).stopping == "none"
