"""Are a rule's options what they must be?"""

from __future__ import annotations

from thriftune.errors import SettingError


def check_whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise SettingError(f"{name} {value!r} must be a whole number, at least {least}")


def check_share(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 < value <= 1.0:
        raise SettingError(f"{name} {value!r} must be above 0 and at most 1")
