"""Is what a user says about knobs and options right? Asked before anything runs; loads the knobs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from thriftune.errors import SettingError
from thriftune.system.knobs import BUILT_IN, GpuPower, Knob, MemoryLimit
from thriftune.system.known_work import key

_METHODS = ("values", "apply", "restore")
_CLASSES: Mapping[str, Any] = {**BUILT_IN, MemoryLimit.name: MemoryLimit, GpuPower.name: GpuPower}
_WORDS = re.compile(r"[\w-]+( [\w-]+)*")
_IN_WORDS = "must be a word of letters, digits, _ and -"
MOST_VALUES = 100
"""Each may be looked at, for a window of a trial; and what is best is sought among them after every window."""


def check_knobs(knobs: Sequence[str | Knob]) -> None:
    for knob in knobs:
        if not isinstance(knob, str):
            _check_own(knob)
        elif knob not in BUILT_IN:
            raise SettingError(f"system: knobs: {knob!r} is not known; use one of {', '.join(BUILT_IN)}")


def check_options(options: Mapping[str, Sequence[Any]]) -> None:
    for name, values in options.items():
        if not is_word(name):
            raise SettingError(f"system: options: the name {name!r} {_IN_WORDS}, such as 'loaders'")
        plain = isinstance(values, Sequence) and not isinstance(values, (str, bytes))
        if not plain or not all(isinstance(each, (str, int, float)) for each in values) or len(values) < 2:
            raise SettingError(
                f"system: options: {name}: {values!r} must be a list of at least two numbers, strings or "
                "truth values, the usual one first"
            )
        _check_few("options", name, values)
        _check_plain("options", name, values)
        if len(set(values)) < len(values):  # 1, 1.0 and True are equal, and could not be told apart
            raise SettingError(
                f"system: options: {name}: {values!r} must be different values, such as [0, 2]; "
                "some of these are equal"
            )


def check_apart(knobs: Sequence[str | Knob], options: Mapping[str, Sequence[Any]]) -> None:
    """That no name is given twice. The process of a trial has all that are built in, whether they may be turned or
    not, so that an option cannot have the name of one of these, either."""
    names = [*(knob if isinstance(knob, str) else knob.name for knob in knobs), *options]
    if twice := {name for name in names if names.count(name) > 1}:
        raise SettingError(f"system: {', '.join(sorted(twice))}: there is more than one of that name")
    for name in options:
        if name in BUILT_IN:
            raise SettingError(
                f"system: options: {name!r} is the name of a built-in knob; take another, such as 'my {name}'"
            )


def is_word(name: object) -> bool:
    """Or several, with a space between: it is shown in lines and tables."""
    return isinstance(name, str) and _WORDS.fullmatch(name) is not None


def _check_own(knob: Any) -> None:
    if isinstance(knob, type):
        raise SettingError(f"system: knobs: {knob.__name__} is a class; give an object, {knob.__name__}()")
    name = getattr(knob, "name", None)
    if not isinstance(name, str) or not all(callable(getattr(knob, each, None)) for each in _METHODS):
        raise SettingError(f"system: knobs: {knob!r} must have a name, and {', '.join(_METHODS)}")
    if not is_word(name):
        raise SettingError(f"system: knobs: the name {name!r} {_IN_WORDS}, such as 'cache'")
    if name in _CLASSES and not isinstance(knob, _CLASSES[name]):
        raise SettingError(
            f"system: knobs: {name!r} is the name of a built-in knob; take another, such as 'my {name}'"
        )
    _check_plain("knobs", name, _values(knob))


def _values(knob: Knob) -> Sequence[Any]:
    try:
        values = knob.values(1)
    except (Exception, SystemExit) as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise SettingError(
            f"system: knobs: {knob.name}: values() must return a list, such as ['on']; it raised {said}"
        ) from error
    if not isinstance(values, Sequence) or isinstance(values, (str, bytes)):
        raise SettingError(
            f"system: knobs: {knob.name}: values() must return a list, such as ['on']; it returned {values!r}"
        )
    _check_few("knobs", knob.name, values)
    return values


def _check_few(setting: str, name: str, values: Sequence[Any]) -> None:
    if len(values) > MOST_VALUES:
        raise SettingError(
            f"system: {setting}: {name}: {len(values)} values are too many, as each may be tried for a while; "
            f"give {MOST_VALUES} at most"
        )


def _check_plain(setting: str, name: str, values: Sequence[Any]) -> None:
    for value in values:
        try:
            key({name: value})
        except SettingError as error:
            raise SettingError(f"system: {setting}: {error}") from None
