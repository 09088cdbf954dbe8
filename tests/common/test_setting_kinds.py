"""Kinds of settings check values, and dataclasses declare settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from thriftune.common.setting_kinds import (
    FLAG,
    Kind,
    choice,
    metadata_of,
    positive_number,
    setting,
    settings_of,
    whole_number,
)
from thriftune.errors import SettingError


@dataclass(frozen=True, kw_only=True)
class Base:
    trials: int | None = setting(None, whole_number(1), "How many trials.", group="Limits", at_resume=True)
    mode: str = setting("stop", choice("stop", "go_on"), "What to do.", group="Failures")
    plain: int = 3


@dataclass(frozen=True)
class Derived(Base):
    mode: str = field(default="go_on", kw_only=True, metadata=metadata_of(Base, "mode"))


def test_settings_are_the_declared_fields_in_order() -> None:
    trials, mode = settings_of(Base).values()
    assert (trials.name, trials.default, trials.group, trials.at_resume) == ("trials", None, "Limits", True)
    assert (mode.name, mode.default, mode.help, mode.at_resume) == ("mode", "stop", "What to do.", False)


def test_a_subclass_may_change_a_default() -> None:
    assert settings_of(Derived)["mode"].default == "go_on"
    assert settings_of(Derived)["mode"].kind is settings_of(Base)["mode"].kind
    assert Derived().mode == "go_on"


@pytest.mark.parametrize(
    ("kind", "good", "bad", "message"),
    [
        (whole_number(1), 1, 0, "x: 0 is too small; use 1 or more"),
        (whole_number(0), 0, 1.0, "x: 1.0 must be a whole number, at least 0; write 1"),
        (positive_number(), 0.1, 0, "x: 0 must be above zero and finite"),
        (positive_number(), 3, "3", "x: '3' must be a number"),
        (positive_number(), 3, True, "x: True must be a number"),
        (positive_number(), 3, float("inf"), "x: inf must be above zero and finite"),
        (FLAG, True, 1, "x: 1 must be True or False"),
        (choice("a", "b", "c"), "b", "d", "x: 'd' must be 'a', 'b' or 'c'"),
    ],
)
def test_kinds_check_values(kind: Kind, good: Any, bad: Any, message: str) -> None:
    kind.check("x", good)
    with pytest.raises(SettingError) as error:
        kind.check("x", bad)
    assert str(error.value) == message
