"""Read durations as users write them: 90, "90s", "20m", "1h30m", "2d" or a timedelta."""

from __future__ import annotations

import datetime
import re

from thriftune.common.checks import LARGEST_INT
from thriftune.errors import SettingError

Duration = float | str | datetime.timedelta

_SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])\s*")


def seconds(name: str, value: Duration | None) -> float | None:
    """Return a duration in seconds; None for None.

    `name`: the setting, for errors. Raises SettingError.
    """
    if value is None:
        return None
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if isinstance(value, int) and value > LARGEST_INT:
            raise SettingError(f"{name}: {value!r} is too long; write seconds, or '90s', '20m', '1h30m', '2d'")
        return float(value)
    if isinstance(value, str):
        text = value.strip()
        parts = list(_DURATION.finditer(text))
        if parts and "".join(part.group(0) for part in parts) == text:
            return sum(float(part.group(1)) * _SECONDS_PER_UNIT[part.group(2)] for part in parts)
        if re.fullmatch(r"\d+(?:\.\d+)?", text):
            return float(text)
    raise SettingError(f"{name}: {value!r} is not a duration; write seconds, or '90s', '20m', '1h30m', '2d'")
