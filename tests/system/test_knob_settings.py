"""Knob settings as text keys."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thriftune.errors import SettingError
from thriftune.system.knob_settings import NOTHING_APPLIED, describe, key, setting_of

names = st.text(max_size=10)
finite = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | finite | st.text(max_size=10)


@given(st.dictionaries(names, scalars, max_size=3))
def test_a_key_stands_for_its_setting(setting: dict[str, Any]) -> None:
    text = key(setting)
    assert setting_of(text) == setting
    assert [type(value) for value in setting_of(text).values()] == [
        type(setting[name]) for name in sorted(setting)
    ]
    assert key(dict(reversed(setting.items()))) == text
    assert "\n" not in text


def test_keys_do_not_change() -> None:
    assert key({}) == NOTHING_APPLIED == "{}"
    assert key({"threads": 2, "memory": "kept"}) == '{"memory":"kept","threads":2}'


@pytest.mark.parametrize("value", [[1], {"a": 1}, (1,), float("nan"), float("inf"), 10**400, b"x", object()])
def test_a_setting_has_only_plain_values(value: object) -> None:
    with pytest.raises(SettingError, match=r"^threads: .* is no plain value; use a text, a finite number"):
        key({"threads": value})


@pytest.mark.parametrize(
    "text", ['{"a": 1}', '{"b":1,"a":1}', '{"a":[1]}', '{"a":NaN}', "[]", "1", "{", "", "[" * 99999]
)
def test_other_texts_are_no_keys(text: str) -> None:
    with pytest.raises(SettingError, match="is not the key of a setting"):
        setting_of(text)


def test_a_setting_in_words() -> None:
    assert describe({}) == "no knob"
    assert describe({"memory": "kept", "threads": 2}) == "memory kept, threads 2"
