"""The parameters of a space: Float, Int, Choice and fixed values.

A parameter is plain data. A `Space` checks it, because a parameter has a name only in a space, and errors need the
name. The space creates a scale (scales.py) for each checked parameter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Self

import numpy as np

from thriftune.errors import SpaceError
from thriftune.space.scales import ChoiceScale, FixedScale, FloatScale, IntScale, Scale, SteppedScale
from thriftune.space.values import checked_value, finite_number, identity

When = Mapping[str, Any]

LARGEST_BOUND = 2**40
"""The largest bound of an Int. Each whole number then has a part of [0, 1] far wider than rounding errors."""

_OFF_STEPS = Decimal("1e-6")
"""A span counts as a multiple of the step if it differs by at most this fraction of the step."""


@dataclass(frozen=True, repr=False)
class Parameter:
    """A parameter of a space.

    With `when` it is active only for certain values of other parameters.
    """

    when: When | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        ordered = sorted(vars(self).items(), key=lambda item: item[0] == "when")
        shown = ", ".join(f"{name}={value!r}" for name, value in ordered if value is not None or name == "value")
        return f"{type(self).__name__}({shown})"

    def _check(self, name: str) -> Self:
        """Return a copy with values in Python types.

        Raises SpaceError if the parameter is not valid.
        """
        raise NotImplementedError

    def _scale(self) -> Scale:
        """Return the scale of a checked parameter."""
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class Float(Parameter):
    """A real number from `low` to `high`, both included.

    - `log`: evenly spread in its logarithm.
    - `step`: only `low`, `low + step`, and so on to `high`; None: any number.
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None

    def _check(self, name: str) -> Self:
        low, high = (finite_number(name, end, getattr(self, end)) for end in ("low", "high"))
        _check_range(name, self)
        if math.isinf(high - low):
            raise SpaceError(f"{name}: the span from {low} to {high} is more than a float holds; narrow it")
        if self.step is None:
            return replace(self, low=low, high=high)
        step = finite_number(name, "step", self.step)
        checked = replace(self, low=low, high=high, step=step)
        _check_steps(name, checked)
        if step < 4 * math.ulp(max(abs(low), abs(high))):
            raise SpaceError(f"{name}: step {step} is finer than a float from {low} to {high} holds; widen it")
        return checked

    def _scale(self) -> Scale:
        if self.step is None or self.low == self.high:
            return FloatScale(self.low, self.high, self.log)
        return SteppedScale(self.low, self.high, self.step, _count(self))


@dataclass(frozen=True, repr=False)
class Int(Parameter):
    """A whole number from `low` to `high`, both included.

    - `log`: evenly spread in its logarithm.
    - `step`: only `low`, `low + step`, and so on to `high`; None: any whole number.
    """

    low: int
    high: int
    log: bool = False
    step: int | None = None

    def _check(self, name: str) -> Self:
        for end in ("low", "high", *(["step"] if self.step is not None else [])):
            bound = finite_number(name, end, getattr(self, end))
            if not bound.is_integer():
                raise SpaceError(f"{name}: {end} {bound} is not a whole number; round it or use Float")
            if abs(bound) > LARGEST_BOUND:
                raise SpaceError(f"{name}: {end} {bound:.0f} is beyond 2**40; use Float, or its exponent")
        _check_range(name, self)
        # A step of 1 means the same as no step, so it is dropped: equal spaces must compare equal.
        step = None if self.step is None or self.step == 1 else int(self.step)
        if self.step is not None:
            _check_steps(name, self)
        return replace(self, low=int(self.low), high=int(self.high), step=step)

    def _scale(self) -> Scale:
        if self.step is None or self.low == self.high:
            return IntScale(self.low, self.high, self.log)
        return SteppedScale(self.low, self.high, self.step, _count(self))


@dataclass(frozen=True, repr=False)
class Choice(Parameter):
    """A choice among values that JSON can hold: str, int, float, bool, None, or tuples and lists of these."""

    choices: Sequence[Any]

    def _check(self, name: str) -> Self:
        choices = self.choices.tolist() if isinstance(self.choices, np.ndarray) else self.choices
        # The order of a set differs between processes, and so would the suggestions.
        if not isinstance(choices, Sequence) or isinstance(choices, str | bytes):
            raise SpaceError(f"{name}: choices {choices!r} is not a list; write Choice([...])")
        if not choices:
            raise SpaceError(f"{name}: choices is empty; give at least one value")
        plain = tuple(checked_value(f"{name}: choice", choice) for choice in choices)
        identities = [identity(choice) for choice in plain]
        for i, each in enumerate(identities):
            if each in identities[:i]:
                twin = plain[identities.index(each)]
                raise SpaceError(f"{name}: choice {plain[i]!r} is listed twice, first as {twin!r}; remove one")
        return replace(self, choices=plain)

    def _scale(self) -> Scale:
        return ChoiceScale(self.choices)


@dataclass(frozen=True, repr=False)
class Fixed(Parameter):
    """A plain value in a space.

    Every configuration has it, and the searcher does not vary it.
    """

    value: Any

    def _check(self, name: str) -> Self:
        return replace(self, value=checked_value(f"{name}: fixed value", self.value))

    def _scale(self) -> Scale:
        return FixedScale(self.value)


def _check_range(name: str, parameter: Float | Int) -> None:
    low, high, log = parameter.low, parameter.high, parameter.log
    if not isinstance(log, bool):
        raise SpaceError(f"{name}: log {log!r} is neither true nor false; write one of them")
    if low > high:
        raise SpaceError(f"{name}: low {low} is above high {high}; swap them")
    if log and low <= 0:
        raise SpaceError(f"{name}: low {low} has no logarithm; raise it above 0 or drop log")


def _check_steps(name: str, parameter: Float | Int) -> None:
    low, high, step = parameter.low, parameter.high, parameter.step
    assert step is not None
    if step <= 0:
        raise SpaceError(f"{name}: step {step} must be above 0; leave it out to have any value")
    if parameter.log:
        raise SpaceError(
            f"{name}: step {step} does not go with log; drop one of them, or list the values in a Choice"
        )
    steps = _steps(parameter)
    if steps > LARGEST_BOUND:
        raise SpaceError(f"{name}: step {step} gives over 2**40 values; leave it out to have any value")
    if abs(steps - round(steps)) > _OFF_STEPS:
        number = type(low)
        last, more = (
            number(Decimal(str(low)) + each * Decimal(str(step))) for each in (int(steps), int(steps) + 1)
        )
        raise SpaceError(
            f"{name}: high {high} is no multiple of step {step} above low {low}; write high={last} or high={more}"
        )


def _steps(parameter: Float | Int) -> Decimal:
    """Return the number of steps from low to high, computed in decimals: from 0 to 0.3 by 0.1 it is exactly 3."""
    return (Decimal(str(parameter.high)) - Decimal(str(parameter.low))) / Decimal(str(parameter.step))


def _count(parameter: Float | Int) -> int:
    """Return the number of values of a parameter with a step."""
    return round(_steps(parameter)) + 1
