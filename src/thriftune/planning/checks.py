"""Is it a number that makes sense?"""

from __future__ import annotations

import math

from thriftune.errors import SettingError


def check_number(what: str, value: object, *, above_zero: bool = False) -> None:
    """Finite, and 0 or more."""
    right = isinstance(value, (int, float)) and not isinstance(value, bool) and 0.0 <= value < math.inf
    if not right or (above_zero and not value):
        raise SettingError(
            f"{what}: {value!r} must be a finite number, {'above 0' if above_zero else '0 or more'}"
        )
