"""Check the knobs and options that a user gives, before a study runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from thriftune.errors import SettingError
from thriftune.system import removed
from thriftune.system.knob_settings import key
from thriftune.system.knobs import BUILT_IN, Knob

_METHODS = ("values", "apply", "restore")
_NAME = re.compile(r"[\w-]+( [\w-]+)*")  # names are shown in lines and tables
_NAME_RULE = "must be a word of letters, digits, _ and -"

MOST_VALUES = 100
"""The most values of a knob. A trial may probe each value for a window, and every decision compares all values."""


def check_knobs_and_options(knobs: Sequence[str | Knob], options: Mapping[str, Sequence[Any]]) -> None:
    for knob in knobs:
        if not isinstance(knob, str):
            _check_own(knob)
        elif knob in removed.KNOBS:
            raise SettingError(removed.knob_error(knob))
        elif knob not in BUILT_IN:
            raise SettingError(f"system: knobs: {knob!r} is not known; use one of {', '.join(BUILT_IN)}")
    for name, values in options.items():
        _check_option(name, values)
    names = [*(knob if isinstance(knob, str) else knob.name for knob in knobs), *options]
    if twice := {name for name in names if names.count(name) > 1}:
        raise SettingError(f"system: {', '.join(sorted(twice))}: two knobs or options have this name")


def _check_option(name: str, values: Sequence[Any]) -> None:
    if not _is_name(name):
        raise SettingError(f"system: options: the name {name!r} {_NAME_RULE}, such as 'loaders'")
    if name in BUILT_IN:  # a trial's process has all built-in knobs, whether or not they are used
        raise SettingError(f"system: options: {name!r} is the name of a built-in knob; rename it to 'my {name}'")
    plain = isinstance(values, Sequence) and not isinstance(values, (str, bytes))
    if not plain or not all(isinstance(each, (str, int, float)) for each in values) or len(values) < 2:
        raise SettingError(
            f"system: options: {name}: {values!r} must be a list of at least two numbers, strings or "
            "truth values, the usual one first"
        )
    _check_values("options", name, values)
    if len(set(values)) < len(values):  # 1, 1.0 and True are equal, and could not be distinguished
        raise SettingError(
            f"system: options: {name}: {values!r} must be different values, such as [0, 2]; some are equal"
        )


def _check_own(knob: Any) -> None:
    if isinstance(knob, type):
        raise SettingError(f"system: knobs: {knob.__name__} is a class; give an object, {knob.__name__}()")
    name = getattr(knob, "name", None)
    if not isinstance(name, str) or not all(callable(getattr(knob, each, None)) for each in _METHODS):
        raise SettingError(f"system: knobs: {knob!r} must have a name, and {', '.join(_METHODS)}")
    if not _is_name(name):
        raise SettingError(f"system: knobs: the name {name!r} {_NAME_RULE}, such as 'cache'")
    built_in: Any = BUILT_IN.get(name)
    if built_in is not None and not isinstance(knob, built_in):
        raise SettingError(f"system: knobs: {name!r} is the name of a built-in knob; rename it to 'my {name}'")
    _check_values("knobs", name, _values(knob))


def _values(knob: Knob) -> Sequence[Any]:
    try:
        values = knob.values(1)
    except (Exception, SystemExit) as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise SettingError(
            f"system: knobs: {knob.name}: values() must return a list, such as ['on']; it raised {text}"
        ) from error
    if not isinstance(values, Sequence) or isinstance(values, (str, bytes)):
        raise SettingError(
            f"system: knobs: {knob.name}: values() must return a list, such as ['on']; it returned {values!r}"
        )
    return values


def _check_values(setting: str, name: str, values: Sequence[Any]) -> None:
    if len(values) > MOST_VALUES:
        raise SettingError(
            f"system: {setting}: {name}: {len(values)} values are too many, as each may be tried for a while; "
            f"give {MOST_VALUES} at most"
        )
    for value in values:
        try:
            key({name: value})
        except SettingError as error:
            raise SettingError(f"system: {setting}: {error}") from None


def _is_name(name: object) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None
