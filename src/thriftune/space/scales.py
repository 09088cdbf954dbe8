"""Scales map the values of parameters to numbers in [0, 1] and back. A space has a scale for each parameter.

Values of a Float are rounded to a lattice, so that decode(encode(config)) returns the same configuration. On a log
scale the lattice has 12 significant digits. On a linear scale it is a decimal grid of about 1e-12 of the span. The
bounds belong to the lattice. With a step, the values are decimal multiples of the step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from thriftune.errors import SpaceError
from thriftune.space.values import finite_number, identity, plain_value

_OFF_STEP = 1e-6
"""A value is rounded to the nearest step if it differs by at most this fraction of a step, else it is refused."""


class Scale:
    """The values of one checked parameter, and their numbers."""

    width: int
    """The number of its columns in the unit cube."""
    count: int | None
    """The number of its values; None if there are infinitely many."""
    blank: float
    """The number in its columns while the parameter is inactive."""

    def value(self, u: float) -> Any:
        """Return the value at `u` in [0, 1]."""
        raise NotImplementedError

    def unit(self, value: Any) -> float:
        """Return the middle of the numbers for which value() returns this value."""
        raise NotImplementedError

    def read(self, row: Sequence[float], start: int) -> Any:
        """Return the value in its columns of a point, which begin at `start`."""
        raise NotImplementedError

    def write(self, row: list[float], start: int, value: Any) -> None:
        """Write a value into its columns of a point, which contain `blank` before.

        The inverse of read().
        """
        raise NotImplementedError

    def clean(self, name: str, value: Any) -> Any:
        """Return the value in the type of the parameter.

        Raises SpaceError if it is not one of its values.
        """
        raise NotImplementedError

    def levels(self, points: int) -> Sequence[Any]:
        """Return all values in order, or `points` of them if a number has more values."""
        raise NotImplementedError

    def nth(self, number: int) -> Any:
        """Return a value by its number, from 0 in the order of values.

        Only for scales with a count.
        """
        raise NotImplementedError

    def number(self, value: Any) -> int:
        """Return the number of a value. The inverse of nth()."""
        raise NotImplementedError


class FixedScale(Scale):
    """The scale of a fixed value. It has no column."""

    width, count, blank = 0, 1, 0.0

    def __init__(self, value: Any) -> None:
        self._value = value

    def value(self, u: float) -> Any:  # noqa: ARG002 - the scale has a single value
        return self._value

    def unit(self, value: Any) -> float:  # noqa: ARG002
        return 0.5

    def read(self, row: Sequence[float], start: int) -> Any:  # noqa: ARG002
        return self._value

    def write(self, row: list[float], start: int, value: Any) -> None:
        pass

    def clean(self, name: str, value: Any) -> Any:
        # 1 == True, but they are different values.
        own, other = identity(self._value), identity(value)
        if isinstance(other, bool) != isinstance(own, bool) or other != own:
            raise SpaceError(f"{name}: {value!r} is not its fixed value; use {self._value!r} or leave it out")
        return self._value

    def levels(self, points: int) -> Sequence[Any]:  # noqa: ARG002
        return [self._value]

    def nth(self, number: int) -> Any:  # noqa: ARG002
        return self._value

    def number(self, value: Any) -> int:  # noqa: ARG002
        return 0


class _NumericScale(Scale):
    """The scale of numbers from `first` to `last`, linear or logarithmic."""

    width = 1
    blank = 0.5

    def __init__(self, first: float, last: float, log: bool) -> None:
        self.log = log
        self.start = math.log(first) if log else first
        self.span = (math.log(last) if log else last) - self.start

    def number_at(self, u: float) -> float:
        """Return the number at `u` in [0, 1] on the scale, before rounding."""
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

    def evenly_spaced(self, low: float, high: float, points: int) -> list[Any]:
        """Return `points` values from low to high, evenly on the scale; the middle if `points` is 1."""
        if points == 1:
            return [self.value(0.5)]
        first, last = self.unit(low), self.unit(high)
        return [self.value(first + (last - first) * i / (points - 1)) for i in range(points)]


class FloatScale(_NumericScale):
    """The scale of a Float without a step."""

    def __init__(self, low: float, high: float, log: bool) -> None:
        self.low, self.high = low, high
        self.count = 1 if low == high else None
        # Such a short log scale is almost linear, and 12 digits would be too coarse for it.
        super().__init__(low, high, log and high > low * (1 + 1e-6))
        # A constant needs no lattice, because value() returns one of its bounds.
        self.decimals = 12 - math.floor(math.log10(self.span)) if self.span and not self.log else 0
        self.first, self.last = self.snap(low), self.snap(high)

    def snap(self, x: float) -> float:
        """Return the lattice point nearest to x. Adding 0.0 turns -0.0 into 0.0."""
        return float(f"{x:.11e}") if self.log else round(x, self.decimals) + 0.0

    def value(self, u: float) -> float:
        # A bound that is not on the lattice replaces the lattice point nearest to it. All values between the
        # bounds are then lattice points, and decode(encode()) returns them unchanged.
        x = self.snap(self.number_at(u))
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
        return list(dict.fromkeys(self.evenly_spaced(self.low, self.high, points)))

    def nth(self, number: int) -> float:  # noqa: ARG002 - only a constant has a count
        return self.low

    def number(self, value: Any) -> int:  # noqa: ARG002
        return 0


class IntScale(_NumericScale):
    """The scale of an Int without a step.

    Each value covers half a unit of the scale to both sides.
    """

    def __init__(self, low: int, high: int, log: bool) -> None:
        self.low, self.high = low, high
        self.count = self.high - self.low + 1
        super().__init__(self.low - 0.5, self.high + 0.5, log)

    def value(self, u: float) -> int:
        k = math.floor(self.number_at(u) + 0.5)
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
        for i, k in enumerate(self.evenly_spaced(self.low, self.high, points)):
            # A log scale would repeat small numbers: increase them, but leave enough numbers for the later ones.
            least = chosen[-1] + 1 if chosen else self.low
            chosen.append(min(max(k, least), self.high - (points - 1 - i)))
        return chosen

    def nth(self, number: int) -> int:
        return self.low + number

    def number(self, value: Any) -> int:
        return int(value) - self.low


class SteppedScale(Scale):
    """The scale of a Float or Int with a step: low, low + step, and so on to high."""

    width = 1
    blank = 0.5

    def __init__(self, low: float, high: float, step: float, count: int) -> None:
        """`count`: the number of values. The last is `high`, except for a rounding error."""
        self.low, self.high, self.step = low, high, step
        self.count = count
        self._last = count - 1
        self._whole = isinstance(low, int)
        # In decimals, so that three steps of 0.1 are 0.3, and not 0.30000000000000004.
        self._first, self._decimal_step = Decimal(str(low)), Decimal(str(step))
        self._numbers = IntScale(0, count - 1, log=False)

    def nth(self, number: int) -> Any:
        if number in (0, self._last):
            return self.high if number else self.low
        if self._whole:
            return self.low + number * self.step
        return float(self._first + number * self._decimal_step) + 0.0

    def number(self, value: Any) -> int:
        """Return the number of the nearest value."""
        nearest = round((value - self.low) / self.step)
        return int(min(max(nearest, 0), self._last))

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
        nearest = self.nth(self.number(number))
        if abs(nearest - number) > _OFF_STEP * self.step:
            raise SpaceError(
                f"{name}: {value} is no step of {self.step} from {self.low}; the nearest is {nearest}"
            )
        return nearest

    def levels(self, points: int) -> Sequence[Any]:
        return [self.nth(number) for number in self._numbers.levels(points)]


class ChoiceScale(Scale):
    """The scale of a Choice.

    Each choice has a column, with 1 for the chosen one and 0 for all others.
    """

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
        columns = row[start : start + self.width]
        return self.choices[columns.index(max(columns))]

    def write(self, row: list[float], start: int, value: Any) -> None:
        row[start + self.number(value)] = 1.0

    def clean(self, name: str, value: Any) -> Any:
        try:
            return self.choices[self.number(value)]
        except (KeyError, TypeError):
            known = ", ".join(map(repr, self.choices))
            raise SpaceError(f"{name}: {value!r} is not among its choices; use one of {known}") from None

    def levels(self, points: int) -> Sequence[Any]:  # noqa: ARG002 - all choices are returned
        return self.choices

    def nth(self, number: int) -> Any:
        return self.choices[number]

    def number(self, value: Any) -> int:
        try:
            return self.index[value]
        except TypeError:  # a list, or a tuple that contains one
            return self.index[identity(value)]
