"""The protocol of lifetime models, and helpers for any such model."""

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
"""3.6 microseconds. Times that differ by less count as equal, because rounding errors are that large."""


_GRID_POINTS = 4000  # rows of the table from which lifetimes are drawn
_MAX_SAMPLED_HOURS = 1e4  # the end of that table if machines have no age limit


class Survival(Protocol):
    """A model of how long machines of one kind live. All times are hours."""

    @property
    def end(self) -> float:
        """Return the age that no machine outlives; infinite if there is none."""
        ...

    def survival(self, t: ArrayLike, age: ArrayLike = 0.0) -> float | Array:
        """Return the probability that a machine lives more than another `t` hours.

        The machine has age `age`. Arrays broadcast, and floats give a float. The probability falls with `t` and is
        0 from `end` on. It may jump at `end`; the jump is the share of machines that are ended there.
        """
        ...


def alive(survival: Survival, t: ArrayLike, age: ArrayLike = 0.0) -> Array:
    """Return `survival.survival` as an array, 0 for ages from `end` on."""
    t, age = np.broadcast_arrays(np.asarray(t, dtype=float), np.asarray(age, dtype=float))
    lost = age + t >= survival.end - HOURS_TOLERANCE
    # A model may be undefined for ages past its end, so these are replaced by 0 and masked. It may also divide 0
    # by 0 before its end, if it gives that age a survival of 0.
    with np.errstate(divide="ignore", invalid="ignore"):
        probability = np.asarray(survival.survival(t, np.where(age >= survival.end, 0.0, age)), dtype=float)
    return np.where(lost | np.isnan(probability), 0.0, probability)


@dataclass(frozen=True)
class ScaledSurvival:
    """The survival of machines with a multiple of another model's hazard.

    The hazard is `rate` times that of `base` at every age.
    """

    base: Survival
    rate: float

    @property
    def end(self) -> float:
        return self.base.end

    def survival(self, t: ArrayLike, age: ArrayLike = 0.0) -> float | Array:
        probability: Array = np.asarray(self.base.survival(t, age)) ** self.rate
        return probability[()]


class LifetimeSampler:
    """A sampler of lifetimes in hours for any survival model.

    It looks lifetimes up in a table of the model's CDF.
    """

    def __init__(self, survival: Survival) -> None:
        longest = min(survival.end, _MAX_SAMPLED_HOURS)
        self._hours = longest * np.linspace(0.0, 1.0, _GRID_POINTS) ** 3  # finer near 0: many live only minutes
        self._cdf = 1.0 - alive(survival, self._hours)

    def hours_at(self, quantiles: ArrayLike) -> Array:
        """Return the lifetimes at these quantiles.

        Draw quantiles uniformly from 0 to 1 to sample lifetimes. A lifetime beyond the end of the table is
        infinite.
        """
        quantiles = np.asarray(quantiles, dtype=float)
        hours = np.interp(quantiles, self._cdf, self._hours)
        return np.where((quantiles >= self._cdf[-1]) & (self._cdf[-1] < 1.0), np.inf, hours)


def checked(name: str, value: ArrayLike, *, finite: bool = True) -> Array:
    """Return the value as an array of floats.

    Raise a SettingError if a number is negative or NaN, or if it is infinite and `finite` is true.
    """
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
    """Return the value if it is a number above 0.

    Otherwise, or if it is infinite and `finite` is true, raise a SettingError.
    """
    if not isinstance(value, Real):
        raise SettingError(f"{name} {value!r} must be a number above 0")
    if not value > 0.0 or (finite and math.isinf(value)):
        raise SettingError(f"{name} {value:g} must be {'a number' if finite else 'a number or inf'} above 0")
    return value


def count_cells(span_hours: float, resolution_hours: float, maximum: int, what: str) -> int:
    """Return how many equal cells of at most the resolution divide a span.

    Raises SettingError if there are more than `maximum`. `what` names the divided thing in the error.
    """
    cells = max(1, math.ceil(span_hours / resolution_hours - 1e-9))
    if cells > maximum:
        raise SettingError(
            f"resolution_hours {resolution_hours:g} cuts {span_hours:g} h of {what} into {cells} pieces, and "
            f"{maximum} is the maximum; give {span_hours / maximum:g} or more"
        )
    return cells
