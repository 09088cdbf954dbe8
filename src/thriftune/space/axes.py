"""How do a parameter's values become numbers in [0, 1], and back?

Of each checked parameter a space makes an axis.

Floats live on a lattice, so that a configuration survives decode(encode(c)) unchanged: 12 significant digits
on a log scale, a decimal grid of about 1e-12 of the span on a linear one, and in both the bounds themselves.
With a step they are the decimal multiples of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from thriftune.errors import SpaceError
from thriftune.space.values import finite_number, identity, plain_value

_OFF_STEP = 1e-6
"""A value further than this part of a step from one is refused, and not taken as that one."""


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

    def nth(self, number: int) -> Any:
        """Value `number` of all, from 0 in their order. Only where their count is known."""
        raise NotImplementedError

    def number(self, value: Any) -> int:
        """The inverse of nth()."""
        raise NotImplementedError


class FixedAxis(Axis):
    """One value: no column, nothing to search."""

    width, count, blank = 0, 1, 0.0

    def __init__(self, value: Any) -> None:
        self._value = value

    def value(self, u: float) -> Any:  # noqa: ARG002 - there is but one
        return self._value

    def unit(self, value: Any) -> float:  # noqa: ARG002
        return 0.5

    def read(self, row: Sequence[float], start: int) -> Any:  # noqa: ARG002
        return self._value

    def write(self, row: list[float], start: int, value: Any) -> None:
        pass

    def clean(self, name: str, value: Any) -> Any:
        # 1 == True, but they are two values.
        mine, given = identity(self._value), identity(value)
        if isinstance(given, bool) != isinstance(mine, bool) or given != mine:
            raise SpaceError(f"{name}: {value!r} is not its fixed value; use {self._value!r} or leave it out")
        return self._value

    def levels(self, points: int) -> Sequence[Any]:  # noqa: ARG002
        return [self._value]

    def nth(self, number: int) -> Any:  # noqa: ARG002
        return self._value

    def number(self, value: Any) -> int:  # noqa: ARG002
        return 0


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


class FloatAxis(_NumericAxis):
    def __init__(self, low: float, high: float, log: bool) -> None:
        self.low, self.high = low, high
        self.count = 1 if low == high else None
        # A log scale this short is a straight line, and 12 digits would be too coarse for it.
        super().__init__(low, high, log and high > low * (1 + 1e-6))
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
        number = finite_number(name, "value", value)
        if not self.low <= number <= self.high:
            raise SpaceError(f"{name}: {number} is outside its range; use {self.low} to {self.high}")
        return number

    def levels(self, points: int) -> Sequence[float]:
        return list(dict.fromkeys(self.spread(self.low, self.high, points)))

    def nth(self, number: int) -> float:  # noqa: ARG002 - known only of a constant
        return self.low

    def number(self, value: Any) -> int:  # noqa: ARG002
        return 0


class IntAxis(_NumericAxis):
    """Each value owns the scale half a unit to both sides: equal bins for a linear Int."""

    def __init__(self, low: int, high: int, log: bool) -> None:
        self.low, self.high = low, high
        self.count = self.high - self.low + 1
        super().__init__(self.low - 0.5, self.high + 0.5, log)

    def value(self, u: float) -> int:
        k = math.floor(self.at(u) + 0.5)
        return self.low if k < self.low else self.high if k > self.high else k

    def clean(self, name: str, value: Any) -> int:
        value = plain_value(value)
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

    def nth(self, number: int) -> int:
        return self.low + number

    def number(self, value: Any) -> int:
        return int(value) - self.low


class SteppedAxis(Axis):
    """low, low + step, and so on to high: an Int's axis of their numbers."""

    width = 1
    blank = 0.5

    def __init__(self, low: float, high: float, step: float, count: int) -> None:
        """`count`: of the values; the last is `high`, to within a rounding error of the step."""
        self.low, self.high, self.step = low, high, step
        self.count = count
        self._last = count - 1
        self._whole = isinstance(low, int)
        # In decimals, as people count: three steps of 0.1 are 0.3, and not 0.30000000000000004.
        self._first, self._by = Decimal(str(low)), Decimal(str(step))
        self._numbers = IntAxis(0, count - 1, log=False)

    def nth(self, number: int) -> Any:
        if number in (0, self._last):
            return self.high if number else self.low
        return self.low + number * self.step if self._whole else float(self._first + number * self._by) + 0.0

    def number(self, value: Any) -> int:
        """The inverse of nth(); for any other number, that of the nearest value."""
        near = round((value - self.low) / self.step)
        return int(min(max(near, 0), self._last))

    def value(self, u: float) -> Any:
        return self.nth(self._numbers.value(u))

    def unit(self, value: Any) -> float:
        return self._numbers.unit(self.number(value))

    def read(self, row: Sequence[float], start: int) -> Any:
        return self.value(row[start])

    def write(self, row: list[float], start: int, value: Any) -> None:
        row[start] = self.unit(value)

    def clean(self, name: str, value: Any) -> Any:
        number = finite_number(name, "value", value)
        if self._whole and not isinstance(plain_value(value), int):
            raise SpaceError(f"{name}: {value!r} is not a whole number; use {self.low} to {self.high}")
        if not self.low <= number <= self.high:
            raise SpaceError(f"{name}: {value} is outside its range; use {self.low} to {self.high}")
        found = self.nth(self.number(number))
        if abs(found - number) > _OFF_STEP * self.step:
            raise SpaceError(f"{name}: {value} is no step of {self.step} from {self.low}; the nearest is {found}")
        return found

    def levels(self, points: int) -> Sequence[Any]:
        return [self.nth(number) for number in self._numbers.levels(points)]


class ChoiceAxis(Axis):
    """One column a choice: a one in its own, zeros elsewhere."""

    blank = 0.0

    def __init__(self, choices: Sequence[Any]) -> None:
        self.choices = choices
        self.index = {identity(choice): i for i, choice in enumerate(choices)}
        self.width = self.count = len(choices)

    def value(self, u: float) -> Any:
        return self.choices[min(int(u * self.width), self.width - 1)]

    def unit(self, value: Any) -> float:
        return (self.number(value) + 0.5) / self.width

    def read(self, row: Sequence[float], start: int) -> Any:
        own = row[start : start + self.width]
        return self.choices[own.index(max(own))]

    def write(self, row: list[float], start: int, value: Any) -> None:
        row[start + self.number(value)] = 1.0

    def clean(self, name: str, value: Any) -> Any:
        try:
            return self.choices[self.number(value)]
        except (KeyError, TypeError):
            known = ", ".join(map(repr, self.choices))
            raise SpaceError(f"{name}: {value!r} is not among its choices; use one of {known}") from None

    def levels(self, points: int) -> Sequence[Any]:  # noqa: ARG002 - a choice has no scale to thin out
        return self.choices

    def nth(self, number: int) -> Any:
        return self.choices[number]

    def number(self, value: Any) -> int:
        try:
            return self.index[value]
        except TypeError:  # a list, or a tuple that has one
            return self.index[identity(value)]
