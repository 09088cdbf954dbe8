"""Read deadlines: a duration, or a date and time."""

from __future__ import annotations

import datetime
import re
from dataclasses import replace
from typing import NamedTuple
from zoneinfo import ZoneInfo

from thriftune.common.durations import Duration, seconds
from thriftune.common.formatting import format_seconds, format_time
from thriftune.errors import SettingError
from thriftune.state.spec import Spec

Deadline = Duration | datetime.datetime

_MOMENT = re.compile(r"(\d{4}-\d{2}-\d{2})[ T]+(\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)\s*(\S*)")
_OFFSET = re.compile(r"Z|[+-]\d{2}:?\d{2}", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_CLOCK = re.compile(
    r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:\s*[AaPp]\.?[Mm]\.?|\s*Z|\s*[+-]\d{2}:?\d{2}|\s+\S+)?"
)
_LIKE = "'2026-11-20 09:00', '2026-11-20 09:00 Europe/Berlin' or '2026-11-20 09:00 +01:00'"


_LATEST = 1e11
"""Unix seconds, in the year 5138: the latest time that a log can hold."""


_LONG_AGO_SECONDS = 2 * 86_400.0
"""From two days on, times are easier to read in days than in hours."""


class When(NamedTuple):
    """A deadline, as a duration or as a time; at most one of them is given."""

    seconds: float | None  # during which the study is driven, in all
    at: float | None  # unix seconds


def parse_deadline(given: Deadline | None) -> When:
    """Read a deadline as users write it: "20m", "2026-11-20 09:00 Europe/Berlin", a datetime and others.

    A time without a zone is this machine's local time.
    """
    try:
        when = _parsed(given)
    except SettingError:
        raise
    except (ValueError, OverflowError) as error:
        raise SettingError(f"deadline: {given!r} cannot be used ({error}); write a time like {_LIKE}") from None
    if when.at is not None and not 0 <= when.at < _LATEST:
        raise SettingError(f"deadline: {given!r} is too early or too late; write a time like {_LIKE}")
    return when


def _parsed(given: Deadline | None) -> When:
    if isinstance(given, datetime.datetime):
        return When(None, given.timestamp())
    if isinstance(given, str) and (found := _MOMENT.fullmatch(given.strip())):
        return When(None, _moment(given, *found.groups()))
    if isinstance(given, str) and _DATE.fullmatch(given.strip()):
        raise SettingError(f"deadline: {given!r} has no time of day; write it like {_LIKE}")
    if isinstance(given, str) and _CLOCK.fullmatch(given.strip()):
        raise SettingError(f"deadline: {given!r} is a time without a date; write it like {_LIKE}")
    try:
        return When(seconds("deadline", given), None)
    except SettingError as error:
        raise SettingError(f"{error}; or a time like {_LIKE}") from None


def _moment(given: str, day: str, clock: str, zone: str) -> float:
    hour, _, rest = clock.partition(":")
    try:
        local = datetime.datetime.fromisoformat(f"{day} {hour:0>2}:{rest}")
    except ValueError as error:
        raise SettingError(
            f"deadline: {given!r} is not a date and time ({error}); write it like {_LIKE}"
        ) from None
    if not zone:
        return local.timestamp()
    if _OFFSET.fullmatch(zone):
        return datetime.datetime.fromisoformat(f"{local.isoformat()}{zone.upper()}").timestamp()
    try:
        return local.replace(tzinfo=ZoneInfo(zone)).timestamp()
    except (KeyError, ValueError, OSError):  # ZoneInfo raises these for unknown or invalid names
        raise SettingError(
            f"deadline: {zone!r} in {given!r} is not a time zone that this machine knows; write the offset, "
            "such as +01:00"
        ) from None


def check_ahead(spec: Spec, now: float) -> None:
    """Raise SettingError if the deadline is a time that has passed."""
    if spec.deadline_at is not None and spec.deadline_at <= now:
        late = now - spec.deadline_at
        ago = format_seconds(late) if late < _LONG_AGO_SECONDS else f"{late / 86400:.0f} days"
        raise SettingError(f"deadline: {format_time(spec.deadline_at)} was {ago} ago; give a later one")


def as_duration(spec: Spec, now: float, driven_seconds: float = 0.0) -> Spec:
    """Return the spec with its deadline as a duration, as plans need it.

    A spec whose deadline is not a time, or has passed, is returned as it is. `driven_seconds`: for how long the
    study was driven before.
    """
    if spec.deadline_at is None or spec.deadline_at <= now:
        return spec
    return replace(spec, deadline_at=None, deadline_seconds=driven_seconds + spec.deadline_at - now)
