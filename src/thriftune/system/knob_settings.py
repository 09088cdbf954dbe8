"""Knob settings as text keys: the form in which logs and files name them."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Mapping
from typing import Any

from thriftune.errors import SettingError

KnobSetting = Mapping[str, Any]
"""A value for each knob that is applied, and for each option that is not at its usual value."""

NOTHING_APPLIED = "{}"
"""The key of the setting without any knob."""


def key(setting: KnobSetting) -> str:
    """Return the setting as text; equal settings have the same text."""
    for knob, value in setting.items():
        plain = value is None or isinstance(value, (str, bool)) or is_number(value)
        if not isinstance(knob, str) or not plain:
            raise SettingError(
                f"{knob}: {value!r} is no plain value; use a text, a finite number, True, False or None"
            )
    return json.dumps(dict(setting), sort_keys=True, separators=(",", ":"))


def setting_of(text: str) -> dict[str, Any]:
    """Return the setting that has this key."""
    if not is_key(text):
        raise SettingError(f"{text!r} is not the key of a setting; use key(setting)")
    setting: dict[str, Any] = json.loads(text)
    return setting


def describe(setting: KnobSetting) -> str:
    """Return the setting in words."""
    return ", ".join(f"{name} {value}" for name, value in setting.items()) or "no knob"


@functools.lru_cache(maxsize=10_000)  # a study has few settings, and asks for them again and again
def is_key(text: str) -> bool:
    try:
        setting = json.loads(text)
        return isinstance(setting, dict) and key(setting) == text
    except (ValueError, RecursionError):
        return False


def is_number(value: object) -> bool:
    """Return whether the value is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
