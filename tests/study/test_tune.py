"""Tests of the arguments of tune()."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import thriftune as tt
from thriftune.errors import SettingError

SPACE = {"x": tt.Float(0.0, 1.0)}


def square(trial: tt.Trial) -> None:
    trial.report(loss=trial["x"] ** 2)


def test_the_function_and_the_space_may_be_keyword_arguments(tmp_path: Path) -> None:
    result = tt.tune(train=square, space=SPACE, minimize="loss", trials=2, workers=1, store=tmp_path / "s.db")
    assert len(result.trials) == 2


def test_the_signature_has_the_arguments_and_the_result() -> None:
    signature = inspect.signature(tt.tune)
    assert {"train", "space", "minimize", "trials", "store", "on_report"} <= signature.parameters.keys()
    assert signature.return_annotation == "Result"
    assert tt.tune.__name__ == "tune"
    assert inspect.unwrap(tt.tune) is tt.tune
    assert tt.tune.__annotations__["trials"] == "int | None"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"minimise": "loss"},
            r"tune\(\) got an unexpected keyword argument 'minimise'; did you mean 'minimize'\?",
        ),
        ({"a": 1, "minimise": "loss"}, "did you mean 'minimize'"),
        ({"zzz": 1}, r"tune\(\) got an unexpected keyword argument 'zzz'$"),
        ({"train": square}, r"tune\(\): multiple values for argument 'train'"),
    ],
)
def test_an_unknown_argument_is_an_error_with_the_nearest_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        tt.tune(square, SPACE, **arguments)


def test_a_missing_space_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"tune\(\): missing a required argument: 'space'"):
        tt.tune(square)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fresh": 1}, "fresh: 1 must be True or False"),
        ({"retry_failed": "yes"}, "retry_failed: 'yes' must be True or False"),
        ({"on_change": "ask"}, "on_change: 'ask' must be 'stop' or 'go_on'"),
    ],
)
def test_arguments_that_are_not_stored_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        tt.tune(square, SPACE, minimize="loss", trials=1, **arguments)
