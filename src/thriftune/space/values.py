"""What may a choice or a fixed value be? A scalar that JSON can hold, or a tuple or list of such.

JSON has no tuples. Logs hold them as lists, and a space turns them back: it knows what its user gave. Where there
is no space to ask, written() marks them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from numbers import Real
from typing import Any

from thriftune.errors import SpaceError

_SCALARS = (str, int, float, bool, type(None))

_TUPLE = "tuple"
"""The key of an object that stands for a tuple, as written() gives it."""


def plain_value(value: Any) -> Any:
    """Return a numpy scalar as the Python value it stands for, and anything else as it is."""
    numpy = sys.modules.get("numpy")  # a worker that has not loaded it has none of its scalars
    return value.item() if numpy is not None and isinstance(value, numpy.generic) else value


def checked_value(what: str, value: Any) -> Any:
    """Return a copy of a value in its plain types; raise SpaceError, which begins with `what`, for any other."""
    if type(value) in (list, tuple):
        return type(value)(checked_value(what, each) for each in value)
    value = plain_value(value)
    if type(value) not in _SCALARS:
        raise SpaceError(
            f"{what} {value!r} is no str, int, float, bool or None, nor a tuple or list of such; "
            "choose by a name and look the object up in the training function"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise SpaceError(f"{what} {value} is not finite; give a number or a word for it")
    return value


def finite_number(name: str, what: str, value: Any) -> float:
    """Return a number as a float; SpaceError if it is none, or not finite."""
    if isinstance(plain_value(value), bool) or not isinstance(value, Real):
        raise SpaceError(f"{name}: {what} {value!r} is not a number; write one, without quotes")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise SpaceError(f"{name}: {what} {number} is not finite; give a plain number")
    return number + 0.0  # never -0.0, which is equal to 0.0 but written otherwise


def is_nested(value: Any) -> bool:
    return isinstance(value, list | tuple)


def copy_of(value: Any) -> Any:
    """Return a copy whose lists can be changed without changing those of the original."""
    return type(value)(copy_of(each) for each in value) if is_nested(value) else value


def identity(value: Any) -> Any:
    """Return the value's identity: hashable, and the same for a tuple and for the list that JSON makes of it."""
    return tuple(identity(each) for each in value) if is_nested(value) else plain_value(value)


def value_to_json(value: Any) -> Any:
    """Return the value as JSON that tells tuples from lists; inverse of read()."""
    if isinstance(value, tuple):
        return {_TUPLE: [value_to_json(each) for each in value]}
    return [value_to_json(each) for each in value] if isinstance(value, list) else value


def value_from_json(value: Any) -> Any:
    """Return the value that written() was given."""
    if isinstance(value, Mapping) and list(value) == [_TUPLE] and isinstance(value[_TUPLE], list):
        return tuple(value_from_json(each) for each in value[_TUPLE])
    return [value_from_json(each) for each in value] if isinstance(value, list) else value
