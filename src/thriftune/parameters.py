"""What can one parameter be? Float, Int and Choice, and how their values become numbers in [0, 1] and back.

A parameter is plain data and says nothing on its own; a `Space` checks it, because only there it has a name that
an error can give. Of each checked parameter the space makes an axis.

Floats live on a lattice, so that a configuration survives decode(encode(c)) unchanged: 12 significant digits
on a log scale, a decimal grid of about 1e-12 of the span on a linear one, and in both the bounds themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Self

import numpy as np

from thriftune.errors import SpaceError

When = Mapping[str, Any]

LARGEST_INT = 2**40
"""Bounds of an Int stay below this, so that every bin of the unit interval is far wider than rounding."""


# --- what a user writes -----------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Parameter:
    """One thing that may vary; `when` other parameters have certain values, or always."""

    when: When | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        ordered = sorted(vars(self).items(), key=lambda item: item[0] == "when")
        shown = ", ".join(f"{name}={value!r}" for name, value in ordered if value is not None)
        return f"{type(self).__name__}({shown})"

    def _check(self, name: str) -> Self:
        """The same, with its values in their plain types; SpaceError if it cannot be."""
        raise NotImplementedError

    def _axis(self) -> Axis:
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class Float(Parameter):
    """A real number from `low` to `high`, both included; `log`: evenly spread in its logarithm."""

    low: float
    high: float
    log: bool = False

    def _check(self, name: str) -> Self:
        low, high = (_finite(name, end, getattr(self, end)) for end in ("low", "high"))
        _check_range(name, self)
        if math.isinf(high - low):
            raise SpaceError(f"{name}: the span from {low} to {high} is more than a float holds; narrow it")
        return replace(self, low=low, high=high)

    def _axis(self) -> Axis:
        return _FloatAxis(self)


@dataclass(frozen=True, repr=False)
class Int(Parameter):
    """A whole number from `low` to `high`, both included; `log`: evenly spread in its logarithm."""

    low: int
    high: int
    log: bool = False

    def _check(self, name: str) -> Self:
        for end in ("low", "high"):
            bound = _finite(name, end, getattr(self, end))
            if not bound.is_integer():
                raise SpaceError(f"{name}: {end} {bound} is not a whole number; round it or use Float")
            if abs(bound) > LARGEST_INT:
                raise SpaceError(f"{name}: {end} {bound:.0f} is beyond 2**40; use Float, or its exponent")
        _check_range(name, self)
        return replace(self, low=int(self.low), high=int(self.high))

    def _axis(self) -> Axis:
        return _IntAxis(self)


@dataclass(frozen=True, repr=False)
class Choice(Parameter):
    """One of some values that JSON can hold: str, int, float, bool or None."""

    choices: Sequence[Any]

    def _check(self, name: str) -> Self:
        choices = self.choices.tolist() if isinstance(self.choices, np.ndarray) else self.choices
        # A set would give another order, hence other suggestions, in every process.
        if not isinstance(choices, Sequence) or isinstance(choices, str | bytes):
            raise SpaceError(f"{name}: choices {choices!r} is not a list; write Choice([...])")
        if not choices:
            raise SpaceError(f"{name}: choices is empty; give at least one value")
        plain = tuple(_plain(choice) for choice in choices)
        for i, choice in enumerate(plain):
            if type(choice) not in (str, int, float, bool, type(None)):
                raise SpaceError(
                    f"{name}: choice {choice!r} is no str, int, float, bool or None; "
                    "choose by a name and look the object up in the training function"
                )
            if isinstance(choice, float) and not math.isfinite(choice):
                raise SpaceError(f"{name}: choice {choice} is not finite; give a number or a word for it")
            if choice in plain[:i]:
                twin = plain[plain.index(choice)]
                raise SpaceError(f"{name}: choice {choice!r} is there already, as {twin!r}; remove one")
        return replace(self, choices=plain)

    def _axis(self) -> Axis:
        return _ChoiceAxis(self)


def _plain(value: Any) -> Any:
    """A numpy scalar as the Python value it stands for."""
    return value.item() if isinstance(value, np.generic) else value


def _finite(name: str, what: str, value: Any) -> float:
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise SpaceError(f"{name}: {what} {value!r} is not a number; write one, without quotes")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise SpaceError(f"{name}: {what} {number} is not finite; give a plain number")
    return number + 0.0  # never -0.0, which is equal to 0.0 but written otherwise


def _check_range(name: str, parameter: Float | Int) -> None:
    low, high, log = parameter.low, parameter.high, parameter.log
    if not isinstance(log, bool):
        raise SpaceError(f"{name}: log {log!r} is neither true nor false; write one of them")
    if low > high:
        raise SpaceError(f"{name}: low {low} is above high {high}; swap them")
    if log and low <= 0:
        raise SpaceError(f"{name}: low {low} has no logarithm; raise it above 0 or drop log")


# --- a parameter made ready for use -----------------------------------------------------------------------


class Axis:
    """One checked parameter: its values to numbers and back."""

    width: int
    """Its columns in the unit cube."""
    count: int | None
    """Its number of values; None: infinitely many."""
    blank: float
    """What its columns hold while it is inactive."""

    def value(self, u: float) -> Any:
        """The value at u in [0, 1]."""
        raise NotImplementedError

    def unit(self, value: Any) -> float:
        """The inverse of value(): the middle of the numbers that give it."""
        raise NotImplementedError

    def read(self, row: Sequence[float], start: int) -> Any:
        """The value its columns stand for; they begin at `start`."""
        raise NotImplementedError

    def write(self, row: list[float], start: int, value: Any) -> None:
        """The inverse of read(), into blank columns."""
        raise NotImplementedError

    def clean(self, name: str, value: Any) -> Any:
        """The value as configurations hold it; SpaceError if it is not possible."""
        raise NotImplementedError

    def levels(self, points: int) -> Sequence[Any]:
        """All values in order, or `points` of them where a number has more."""
        raise NotImplementedError


class _NumericAxis(Axis):
    """[first, last] on a linear or log scale."""

    width = 1
    blank = 0.5

    def __init__(self, first: float, last: float, log: bool) -> None:
        self.log = log
        self.start = math.log(first) if log else first
        self.span = (math.log(last) if log else last) - self.start

    def at(self, u: float) -> float:
        u = 0.0 if u < 0.0 else 1.0 if u > 1.0 else u
        x = self.start + u * self.span
        return math.exp(x) if self.log else x

    def unit(self, value: float) -> float:
        if not self.span:
            return 0.5
        u = ((math.log(value) if self.log else value) - self.start) / self.span
        return 0.0 if u < 0.0 else 1.0 if u > 1.0 else u

    def read(self, row: Sequence[float], start: int) -> Any:
        return self.value(row[start])

    def write(self, row: list[float], start: int, value: Any) -> None:
        row[start] = self.unit(value)

    def spread(self, low: float, high: float, points: int) -> list[Any]:
        """`points` values from low to high, evenly on the scale; a single one lies in the middle."""
        if points == 1:
            return [self.value(0.5)]
        first, last = self.unit(low), self.unit(high)
        return [self.value(first + (last - first) * i / (points - 1)) for i in range(points)]


class _FloatAxis(_NumericAxis):
    def __init__(self, parameter: Float) -> None:
        self.low, self.high = low, high = parameter.low, parameter.high
        self.count = 1 if low == high else None
        # A log scale this short is a straight line, and 12 digits would be too coarse for it.
        super().__init__(low, high, parameter.log and high > low * (1 + 1e-6))
        # A constant needs no lattice: any point of one is at or beyond a bound.
        self.decimals = 12 - math.floor(math.log10(self.span)) if self.span and not self.log else 0
        self.first, self.last = self.snap(low), self.snap(high)

    def snap(self, x: float) -> float:
        """The lattice point nearest to x; adding 0.0 turns -0.0 into 0.0."""
        return float(f"{x:.11e}") if self.log else round(x, self.decimals) + 0.0

    def value(self, u: float) -> float:
        # A bound may lie off the lattice. It takes the place of the lattice point nearest to it, so that all
        # values between the bounds are lattice points and encode and decode to themselves.
        x = self.snap(self.at(u))
        if u <= 0.0 or x <= self.first:
            return self.low
        if u >= 1.0 or x >= self.last:
            return self.high
        return x

    def clean(self, name: str, value: Any) -> float:
        number = _finite(name, "value", value)
        if not self.low <= number <= self.high:
            raise SpaceError(f"{name}: {number} is outside its range; use {self.low} to {self.high}")
        return number

    def levels(self, points: int) -> Sequence[float]:
        return list(dict.fromkeys(self.spread(self.low, self.high, points)))


class _IntAxis(_NumericAxis):
    """Each value owns the scale half a unit to both sides: equal bins for a linear Int."""

    def __init__(self, parameter: Int) -> None:
        self.low, self.high = parameter.low, parameter.high
        self.count = self.high - self.low + 1
        super().__init__(self.low - 0.5, self.high + 0.5, parameter.log)

    def value(self, u: float) -> int:
        k = math.floor(self.at(u) + 0.5)
        return self.low if k < self.low else self.high if k > self.high else k

    def clean(self, name: str, value: Any) -> int:
        value = _plain(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise SpaceError(f"{name}: {value!r} is not a whole number; use {self.low} to {self.high}")
        if not self.low <= value <= self.high:
            raise SpaceError(f"{name}: {value} is outside its range; use {self.low} to {self.high}")
        return int(value)

    def levels(self, points: int) -> Sequence[int]:
        values = range(self.low, self.high + 1)
        if len(values) <= points:
            return values
        chosen: list[int] = []
        for i, k in enumerate(self.spread(self.low, self.high, points)):
            # A log scale would give small numbers twice: push them up, but leave room for those to come.
            least = chosen[-1] + 1 if chosen else self.low
            chosen.append(min(max(k, least), self.high - (points - 1 - i)))
        return chosen


class _ChoiceAxis(Axis):
    """One column a choice: a one in its own, zeros elsewhere."""

    blank = 0.0

    def __init__(self, parameter: Choice) -> None:
        self.choices = parameter.choices
        self.index = {choice: i for i, choice in enumerate(self.choices)}
        self.width = self.count = len(self.choices)

    def value(self, u: float) -> Any:
        return self.choices[min(int(u * self.width), self.width - 1)]

    def unit(self, value: Any) -> float:
        return (self.index[value] + 0.5) / self.width

    def read(self, row: Sequence[float], start: int) -> Any:
        own = row[start : start + self.width]
        return self.choices[own.index(max(own))]

    def write(self, row: list[float], start: int, value: Any) -> None:
        row[start + self.index[value]] = 1.0

    def clean(self, name: str, value: Any) -> Any:
        try:
            return self.choices[self.index[_plain(value)]]
        except (KeyError, TypeError):
            known = ", ".join(map(repr, self.choices))
            raise SpaceError(f"{name}: {value!r} is not among its choices; use one of {known}") from None

    def levels(self, points: int) -> Sequence[Any]:  # noqa: ARG002 - a choice has no scale to thin out
        return self.choices
