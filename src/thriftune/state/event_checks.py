"""Check the values of events that were read from a store.

A faulty disk or an edit by hand may have damaged a log. After these checks, other code can rely on the types of
the values. The type annotation of a field determines the check of its values.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

from thriftune.common.checks import LARGEST_INT, LATEST_AT


def is_time(value: Any) -> bool:
    """Return whether the value is a time in unix seconds that can be shown as a date."""
    return (type(value) is float or type(value) is int) and 0 <= value < LATEST_AT


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < LARGEST_INT


def _is_metric(value: Any) -> bool:
    """Return whether the value is a number. NaN and infinity are allowed."""
    return type(value) is float or (type(value) is int and -LARGEST_INT < value < LARGEST_INT)


def _is_finite(value: Any) -> bool:
    return _is_metric(value) and isfinite(value)


def _are_metrics(value: Any) -> bool:
    return type(value) is dict and all(map(_is_metric, value.values()))


def _are_counts(value: Any) -> bool:
    return type(value) is dict and all(map(_is_count, value.values()))


def _are_texts(value: Any) -> bool:
    return type(value) is dict and all(map(_of_type(str), value.values()))


def _or_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


def _is_bool(value: Any) -> bool:
    return value is True or value is False


def _of_type(kind: type) -> Callable[[Any], bool]:
    return lambda value: type(value) is kind


CHECKS: dict[str, Callable[[Any], bool]] = {
    "Any": lambda value: True,  # noqa: ARG005 (whatever JSON holds)
    "bool": _is_bool,
    "int": _is_count,
    "int | None": _or_none(_is_count),
    "float": _is_finite,
    "float | None": _or_none(_is_finite),
    "str": _of_type(str),
    "Metrics": _are_metrics,
    "Mapping[str, float]": _are_metrics,
    "Mapping[str, int] | None": _or_none(_are_counts),
    "Config": _of_type(dict),
    "Mapping[str, Any]": _of_type(dict),
    "Mapping[str, Any] | None": _or_none(_of_type(dict)),
    "Mapping[str, str]": _are_texts,
    "Sequence[Any]": _of_type(list),
    "Sequence[int]": lambda value: type(value) is list and all(map(_is_count, value)),
    "Sequence[str]": lambda value: type(value) is list and all(map(_of_type(str), value)),
    "Sequence[float]": lambda value: type(value) is list and all(map(_is_finite, value)),
    "tuple[str, ...]": lambda value: type(value) is tuple and all(map(_of_type(str), value)),
}
"""The check for the values of a field, by the field's annotation as it is written in the source."""
