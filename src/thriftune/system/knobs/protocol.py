"""The protocol of knobs, system parameters that a running trial may change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class CannotTurn(Exception):
    """Raised if this machine or process does not allow a value.

    The message says why.
    """


class Knob(Protocol):
    """One system parameter that a running trial may change between steps.

    Users may write their own knobs. A subclass inherits the three flags below. A knob is used only if the user
    names it, or if it is one of the defaults. The defaults do not change results.
    """

    name: str
    restarts: bool = False
    """The knob can only be applied before an attempt begins, not between its steps."""
    lasts: bool = False
    """The knob stays applied until the process ends. restore() undoes only a part of its effect."""
    again: bool = False
    """apply() is called before every window, even if the value has not changed, because libraries may have been
    loaded since. It must be fast."""

    def values(self, cores: int) -> Sequence[Any]:
        """Return the values that a trial with this many cores may try.

        They are strings, numbers or truth values. The usual state of the process is not among them.
        """
        ...

    def apply(self, value: Any) -> None:
        """Apply the value in this process.

        Raises CannotTurn(why), without any change, if this machine or process does not allow it.
        """
        ...

    def restore(self) -> None:
        """Restore the state before the first apply().

        May be called before any apply(), and twice.
        """
        ...


def powers_of_two(below: int) -> list[int]:
    """Return 1, 2, 4 and so on, up to the last one below the limit."""
    return [1 << i for i in range(below.bit_length()) if 1 << i < below]


def whole(value: Any) -> int:
    """Return the value; raise CannotTurn unless it is a whole number of 1 or more."""
    if type(value) is not int or value < 1:
        raise CannotTurn("it must be a whole number of 1 or more")
    return value
