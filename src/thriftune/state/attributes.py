"""What may users attach to trials and studies? Attributes: a name and any JSON, checked here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from thriftune.errors import SettingError

LARGEST_BYTES = 65_536
"""The longest value as JSON. Every reader of a study reads all of them; larger things belong into files."""


def checked_attribute(name: object, value: object) -> Any:
    """Return the value of an attribute as JSON holds it: a tuple as a list, a NumPy number as a plain one.

    Raises SettingError for a name that is no text, and for a value that is no JSON or too long.
    """
    if not isinstance(name, str) or not name:
        raise SettingError(f"attribute: {name!r} is no name; give a string that is not empty")
    try:
        text = json.dumps(value, default=_plain)
        plain = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise SettingError(
            f"attribute {name!r}: a value of type {type(value).__name__} is no JSON ({error}); "
            "give numbers, strings, lists and dicts, or a text such as str(value)"
        ) from None
    if len(text) > LARGEST_BYTES:
        raise SettingError(
            f"attribute {name!r}: {len(text)} bytes as JSON, and {LARGEST_BYTES} is the most; "
            "write it into a file and keep the file's name"
        )
    return plain


def checked_attributes(given: object) -> dict[str, Any]:
    """Return the attributes of `attrs=` as JSON holds them."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise SettingError(f"attrs: {given!r} is no dict; give one such as {{'git': 'a1b2c3'}}")
    return {name: checked_attribute(name, value) for name, value in given.items()}


def set_attribute(attributes: dict[str, Any], name: str, value: Any) -> bool:
    """Set an attribute; return whether that changes anything. Values of another type differ, as 1 and true do."""
    if name in attributes and json.dumps(attributes[name]) == json.dumps(value):
        return False
    attributes[name] = value
    return True


def _plain(value: Any) -> Any:
    """Return a NumPy number or array as plain values."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON serializable")
