"""Conditions of parameters: how `when` is checked, stored and evaluated."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any, Protocol

from thriftune.errors import SpaceError
from thriftune.space.parameters import Choice, Fixed, Float, Int, Parameter
from thriftune.space.scales import FloatScale, Scale
from thriftune.space.values import finite_number, identity, is_nested, value_from_json, value_to_json


@dataclass(frozen=True, slots=True)
class Between:
    """A condition on a number: from `low` to `high`, both included.

    Created by between().
    """

    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high

    def __repr__(self) -> str:
        return f"between({self.low!r}, {self.high!r})"


def between(low: float, high: float) -> Between:
    """Return a condition for `when`: a Float or Int must be from `low` to `high`, both included."""
    return Between(low, high)


class Allowed(Protocol):
    """The values that a condition allows: a frozenset, a Between, or a tuple of values that cannot be hashed."""

    def __contains__(self, value: object, /) -> bool: ...


Conditions = tuple[tuple[str, Allowed], ...]
"""The conditions of one parameter: names of other parameters, and the values that they must have."""

Condition = tuple[Any, ...] | Between
"""A checked condition on one other parameter: a tuple of values, or a range."""


def holds(conditions: Conditions, config: Mapping[str, Any]) -> bool:
    """Return whether a configuration meets all conditions of a parameter."""
    # An inactive parameter is not in the configuration. No value can be Ellipsis, so it meets no condition.
    return all(config.get(other, ...) in allowed for other, allowed in conditions)


def allowed_values(condition: Condition, hashable: bool) -> Allowed:
    """Return the values of a condition in the form with the fastest lookup."""
    return frozenset(condition) if hashable and not isinstance(condition, Between) else condition


def conditions_text(conditions: Conditions) -> str:
    """Return a text such as "applies only when act is 'relu'"."""
    return f"applies only when {' and '.join(_condition_text(*each) for each in conditions)}"


def _condition_text(other: str, allowed: Any) -> str:
    if isinstance(allowed, Between):
        return f"{other} is from {allowed.low} to {allowed.high}"
    return f"{other} is {' or '.join(sorted(map(repr, allowed)))}"


# --- JSON -------------------------------------------------------------------------------------------------


def when_to_json(when: Mapping[str, Condition]) -> dict[str, Any]:
    """Return a checked `when` as JSON."""
    return {other: _condition_to_json(condition) for other, condition in when.items()}


def _condition_to_json(condition: Condition) -> Any:
    if isinstance(condition, Between):
        return {"between": [condition.low, condition.high]}
    return [value_to_json(each) for each in condition] if _is_listed(condition) else condition[0]


def when_from_json(name: str, when: Any) -> Any:
    """Return the `when` from the JSON of when_to_json() or from a study file. checked_whens() checks it later."""
    if not isinstance(when, Mapping):
        return when
    return {other: _condition_from_json(name, other, condition) for other, condition in when.items()}


def _condition_from_json(name: str, other: str, condition: Any) -> Any:
    if isinstance(condition, Mapping) and "between" in condition:
        ends = condition["between"]
        if len(condition) > 1 or not isinstance(ends, list) or len(ends) != 2:
            raise SpaceError(
                f"{name}: when of {other} is {condition!r}; write {other} = {{between = [low, high]}}"
            )
        return Between(*ends)
    return value_from_json(condition)


# --- the check --------------------------------------------------------------------------------------------


def checked_whens(
    parameters: Mapping[str, Parameter], scales: Mapping[str, Scale]
) -> dict[str, dict[str, Condition]]:
    """Return the checked `when` of each parameter, with names and values in the order of the space."""
    order = {name: i for i, name in enumerate(parameters)}
    _check_names(parameters, order)
    whens: dict[str, dict[str, Condition]] = {}
    for name, parameter in parameters.items():
        whens[name] = {}
        for other, given in sorted((parameter.when or {}).items(), key=lambda item: order[item[0]]):
            if order[other] > order[name]:
                raise SpaceError(f"{name}: when names {other}, which comes later; move it before {name}")
            if isinstance(given, Between):
                whens[name][other] = _checked_range(name, other, given, parameters[other], scales[other])
            else:
                whens[name][other] = _checked_values(name, other, given, parameters[other], scales[other])
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
        cycle = error.args[1][:0:-1]  # the error has [a, c, b, a], where each is a condition of the next
        start = cycle.index(min(cycle, key=order.__getitem__))
        cycle = [*cycle[start:], *cycle[: start + 1]]
        raise SpaceError(f"{cycle[0]}: when goes in a circle, {' -> '.join(cycle)}; break it") from None


def _checked_range(name: str, other: str, given: Between, parent: Parameter, scale: Scale) -> Between:
    if isinstance(parent, Choice | Fixed):
        raise SpaceError(f"{name}: when has a range for {other}, which is no Float or Int; list its values")
    low, high = (finite_number(f"{name}: when of {other}", end, getattr(given, end)) for end in ("low", "high"))
    if low > high:
        raise SpaceError(f"{name}: when of {other} is {given!r}, whose low is above its high; swap them")
    if isinstance(parent, Int):  # rounded, so that ranges with the same whole numbers are equal
        low, high = math.ceil(low), math.floor(high)
    condition = Between(low, high)
    assert isinstance(parent, Float | Int)
    possible = low <= parent.high and high >= parent.low
    if scale.count is not None:
        possible = numbers_in(condition, scale) != (0, 0)
    if not possible:
        raise SpaceError(f"{name}: when can never hold; no value of {other} is in {given!r}")
    return condition


def _checked_values(name: str, other: str, given: Any, parent: Parameter, scale: Scale) -> tuple[Any, ...]:
    if isinstance(scale, FloatScale) and scale.count is None:
        raise SpaceError(
            f"{name}: when asks for {given!r} of {other}, a Float, which hardly ever has one exact value; "
            f"give a range: when={{{other!r}: tt.between(low, high)}}"
        )
    values = list(given) if isinstance(given, list | tuple | set | frozenset) else [given]
    if not (values and all(_is_value(scale, other, each) for each in values)) and _is_value(scale, other, given):
        values = [given]  # the choice itself is a list
    if not values:
        raise SpaceError(f"{name}: when gives no value for {other}; give at least one")
    try:
        allowed = {identity(value): value for value in (scale.clean(other, each) for each in values)}
    except SpaceError as error:
        raise SpaceError(f"{name}: when can never hold; {error}") from None
    condition = tuple(sorted(allowed.values(), key=scale.number if isinstance(parent, Choice) else None))
    if _is_listed(condition) and _is_value(scale, other, list(condition)):
        raise SpaceError(
            f"{name}: when of {other} is unclear: {list(condition)!r} may be one choice or a list of choices; "
            f"change the choices of {other}"
        )
    return condition


def _is_listed(condition: tuple[Any, ...]) -> bool:
    """Return whether JSON needs a list for it: it has several values, or one that is itself a list."""
    return len(condition) > 1 or is_nested(condition[0])


def _is_value(scale: Scale, other: str, value: Any) -> bool:
    """Return whether the scale has this value."""
    try:
        scale.clean(other, value)
    except SpaceError:
        return False
    return True


# --- counting values --------------------------------------------------------------------------------------


def numbers_in(condition: Between, scale: Scale) -> tuple[int, int]:
    """Return the values of a finite scale in a range, as the number of the first and one after the last.

    Returns (0, 0) if the range has no value.
    """
    assert scale.count is not None
    numbers = range(scale.count)
    first = bisect_left(numbers, condition.low, key=scale.nth)
    after = bisect_right(numbers, condition.high, key=scale.nth)
    return (first, after) if first < after else (0, 0)


def value_classes(conditions: Iterable[Condition], scale: Scale) -> list[tuple[int, int]]:
    """Divide the values of a finite scale into classes that meet the same conditions.

    Returns the number of one value and the count of values for each class. Values that meet no condition are left
    out.
    """
    assert scale.count is not None
    listed = list(dict.fromkeys(_spans(each, scale) for each in conditions))
    cuts = sorted({cut for spans in listed for span in spans for cut in span})
    sizes: dict[tuple[bool, ...], tuple[int, int]] = {}
    for first, after in pairwise(cuts):
        signature = tuple(any(a <= first < b for a, b in spans) for spans in listed)
        if any(signature):
            number, size = sizes.get(signature, (first, 0))
            sizes[signature] = number, size + after - first
    return list(sizes.values())


def _spans(condition: Condition, scale: Scale) -> tuple[tuple[int, int], ...]:
    """Return the values that a condition allows, as ranges like those of numbers_in()."""
    if isinstance(condition, Between):
        return (numbers_in(condition, scale),)
    return tuple((number, number + 1) for number in sorted(map(scale.number, condition)))
