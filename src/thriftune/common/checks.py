"""Check single values of settings."""

from __future__ import annotations

import math

from thriftune.errors import SettingError

LATEST_AT = 1e11
"""Unix seconds, in the year 5138. Not every system can show later times as a date."""

LARGEST_INT = 10**308
"""Larger whole numbers cannot be converted to a float, as plots and stopping rules do."""


def check_number(what: str, value: object, *, above_zero: bool = False) -> None:
    """Raise SettingError unless the value is a finite number, 0 or more; with `above_zero`, above 0."""
    is_valid = isinstance(value, (int, float)) and not isinstance(value, bool) and 0.0 <= value < math.inf
    if not is_valid or (above_zero and not value):
        raise SettingError(
            f"{what}: {value!r} must be a finite number, {'above 0' if above_zero else '0 or more'}"
        )


def check_whole(name: str, value: object, least: int) -> None:
    """Raise SettingError unless the value is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        hint = f"; write {value:.0f}" if isinstance(value, float) and value.is_integer() else ""
        raise SettingError(f"{name}: {value!r} must be a whole number, at least {least}{hint}")
    if value < least:
        raise SettingError(f"{name}: {value} is too small; use {least} or more")


def check_fraction(name: str, value: object) -> None:
    """Raise SettingError unless the value is a number above 0 and at most 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 < value <= 1.0:
        raise SettingError(f"{name}: {value!r} must be above 0 and at most 1")
