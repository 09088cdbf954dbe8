"""Check and set attributes, the values that users attach to trials and studies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from thriftune.errors import SettingError

LARGEST_BYTES = 65_536
"""The longest value, in bytes of JSON. It must be short, because every reader of a study reads all attributes."""


def checked_attribute(name: object, value: object) -> Any:
    """Return the value of an attribute in the types of JSON.

    A tuple becomes a list, and a NumPy number a Python number. Raises SettingError for a name that is not a
    string, and for a value that JSON cannot represent or that is too long.
    """
    if not isinstance(name, str) or not name:
        raise SettingError(f"attribute: {name!r} is not a name; give a string that is not empty")
    try:
        text = json.dumps(value, default=_plain)
        plain = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise SettingError(
            f"attribute {name!r}: a value of type {type(value).__name__} cannot be written as JSON ({error}); "
            "give numbers, strings, lists and dicts, or a text such as str(value)"
        ) from None
    if len(text) > LARGEST_BYTES:
        raise SettingError(
            f"attribute {name!r}: its value has {len(text)} bytes as JSON, and the limit is {LARGEST_BYTES}; "
            "write the value to a file and attach the file's name"
        )
    return plain


def checked_attributes(attrs: object) -> dict[str, Any]:
    """Return the attributes of the setting `attrs`, in the types of JSON."""
    if attrs is None:
        return {}
    if not isinstance(attrs, Mapping):
        raise SettingError(f"attrs: {attrs!r} is not a dict; give one such as {{'git': 'a1b2c3'}}")
    return {name: checked_attribute(name, value) for name, value in attrs.items()}


def set_attribute(attributes: dict[str, Any], name: str, value: Any) -> bool:
    """Set an attribute; return whether it changed.

    Values of different types count as different, such as 1 and true.
    """
    if name in attributes and json.dumps(attributes[name]) == json.dumps(value):
        return False
    attributes[name] = value
    return True


def _plain(value: Any) -> Any:
    """Return a NumPy number or array as Python numbers.

    Called by json.dumps() for values it does not know.
    """
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON serializable")
