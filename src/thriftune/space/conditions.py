"""When is a parameter active? Its `when`, checked: what other parameters must be."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any, Protocol

from thriftune.errors import SpaceError
from thriftune.space.axes import Axis, FloatAxis
from thriftune.space.parameters import Choice, Fixed, Float, Int, Parameter
from thriftune.space.values import finite_number, identity, is_nested, value_from_json, value_to_json


@dataclass(frozen=True, slots=True)
class Between:
    """A condition on a number: from `low` to `high`, both included."""

    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high

    def __repr__(self) -> str:
        return f"between({self.low!r}, {self.high!r})"


def between(low: float, high: float) -> Between:
    """Return a condition for `when`: that a Float or Int is from `low` to `high`, both included."""
    return Between(low, high)


class Allowed(Protocol):
    """Values that a condition allows: a frozenset, a Between, or a tuple of what cannot be hashed."""

    def __contains__(self, value: object, /) -> bool: ...


Conditions = tuple[tuple[str, Allowed], ...]
Asked = tuple[Any, ...] | Between
"""What a `when` asks of one parameter, checked."""


def holds(conditions: Conditions, config: Mapping[str, Any]) -> bool:
    # An inactive parameter is not in the config; Ellipsis stands for it, as no value can be one.
    return all(config.get(other, ...) in allowed for other, allowed in conditions)


def quick(asked: Asked, hashable: bool) -> Allowed:
    """Return the same values in the form that is quickest to look up values of the parameter in."""
    return frozenset(asked) if hashable and not isinstance(asked, Between) else asked


def in_words(conditions: Conditions) -> str:
    return f"applies only when {' and '.join(_asked_in_words(*each) for each in conditions)}"


def _asked_in_words(other: str, allowed: Any) -> str:
    if isinstance(allowed, Between):
        return f"{other} is from {allowed.low} to {allowed.high}"
    return f"{other} is {' or '.join(sorted(map(repr, allowed)))}"


# --- the written form -------------------------------------------------------------------------------------


def when_json(when: Mapping[str, Asked]) -> dict[str, Any]:
    """Return a checked `when` as plain JSON."""
    return {other: _asked_json(asked) for other, asked in when.items()}


def _asked_json(asked: Asked) -> Any:
    if isinstance(asked, Between):
        return {"between": [asked.low, asked.high]}
    return [value_to_json(each) for each in asked] if _is_listed(asked) else asked[0]


def when_read(name: str, when: Any) -> Any:
    """Return the `when` that when_json() or a study file gives; what is wrong with it is found later."""
    if not isinstance(when, Mapping):
        return when
    return {other: _asked_read(name, other, asked) for other, asked in when.items()}


def _asked_read(name: str, other: str, asked: Any) -> Any:
    if isinstance(asked, Mapping) and "between" in asked:
        ends = asked["between"]
        if len(asked) > 1 or not isinstance(ends, list) or len(ends) != 2:
            raise SpaceError(f"{name}: when of {other} is {asked!r}; write {other} = {{between = [low, high]}}")
        return Between(*ends)
    return value_from_json(asked)


# --- the check --------------------------------------------------------------------------------------------


def checked_whens(parameters: Mapping[str, Parameter], axes: Mapping[str, Axis]) -> dict[str, dict[str, Asked]]:
    """For each parameter what it depends on, names and values in the order of the space."""
    order = {name: i for i, name in enumerate(parameters)}
    _check_names(parameters, order)
    whens: dict[str, dict[str, Asked]] = {}
    for name, parameter in parameters.items():
        whens[name] = {}
        for other, given in sorted((parameter.when or {}).items(), key=lambda item: order[item[0]]):
            if order[other] > order[name]:
                raise SpaceError(f"{name}: when names {other}, which comes later; move it before {name}")
            if isinstance(given, Between):
                whens[name][other] = _checked_range(name, other, given, parameters[other], axes[other])
            else:
                whens[name][other] = _checked_values(name, other, given, parameters[other], axes[other])
    return whens


def _check_names(parameters: Mapping[str, Parameter], order: Mapping[str, int]) -> None:
    for name, parameter in parameters.items():
        when = parameter.when
        if when is not None and not isinstance(when, Mapping):
            raise SpaceError(f"{name}: when {when!r} is no mapping; write {{other: value}}")
        for other in when or ():
            if other not in parameters:
                raise SpaceError(f"{name}: when names {other!r}, which is not in the space; add it there")
            if other == name:
                raise SpaceError(f"{name}: when names {name} itself; remove that")
    try:
        TopologicalSorter({name: p.when or () for name, p in parameters.items()}).prepare()
    except CycleError as error:
        cycle = error.args[1][:0:-1]  # it comes as [a, c, b, a], each a condition of the next
        first = cycle.index(min(cycle, key=order.__getitem__))
        cycle = [*cycle[first:], *cycle[: first + 1]]
        raise SpaceError(f"{cycle[0]}: when goes in a circle, {' -> '.join(cycle)}; break it") from None


def _checked_range(name: str, other: str, given: Between, parent: Parameter, axis: Axis) -> Between:
    if isinstance(parent, Choice | Fixed):
        raise SpaceError(f"{name}: when has a range for {other}, which is no Float or Int; list its values")
    low, high = (finite_number(f"{name}: when of {other}", end, getattr(given, end)) for end in ("low", "high"))
    if low > high:
        raise SpaceError(f"{name}: when of {other} is {given!r}, whose low is above its high; swap them")
    if isinstance(parent, Int):  # whole numbers, so that 1 and 1.0 are the same condition
        low, high = math.ceil(low), math.floor(high)
    found = Between(low, high)
    assert isinstance(parent, Float | Int)
    possible = low <= parent.high and high >= parent.low
    if axis.count is not None:
        possible = numbers_in(found, axis) != (0, 0)
    if not possible:
        raise SpaceError(f"{name}: when can never hold; no value of {other} is in {given!r}")
    return found


def _checked_values(name: str, other: str, given: Any, parent: Parameter, axis: Axis) -> tuple[Any, ...]:
    if isinstance(axis, FloatAxis) and axis.count is None:
        raise SpaceError(
            f"{name}: when asks for {given!r} of {other}, a Float, which hardly ever has one exact value; "
            f"give a range: when={{{other!r}: tt.between(low, high)}}"
        )
    many = list(given) if isinstance(given, list | tuple | set | frozenset) else [given]
    if not (many and all(_is_value(axis, other, each) for each in many)) and _is_value(axis, other, given):
        many = [given]  # a choice may be a list itself
    if not many:
        raise SpaceError(f"{name}: when gives no value for {other}; give at least one")
    try:
        allowed = {identity(value): value for value in (axis.clean(other, each) for each in many)}
    except SpaceError as error:
        raise SpaceError(f"{name}: when can never hold; {error}") from None
    found = tuple(sorted(allowed.values(), key=axis.number if isinstance(parent, Choice) else None))
    if _is_listed(found) and _is_value(axis, other, list(found)):
        raise SpaceError(
            f"{name}: when of {other} is unclear: {list(found)!r} may be one choice or a list of choices; "
            f"change the choices of {other}"
        )
    return found


def _is_listed(asked: tuple[Any, ...]) -> bool:
    """Return whether it is written as a list of values: a single one that is a list would be taken for several."""
    return len(asked) > 1 or is_nested(asked[0])


def _is_value(axis: Axis, other: str, value: Any) -> bool:
    try:
        axis.clean(other, value)
    except SpaceError:
        return False
    return True


# --- how many values --------------------------------------------------------------------------------------


def numbers_in(asked: Between, axis: Axis) -> tuple[int, int]:
    """Return the number of a finite axis' first value in the range, and the one after the last; else (0, 0)."""
    assert axis.count is not None
    numbers = range(axis.count)
    first = bisect_left(numbers, asked.low, key=axis.nth)
    after = bisect_right(numbers, asked.high, key=axis.nth)
    return (first, after) if first < after else (0, 0)


def classes(asked: Iterable[Asked], axis: Axis) -> list[tuple[int, int]]:
    """Divide a finite axis' values by which of the conditions they meet.

    Returns the number of a value of each class, and how many are in it; those that meet none are left out.
    """
    assert axis.count is not None
    listed = list(dict.fromkeys(_spans(each, axis) for each in asked))
    cuts = sorted({cut for spans in listed for span in spans for cut in span})
    sizes: dict[tuple[bool, ...], tuple[int, int]] = {}
    for first, after in pairwise(cuts):
        signature = tuple(any(a <= first < b for a, b in spans) for spans in listed)
        if any(signature):
            number, size = sizes.get(signature, (first, 0))
            sizes[signature] = number, size + after - first
    return list(sizes.values())


def _spans(asked: Asked, axis: Axis) -> tuple[tuple[int, int], ...]:
    if isinstance(asked, Between):
        return (numbers_in(asked, axis),)
    return tuple((number, number + 1) for number in sorted(map(axis.number, asked)))
