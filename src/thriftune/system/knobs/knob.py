"""What is a knob? The protocol, and what those that come with thriftune have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from thriftune.errors import SettingError


class CannotTurn(Exception):
    """This machine, or this process, does not allow it; the message says why."""


class Knob(Protocol):
    """One thing about the machine that a running trial may change between steps. Users may write their own.

    A class that inherits from this one may be turned between steps, and is left alone while its value stays the
    same, unless it says otherwise. None is turned unless it is named, or changes no results.
    """

    name: str
    restarts: bool = False
    """It can only be turned before an attempt begins, not between its steps."""
    lasts: bool = False
    """Once turned, it stays so as long as the process lives: restore() only puts back what can be."""
    again: bool = False
    """apply() shall be called between any two steps, with the same value, too: it is about libraries, and more of
    them may have been loaded since. It has to be quick, then."""

    def values(self, cores: int) -> Sequence[Any]:
        """What may be tried where a trial may use so many cores: texts, numbers or truth values; as things are
        unturned is not among them."""
        ...

    def apply(self, value: Any) -> None:
        """Raises CannotTurn(why) where this machine or process does not allow it, leaving things as they were."""
        ...

    def restore(self) -> None:
        """As it was before the first apply(). May be called without one, and twice."""
        ...


def powers_of_two(below: int) -> list[int]:
    return [1 << i for i in range(below.bit_length()) if 1 << i < below]


def whole(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise CannotTurn("it must be a whole number of 1 or more")
    return value


def one_of(value: Any, *known: str) -> None:
    if value not in known:
        raise CannotTurn(f"it can be {' or '.join(known)}")


def given(knob: str, numbers: Any, unit: str) -> tuple[int, ...]:
    """What a user wants to be tried: one number, or several."""
    values = tuple(numbers) if isinstance(numbers, Sequence) and not isinstance(numbers, str) else (numbers,)
    if not values:
        raise SettingError(f"{knob}: nothing is given to be tried; give a number of {unit}, or several")
    for value in values:
        if type(value) is not int or value < 1:
            raise SettingError(f"{knob}: {value!r} is no number of {unit}; give a whole one above 0, or several")
    return values
