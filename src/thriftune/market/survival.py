"""What must a model of lifetimes answer? The probability that a machine of this age lives another t hours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thriftune.errors import SettingError

Array = NDArray[np.float64]

HOURS_TOLERANCE = 1e-9
"""Hours, some microseconds: sums of hours that are as near are the same, but for rounding."""


_GRID = 4000
_LONGEST = 1e4  # hours


class Survival(Protocol):
    """How long machines of one kind live, by whatever it was learnt from. Hours throughout."""

    @property
    def end(self) -> float:
        """The age that no machine outlives; math.inf if there is none."""
        ...

    def survival(self, t: ArrayLike, age: ArrayLike = 0.0) -> float | Array:
        """The probability that a machine of this age lives another `t` hours, and longer.

        Arrays broadcast; floats give a float. It falls with t and is 0 from `end` on, where it may jump: what is
        left just before is the share of machines that are ended there.
        """
        ...


def alive(survival: Survival, t: ArrayLike, age: ArrayLike = 0.0) -> Array:
    """`survival.survival` as an array. A machine as old as `end`, or older than it should be, counts as lost."""
    t, age = np.broadcast_arrays(np.asarray(t, dtype=float), np.asarray(age, dtype=float))
    lost = age + t >= survival.end - HOURS_TOLERANCE
    # A model need not answer for ages that cannot be: it is asked for age 0 in place of those past its end, and
    # where it holds that none lives so long, though its end is later, it may divide 0 by 0.
    with np.errstate(divide="ignore", invalid="ignore"):
        told = np.asarray(survival.survival(t, np.where(age >= survival.end, 0.0, age)), dtype=float)
    return np.where(lost | np.isnan(told), 0.0, told)


@dataclass(frozen=True)
class ScaledSurvival:
    """As `known`, with losses at so many times the rate at every age."""

    known: Survival
    rate: float

    @property
    def end(self) -> float:
        return self.known.end

    def survival(self, t: ArrayLike, age: ArrayLike = 0.0) -> float | Array:
        told: Array = np.asarray(self.known.survival(t, age)) ** self.rate
        return told[()]


class LifetimeSampler:
    """How long machines live, in hours, drawn from a survival of whatever form."""

    def __init__(self, survival: Survival) -> None:
        longest = min(survival.end, _LONGEST)
        self._hours = longest * np.linspace(0.0, 1.0, _GRID) ** 3  # finer towards 0: many live for minutes only
        self._dead = 1.0 - alive(survival, self._hours)

    def hours_at(self, drawn: ArrayLike) -> Array:
        """By numbers that were drawn evenly from 0 to 1; inf of a machine that outlives all that is known."""
        drawn = np.asarray(drawn, dtype=float)
        hours = np.interp(drawn, self._dead, self._hours)
        return np.where((drawn >= self._dead[-1]) & (self._dead[-1] < 1.0), np.inf, hours)


def checked(name: str, value: ArrayLike, *, finite: bool = True) -> Array:
    """The value as an array, if it is a number of hours, seconds or dollars: not below 0, not NaN."""
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise SettingError(f"{name} {value!r} must be a number, 0 or more") from None
    wrong = ~(array >= 0.0) | (finite & np.isinf(array))
    if wrong.any():
        first = array[wrong][0] if array.ndim else array[()]
        raise SettingError(f"{name} {first:g} must be {'a number' if finite else 'a number or inf'}, 0 or more")
    return array


def checked_above_zero(name: str, value: float, *, finite: bool = True) -> float:
    if not isinstance(value, Real):
        raise SettingError(f"{name} {value!r} must be a number above 0")
    if not value > 0.0 or (finite and math.isinf(value)):
        raise SettingError(f"{name} {value:g} must be {'a number' if finite else 'a number or inf'} above 0")
    return value
