"""What does a machine's life cost?

A provider's rule is data (`Billing`): a machine's life goes in, a `Bill` comes out. Sums are exact, as if done
with pencil and paper: a number counts as the decimal it is written as, and nothing is rounded before a `Bill`, or
the sum of many, is asked for its cents. Times are taken to the microsecond, so that the noise of float arithmetic
never begins another hour.
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

_MICRO = 1_000_000
_HOUR = 3600 * _MICRO


@runtime_checkable
class VariablePrice(Protocol):
    """Dollars an hour over time, in unix seconds; a PriceSeries is one."""

    def price_at(self, t: Any) -> Any:
        """At `t`, or at each of an array of them."""
        ...

    def mean(self, t0: Any, t1: Any) -> Any:
        """From `t0` to `t1`, weighted by time."""
        ...


@dataclass(frozen=True, slots=True)
class Bill:
    """Dollars, exact. Bills add up: `sum(bills, Bill())`.

    - `machine`: for the time; what the provider let off is not in it.
    - `data`: for data moved.
    - `refunded`: what the provider let off since it took the machine away.
    """

    machine: Fraction = Fraction(0)
    data: Fraction = Fraction(0)
    refunded: Fraction = Fraction(0)

    @property
    def dollars(self) -> float:
        """To be paid, not rounded."""
        return float(self.machine + self.data)

    @property
    def rounded(self) -> Decimal:
        """To be paid, to the cent; half a cent counts as one."""
        return Decimal(math.floor((self.machine + self.data) * 100 + Fraction(1, 2))).scaleb(-2)

    def __add__(self, other: Bill) -> Bill:
        return Bill(self.machine + other.machine, self.data + other.data, self.refunded + other.refunded)


@dataclass(frozen=True, slots=True, kw_only=True)
class Billing:
    """How a provider counts.

    - `granularity_seconds`: time is billed in whole ones of these; one that has begun counts.
    - `least_seconds`: so much is billed even of a shorter life.
    - `price_held_seconds`: a moving price is looked up when the machine's life starts and every so many seconds
      of it, and holds in between. With 0 it is billed as it moves.
    - `refunded_first_seconds`: a machine that the provider takes before it is so old is free.
    - `unfinished_is_free`: of a machine that the provider takes, the granule that it had begun is free.
    - `by_use`: billed are not the seconds that it was there, but those for which functions used it.
    - `dollars_per_gb`: of data moved. That is never refunded.
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
            _check(f"billing: {field.name}", getattr(self, field.name))
        if _micros(_exact(self.granularity_seconds)) < 1:
            raise SettingError(
                f"billing: granularity_seconds: {self.granularity_seconds:g} is below a microsecond"
            )
        if self.by_use and self.price_held_seconds:
            raise SettingError(
                "billing: price_held_seconds: goes by a machine's life, and by_use does not; give one"
            )

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
        """What a machine costs that was there from `start` to `end`.

        - `price`: dollars an hour. A moving one is never asked beyond `end`: what is billed beyond it, to fill a
          granule or the minimum, has the price at which the last granule of its life began.
        - `revoked`: the provider took it away.
        - `busy_seconds`: how long functions used it, all of it: half of it for a minute counts as 30 seconds. With
          a moving price they cost the mean over its life.
        """
        if not (math.isfinite(start) and math.isfinite(end) and start <= end):
            raise SettingError(
                f"billing: a machine's life from {start!r} to {end!r}: must end at its start or later"
            )
        lived = used = _micros(_exact(end) - _exact(start))
        if self.by_use:
            if busy_seconds is None:
                raise SettingError("billing: goes by use; give busy_seconds, for which functions used the machine")
            used = _micros(_exact(_check("billing: busy_seconds", busy_seconds)))

        def dollars(micros: int) -> Fraction:
            parts = self._priced(start, end, lived, micros, price)
            return sum((_exact(_check("billing: price", each)) * part for each, part in parts), Fraction()) / _HOUR

        data = _exact(_check("billing: gb_moved", gb_moved)) * _exact(self.dollars_per_gb)
        gross = dollars(int(self._billed(lived, used, False)))
        paid = dollars(int(self._billed(lived, used, True))) if revoked else gross
        return Bill(paid, data, gross - paid)

    def billed_seconds(self, seconds: ArrayLike, *, revoked: bool = False) -> NDArray[np.float64]:
        """How many seconds are billed of a machine's life of so many, and of each of an array of them.

        At a constant price the rest is a product. By use, it is for a machine that was used all its life.
        """
        given = np.asarray(seconds, dtype=float)
        if not (np.isfinite(given).all() and (given >= 0).all()):
            raise SettingError("billing: seconds: must be numbers, 0 or more")
        lived = np.rint(given * _MICRO).astype(np.int64)
        return np.asarray(self._billed(lived, lived, revoked) / _MICRO)

    def _billed(self, lived: Any, used: Any, revoked: bool) -> Any:
        """Microseconds out of microseconds, of a whole number or of each of an array of them."""
        granule = _micros(_exact(self.granularity_seconds))
        least = -(-_micros(_exact(self.least_seconds)) // granule) * granule
        full = np.maximum(-(-used // granule) * granule, least)
        if not revoked:
            return full
        refunded = lived < _micros(_exact(self.refunded_first_seconds))
        return np.where(refunded, 0, used // granule * granule if self.unfinished_is_free else full)

    def _priced(
        self, start: float, end: float, lived: int, billed: int, price: float | VariablePrice
    ) -> Iterator[tuple[float, int]]:
        """The microseconds billed, in parts that have one price an hour each."""
        if not isinstance(price, VariablePrice):
            yield price, billed
        elif self.by_use:
            yield float(price.mean(start, end) if lived else price.price_at(start)), billed
        elif self.price_held_seconds:
            held = _micros(_exact(self.price_held_seconds))
            times = start + self.price_held_seconds * np.arange(max(-(-lived // held), 1))
            for number, each in enumerate(np.asarray(price.price_at(times)).tolist(), start=1):
                part = billed if number == len(times) else min(billed, held)
                yield each, part
                billed -= part
        else:
            granule = _micros(_exact(self.granularity_seconds))
            whole = min(lived // granule * granule, billed)
            if whole:
                yield float(price.mean(start, end if whole == lived else start + whole / _MICRO)), whole
            if billed > whole:
                begun = max(-(-lived // granule) - 1, 0) * granule
                yield float(price.price_at(start + begun / _MICRO)), billed - whole


def _check(what: str, value: float) -> float:
    if not (isinstance(value, Real) and math.isfinite(value) and value >= 0):
        raise SettingError(f"{what}: {value!r} must be a number, 0 or more")
    return value


def _exact(value: float) -> Fraction:
    """As it is written: 0.1 is a tenth, which the float is not quite."""
    return Fraction(Decimal(repr(float(value))))


def _micros(seconds: Fraction) -> int:
    return round(seconds * _MICRO)


PER_SECOND = Billing(least_seconds=60)
"""Linux on demand: AWS since 2 October 2017 (What's New, "Announcing Amazon EC2 per second billing"), and Google
(cloud.google.com/compute/vm-instance-pricing, "Billing model", 2019 to 2026). RubberBand 3 assumes it."""

HOURLY = Billing(granularity_seconds=3600)
"""EC2 on demand before October 2017: an hour that has begun is billed as a whole one."""

EC2_SPOT_2016 = Billing(granularity_seconds=3600, price_held_seconds=3600, unfinished_is_free=True)
"""EC2 spot before October 2017: each hour of the machine's life at the price at its start, the last one in full if
its owner ends it and for nothing if EC2 does (EC2 FAQ of 2016, "Spot Instances")."""

EC2_SPOT = Billing(least_seconds=60, refunded_first_seconds=3600)
"""EC2 spot as SpotTune II-A has it: by the second at the market price, and free if EC2 takes the machine in its
first hour. AWS still does both for Linux (User Guide, "Billing for interrupted Spot Instances", 2026)."""

EC2_SPOT_HELD = Billing(least_seconds=60, price_held_seconds=3600, refunded_first_seconds=3600)
"""As before, but the price changes with the hours of the machine's life only, as the EC2 FAQ has it since 2017. It
makes a difference where prices are as wild as they were until then."""

GCP_PREEMPTIBLE = Billing(least_seconds=60, refunded_first_seconds=60)
"""Google's preemptible and spot machines: by the second, a minute at least, and free if preempted in their first
minute (Compute Engine documentation, "Preemptible VM instances" and "Spot VMs", 2026)."""

_RULES = {  # by the catalog's provider, and whether it is a spot machine
    ("AWS", False): PER_SECOND,
    ("AWS", True): EC2_SPOT,
    ("GCP", False): PER_SECOND,
    ("GCP", True): GCP_PREEMPTIBLE,
}


def billing_rule(provider: str, *, spot: bool) -> Billing:
    """Return the rules of a provider of the catalog; plain seconds for one whose rules are not known."""
    return _RULES.get((provider, spot), Billing())


PER_FUNCTION = Billing(granularity_seconds=0.001, by_use=True)
"""Serverless, as RubberBand 4.1 has it: only what functions use. AWS Lambda counts milliseconds since December
2020, with no minimum (AWS News Blog, "1ms Billing Granularity"); it rounds every call up, here it is their sum."""
