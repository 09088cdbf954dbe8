"""Check the keys of tables in study files, and the types of their values."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from thriftune.common.setting_kinds import Kind
from thriftune.errors import SettingError


def check_key(key: str, value: object, kinds: Mapping[str, Kind]) -> None:
    """Raise SettingError unless a table of a study file may have this key with such a value."""
    if key not in kinds:
        close = get_close_matches(key, kinds, n=1)
        hint = f"did you mean {close[0]}?" if close else f"it may have {', '.join(kinds)}"
        raise SettingError(f"{key}: unknown; {hint}")
    kind = kinds[key]
    if not isinstance(value, kind.types) or (isinstance(value, bool) and bool not in kind.types):
        raise SettingError(f"{key}: {value!r} must be {kind.description}")
