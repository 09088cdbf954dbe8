"""Convert knob settings to text keys and back. Keys identify settings."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Mapping
from typing import Any

from thriftune.errors import SettingError

KnobSetting = Mapping[str, Any]
"""A value for each knob that is applied, and for each option that does not have its usual value."""

NOTHING_APPLIED = "{}"
"""The key of the setting without any knob."""


def key(setting: KnobSetting) -> str:
    """Return the key of a setting, a text. Equal settings have the same key.

    Raises SettingError for a value that is not plain.
    """
    for knob, value in setting.items():
        plain = value is None or isinstance(value, (str, bool)) or is_number(value)
        if not isinstance(knob, str) or not plain:
            raise SettingError(
                f"{knob}: {value!r} is no plain value; use a text, a finite number, True, False or None"
            )
    return json.dumps(dict(setting), sort_keys=True, separators=(",", ":"))


def setting_of(text: str) -> dict[str, Any]:
    """Return the setting with this key."""
    if not is_key(text):
        raise SettingError(f"{text!r} is not the key of a setting; use key(setting)")
    setting: dict[str, Any] = json.loads(text)
    return setting


def describe(setting: KnobSetting) -> str:
    """Return the setting as users read it, such as "threads 4"."""
    return ", ".join(f"{name} {value}" for name, value in setting.items()) or "no knob"


@functools.lru_cache(maxsize=10_000)  # a study has few settings, and each is checked often
def is_key(text: str) -> bool:
    """Return whether the text is the key of a setting."""
    try:
        setting = json.loads(text)
        return isinstance(setting, dict) and key(setting) == text
    except (ValueError, RecursionError):
        return False


def is_number(value: object) -> bool:
    """Return whether the value is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
