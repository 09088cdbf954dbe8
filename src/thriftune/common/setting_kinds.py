"""Describe settings: the values that each takes, its default, its check and its help."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from thriftune.common.checks import LARGEST_INT, check_whole
from thriftune.errors import SettingError


def _accept(name: str, value: object) -> None:
    """Accept any value."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The values that a setting takes.

    - `types`: the Python types that a value may have in a study file.
    - `description`: completes the sentence "must be ...".
    - `metavar`: the name of the value on the command line. None: the setting is not an option there. Empty: it is
      a flag without a value.
    - `choices`: the only values, if there are few.
    - `check`: raises SettingError for a value that cannot be used. Called with the setting's name and the value,
      which is None only if the setting has another default.
    """

    types: tuple[type, ...]
    description: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[str, Any], None] = _accept


def whole_number(at_least: int) -> Kind:
    """Return the kind of settings that take a whole number, at least `at_least`."""
    return Kind((int,), "a whole number", "N", check=lambda name, value: check_whole(name, value, at_least))


def positive_number(metavar: str = "X") -> Kind:
    """Return the kind of settings that take a finite number above zero."""
    return Kind((int, float), "a number", metavar, check=check_positive)


def choice(*values: str) -> Kind:
    """Return the kind of settings that take one of these words."""
    quoted = [repr(value) for value in values]
    description = f"{', '.join(quoted[:-1])} or {quoted[-1]}"

    def check(name: str, value: object) -> None:
        if value not in values:
            raise SettingError(f"{name}: {value!r} must be {description}")

    return Kind((str,), description, "|".join(values), values, check)


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise SettingError(f"{name}: {value!r} must be True or False")


def check_positive(name: str, value: object) -> None:
    """Raise SettingError unless the value is a finite number above zero."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SettingError(f"{name}: {value!r} must be a number")
    if not 0 < value < LARGEST_INT:
        raise SettingError(f"{name}: {value} must be above zero and finite")


NUMBER = Kind((int, float), "a number", "X")
FLAG = Kind((bool,), "true or false", "", check=_check_flag)
TEXT = Kind((str,), "a string", "NAME")
PATH = Kind((str,), "a path", "PATH")
DURATION = Kind((int, float, str), "seconds, or a string such as '20m'", "TIME")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, as users give it.

    - `group`: the heading under which the help lists it.
    - `at_resume`: whether `thriftune resume` takes it.
    - `python_help`: more help, on values that only Python can give.
    """

    name: str
    default: Any
    kind: Kind
    help: str
    group: str
    at_resume: bool
    python_help: str


def setting(
    default: Any, kind: Kind, help: str, *, group: str, at_resume: bool = False, python_help: str = ""
) -> Any:
    """Declare a keyword-only field of a dataclass as a setting; see settings_of()."""
    described = {"kind": kind, "help": help, "group": group, "at_resume": at_resume, "python_help": python_help}
    return field(default=default, kw_only=True, metadata={"setting": described})


def settings_of(declared: type) -> dict[str, Setting]:
    """Return the settings that a dataclass declares, by name, in order."""
    described = {each.name: each for each in fields(declared) if "setting" in each.metadata}
    return {name: Setting(name, each.default, **each.metadata["setting"]) for name, each in described.items()}


def check_settings(given: object, settings: Mapping[str, Setting]) -> None:
    """Raise SettingError if an attribute of `given` is not a value that the setting of that name takes."""
    for each in settings.values():
        value = getattr(given, each.name)
        if value is not None or each.default is not None:
            each.kind.check(each.name, value)


def metadata_of(declared: type, name: str) -> Mapping[str, Any]:
    """Return the metadata of a setting, for a subclass that gives it another default."""
    return next(each.metadata for each in fields(declared) if each.name == name)
