"""Billing rules of providers and the bills that they give.

A rule is data (`Billing`). Its method `bill` computes the bill of one machine from its start, end and price.
Amounts are exact fractions: each float counts as the decimal that it is written as, and only `Bill.rounded`
rounds. Times are rounded to microseconds, so float noise cannot start another billed hour.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thriftune.errors import SettingError

_MICROSECONDS_PER_SECOND = 1_000_000
_MICROSECONDS_PER_HOUR = 3600 * _MICROSECONDS_PER_SECOND


@runtime_checkable
class VariablePrice(Protocol):
    """A price that changes over time, such as a `PriceSeries`.

    Prices are dollars per hour, and times are unix seconds.
    """

    def price_at(self, t: Any) -> Any:
        """Return the price at `t`; an array of times gives an array of prices."""
        ...

    def mean(self, t0: Any, t1: Any) -> Any:
        """Return the mean price from `t0` to `t1`, weighted by time."""
        ...


@dataclass(frozen=True, slots=True)
class Bill:
    """The exact cost of a machine in dollars.

    Bills can be added: `sum(bills, Bill())`.

    - `machine`: the charge for the machine's time, without the refunded amount.
    - `data`: the charge for moved data.
    - `refunded`: the amount that the provider does not charge because it preempted the machine.
    """

    machine: Fraction = Fraction(0)
    data: Fraction = Fraction(0)
    refunded: Fraction = Fraction(0)

    @property
    def dollars(self) -> float:
        """Return the amount to pay, not rounded to cents."""
        return float(self.machine + self.data)

    @property
    def rounded(self) -> Decimal:
        """Return the amount to pay, rounded to cents; half a cent is rounded up."""
        return Decimal(math.floor((self.machine + self.data) * 100 + Fraction(1, 2))).scaleb(-2)

    def __add__(self, other: Bill) -> Bill:
        return Bill(self.machine + other.machine, self.data + other.data, self.refunded + other.refunded)


@dataclass(frozen=True, slots=True, kw_only=True)
class Billing:
    """A provider's billing rule.

    - `granularity_seconds`: the billing unit. Time is rounded up to whole units.
    - `least_seconds`: the minimum time billed for each machine.
    - `price_held_seconds`: for prices that change, the interval between two price lookups. The first lookup is at
      the machine's start; each price holds until the next lookup. With 0, every price change counts at once.
    - `refunded_first_seconds`: a machine preempted before this age is free.
    - `unfinished_is_free`: for a preempted machine, the billing unit in progress is free.
    - `by_use`: bill the seconds in which functions used the machine, not the machine's whole life.
    - `dollars_per_gb`: the price of moved data, which is never refunded.
    """

    granularity_seconds: float = 1.0
    least_seconds: float = 0.0
    price_held_seconds: float = 0.0
    refunded_first_seconds: float = 0.0
    unfinished_is_free: bool = False
    by_use: bool = False
    dollars_per_gb: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            _checked(f"billing: {field.name}", getattr(self, field.name))
        if _microseconds(self.granularity_seconds) < 1:
            raise SettingError(
                f"billing: granularity_seconds: {self.granularity_seconds:g} must be at least a microsecond, 1e-06"
            )
        if self.by_use and self.price_held_seconds:
            raise SettingError("billing: price_held_seconds: cannot be combined with by_use; give one of them")

    def bill(
        self,
        start: float,
        end: float,
        price: float | VariablePrice,
        *,
        revoked: bool = False,
        busy_seconds: float | None = None,
        gb_moved: float = 0.0,
    ) -> Bill:
        """Return the bill of a machine that ran from `start` to `end`, in unix seconds.

        - `price`: dollars per hour. A `VariablePrice` is never queried after `end`. Time billed after `end`, to
          fill a billing unit or the minimum, costs the price at the start of the machine's last billing unit.
        - `revoked`: whether the provider preempted the machine.
        - `busy_seconds`: the time for which functions used the machine, needed with `by_use`. A minute on half of
          the machine counts as 30 seconds. These seconds cost the mean price over the machine's life.
        - `gb_moved`: the moved data in gigabytes.
        """
        if not (math.isfinite(start) and math.isfinite(end) and start <= end):
            raise SettingError(
                f"billing: a machine's life from {start!r} to {end!r}: must end at its start or later"
            )
        lived = used = round((_exact(end) - _exact(start)) * _MICROSECONDS_PER_SECOND)
        if self.by_use:
            if busy_seconds is None:
                raise SettingError(
                    "billing: this rule bills by use; give busy_seconds, how long functions used the machine"
                )
            used = _microseconds(_checked("billing: busy_seconds", busy_seconds))

        def dollars(billed: int) -> Fraction:
            intervals = self._price_intervals(start, end, lived, billed, price)
            charges = (_exact(_checked("billing: price", hourly)) * duration for hourly, duration in intervals)
            return sum(charges, Fraction()) / _MICROSECONDS_PER_HOUR

        data = _exact(_checked("billing: gb_moved", gb_moved)) * _exact(self.dollars_per_gb)
        gross = dollars(int(self._billed_microseconds(lived, used, False)))
        paid = dollars(int(self._billed_microseconds(lived, used, True))) if revoked else gross
        return Bill(paid, data, gross - paid)

    def billed_seconds(self, seconds: ArrayLike, *, revoked: bool = False) -> NDArray[np.float64]:
        """Return the billed seconds of machines that lived for `seconds`.

        `revoked` says whether the provider preempted them. With `by_use`, each machine counts as in use for its
        whole life.
        """
        lifetimes = np.asarray(seconds, dtype=float)
        if not (np.isfinite(lifetimes).all() and (lifetimes >= 0).all()):
            raise SettingError("billing: seconds: must be numbers, 0 or more")
        lived = np.rint(lifetimes * _MICROSECONDS_PER_SECOND).astype(np.int64)
        return np.asarray(self._billed_microseconds(lived, lived, revoked) / _MICROSECONDS_PER_SECOND)

    def _billed_microseconds(self, lived: Any, used: Any, revoked: bool) -> Any:
        """Return the billed microseconds of machines, as a number or an array.

        `lived` and `used` are the whole microseconds of their lives and of their use.
        """
        unit = _microseconds(self.granularity_seconds)
        minimum = -(-_microseconds(self.least_seconds) // unit) * unit
        full = np.maximum(-(-used // unit) * unit, minimum)
        if not revoked:
            return full
        refunded = lived < _microseconds(self.refunded_first_seconds)
        return np.where(refunded, 0, used // unit * unit if self.unfinished_is_free else full)

    def _price_intervals(
        self, start: float, end: float, lived: int, billed: int, price: float | VariablePrice
    ) -> Iterator[tuple[float, int]]:
        """Split the billed microseconds into intervals of constant price.

        Each interval is a pair (dollars per hour, microseconds).
        """
        if not isinstance(price, VariablePrice):
            yield price, billed
        elif self.by_use:
            yield float(price.mean(start, end) if lived else price.price_at(start)), billed
        elif self.price_held_seconds:
            interval = _microseconds(self.price_held_seconds)
            lookups = start + self.price_held_seconds * np.arange(max(-(-lived // interval), 1))
            for number, hourly in enumerate(np.asarray(price.price_at(lookups)).tolist(), start=1):
                duration = billed if number == len(lookups) else min(billed, interval)
                yield hourly, duration
                billed -= duration
        else:
            unit = _microseconds(self.granularity_seconds)
            whole = min(lived // unit * unit, billed)
            if whole:
                whole_end = end if whole == lived else start + whole / _MICROSECONDS_PER_SECOND
                yield float(price.mean(start, whole_end)), whole
            if billed > whole:
                last_unit = max(-(-lived // unit) - 1, 0) * unit
                yield float(price.price_at(start + last_unit / _MICROSECONDS_PER_SECOND)), billed - whole


def _checked(name: str, value: float) -> float:
    if not (isinstance(value, Real) and math.isfinite(value) and value >= 0):
        raise SettingError(f"{name}: {value!r} must be a number, 0 or more")
    return value


def _exact(value: float) -> Fraction:
    """Return the decimal that the float is written as: 0.1 becomes exactly one tenth."""
    return Fraction(Decimal(repr(float(value))))


def _microseconds(seconds: float) -> int:
    return round(_exact(seconds) * _MICROSECONDS_PER_SECOND)


PER_SECOND = Billing(least_seconds=60)
"""On-demand Linux machines, billed by the second for at least a minute.

AWS has billed this way since 2 October 2017 (What's New, "Announcing Amazon EC2 per second billing"), and Google
from 2019 to 2026 (cloud.google.com/compute/vm-instance-pricing, "Billing model"). Section 3 of RubberBand assumes
it.
"""

HOURLY = Billing(granularity_seconds=3600)
"""On-demand EC2 before October 2017: each started hour is billed in full."""

EC2_SPOT_2016 = Billing(granularity_seconds=3600, price_held_seconds=3600, unfinished_is_free=True)
"""EC2 spot before October 2017 (EC2 FAQ of 2016, "Spot Instances").

Each hour of the machine's life costs the price at the start of that hour. The last hour is billed in full if the
user ends the machine, and is free if EC2 preempts it.
"""

EC2_SPOT = Billing(least_seconds=60, refunded_first_seconds=3600)
"""EC2 spot as in SpotTune, section II-A: by the second at the market price, free if preempted in the first hour.

AWS still bills Linux this way in 2026 (User Guide, "Billing for interrupted Spot Instances").
"""

EC2_SPOT_HELD = Billing(least_seconds=60, price_held_seconds=3600, refunded_first_seconds=3600)
"""`EC2_SPOT`, but each hour of the machine's life costs the price at the start of that hour.

The EC2 FAQ has said this since 2017. The difference matters only for prices that change as often as they did until
2017.
"""

GCP_PREEMPTIBLE = Billing(least_seconds=60, refunded_first_seconds=60)
"""Google's preemptible and spot machines: by the second, at least a minute, free if preempted in the first minute.

Source: Compute Engine documentation of 2026, "Preemptible VM instances" and "Spot VMs".
"""

_RULES = {  # keys: (provider in the catalog, whether the machine is a spot machine)
    ("AWS", False): PER_SECOND,
    ("AWS", True): EC2_SPOT,
    ("GCP", False): PER_SECOND,
    ("GCP", True): GCP_PREEMPTIBLE,
}


def billing_rule(provider: str, *, spot: bool) -> Billing:
    """Return the billing rule of a provider in the catalog.

    A provider without a known rule is billed by the second.
    """
    return _RULES.get((provider, spot), Billing())


PER_FUNCTION = Billing(granularity_seconds=0.001, by_use=True)
"""Serverless functions, as in RubberBand, section 4.1: only the time in use is billed.

AWS Lambda has billed by the millisecond since December 2020, without a minimum (AWS News Blog, "1ms Billing
Granularity"). Lambda rounds up each call; this rule rounds up their sum.
"""
