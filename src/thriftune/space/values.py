"""Check, compare and store the values of choices and fixed parameters.

A value is a scalar that JSON can hold, or a tuple or list of values. JSON has no tuples. A log holds them as
lists, and the space restores them. In other files, value_to_json() marks tuples.
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
"""The key of a JSON object that stands for a tuple."""


def plain_value(value: Any) -> Any:
    """Return a NumPy scalar as a Python value, and any other value as it is."""
    numpy = sys.modules.get("numpy")  # without an import: a process that has not loaded NumPy has no such scalar
    return value.item() if numpy is not None and isinstance(value, numpy.generic) else value


def checked_value(what: str, value: Any) -> Any:
    """Return a copy of a value in Python types.

    Raises SpaceError, which begins with `what`, if it is not valid.
    """
    if type(value) in (list, tuple):
        return type(value)(checked_value(what, each) for each in value)
    value = plain_value(value)
    if type(value) not in _SCALARS:
        raise SpaceError(
            f"{what} {value!r} is not a str, int, float, bool, None, or a tuple or list of these; "
            "choose by a name and look the object up in the training function"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise SpaceError(f"{what} {value} is not finite; give a number or a string instead")
    return value


def finite_number(name: str, what: str, value: Any) -> float:
    """Return a number as a float.

    Raises SpaceError if it is not a number, or not finite.
    """
    if isinstance(plain_value(value), bool) or not isinstance(value, Real):
        raise SpaceError(f"{name}: {what} {value!r} is not a number; write one, without quotes")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise SpaceError(f"{name}: {what} {number} is not finite; give a plain number")
    return number + 0.0  # turns -0.0 into 0.0, because the two are equal but look different


def is_nested(value: Any) -> bool:
    """Return whether the value is a list or a tuple."""
    return isinstance(value, list | tuple)


def copy_of(value: Any) -> Any:
    """Return a copy whose lists can be changed without changing the original."""
    return type(value)(copy_of(each) for each in value) if is_nested(value) else value


def identity(value: Any) -> Any:
    """Return a hashable form of the value.

    It is the same for a tuple and for a list of the same values.
    """
    return tuple(identity(each) for each in value) if is_nested(value) else plain_value(value)


def value_to_json(value: Any) -> Any:
    """Return the value as JSON in which tuples are marked.

    The inverse of value_from_json().
    """
    if isinstance(value, tuple):
        return {_TUPLE: [value_to_json(each) for each in value]}
    return [value_to_json(each) for each in value] if isinstance(value, list) else value


def value_from_json(value: Any) -> Any:
    """Return the value from the JSON that value_to_json() returned."""
    if isinstance(value, Mapping) and list(value) == [_TUPLE] and isinstance(value[_TUPLE], list):
        return tuple(value_from_json(each) for each in value[_TUPLE])
    return [value_from_json(each) for each in value] if isinstance(value, list) else value
