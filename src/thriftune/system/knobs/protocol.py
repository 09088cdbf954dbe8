"""The protocol of a knob: something about its machine that a running trial may change between steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class CannotTurn(Exception):
    """Raised where this machine or process does not allow a value; the message says why."""


class Knob(Protocol):
    """One system parameter that a running trial may change between steps. Users may write their own.

    A subclass inherits the three flags below. A knob is only used if the user names it, or if it is one of the
    defaults, which do not change results.
    """

    name: str
    restarts: bool = False
    """The knob can only be applied before an attempt begins, not between its steps."""
    lasts: bool = False
    """The knob stays applied as long as the process lives: restore() only restores what can be restored."""
    again: bool = False
    """Call apply() before every window, also with the same value: libraries may have been loaded since. apply()
    must be quick then."""

    def values(self, cores: int) -> Sequence[Any]:
        """Return the values that a trial with this many cores may try, without the usual state.

        Values are strings, numbers or truth values.
        """
        ...

    def apply(self, value: Any) -> None:
        """Apply the value in this process.

        Raise CannotTurn(why) where this machine or process does not allow it, and change nothing then.
        """
        ...

    def restore(self) -> None:
        """Restore the state before the first apply(). May be called without an apply(), and twice."""
        ...


def powers_of_two(below: int) -> list[int]:
    return [1 << i for i in range(below.bit_length()) if 1 << i < below]


def whole(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise CannotTurn("it must be a whole number of 1 or more")
    return value
