"""What does a useful hour on this machine cost, from now on? And how much of an hour is useful?

A machine costs `price` an hour and is lost at a rate of `hazard` an hour. Every start takes `start` hours, of
which `unbilled` are not paid for; at a loss `redo` hours of work have to be done again. Without refunds, one is
used until it is lost: an hour of work takes 1 + hazard (start + redo) hours, and all but the unbilled ones cost.

Where what the provider takes in the first `free` hours is let off, one may leave at their end, and take a new one.
With p = 1 - exp(-hazard free) that stint costs (1 - p) price free, and has p / hazard - start hours of work, less
what is lost with it. That pays where machines are often taken; SpotTune's Eq. 2 is the case of no start and loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CostPerUsefulHour:
    """Of a way to use machines of a kind."""

    dollars: float  # an hour of useful work
    useful: float  # hours of it in an hour
    rotates: bool = False  # leaves when nothing is let off any more


NEVER = CostPerUsefulHour(math.inf, 0.0)


def held(
    price: float, hazard: float, start: float, unbilled: float, redo: float, overhead: float = 0.0
) -> CostPerUsefulHour:
    """Until it is lost, time and again. `overhead`: of the work, for saving."""
    hours = 1.0 + overhead + hazard * (start + redo)
    return CostPerUsefulHour(price * (hours - hazard * unbilled), 1.0 / hours)


def rotated(
    price: float,
    hazard: float,
    start: float,
    unbilled: float,
    redo: float,
    free: float,
    overhead: float = 0.0,
    lived: float | None = None,
) -> CostPerUsefulHour:
    """For the hours in which a loss is let off, time and again. `lived`: of these hours, those that a machine is
    expected to be there, where that is known better: most that are lost are lost soon."""
    lost = -math.expm1(-hazard * free)
    there = _there(hazard, lost, free) if lived is None else lived
    work = (there - (start - unbilled) - lost * redo) / (1.0 + overhead)
    if work <= 0.0:
        return NEVER
    return CostPerUsefulHour((1.0 - lost) * price * free / work, work / (there + unbilled), rotates=True)


def staying(
    price: float,
    hazard: float,
    age: float,
    redo: float,
    free: float,
    overhead: float = 0.0,
    lived: float | None = None,
) -> CostPerUsefulHour:
    """To the end of the hours in which a loss is let off, of which `age` are over: what has to be paid anyway if
    one leaves now is no cost of staying."""
    rest = free - age
    lost = -math.expm1(-hazard * rest)
    there = _there(hazard, lost, rest) if lived is None else lived
    work = max(1e-9, (there - lost * redo) / (1.0 + overhead))
    return CostPerUsefulHour(max(0.0, ((1.0 - lost) * free - age) * price / work), min(1.0, work / there))


def _there(hazard: float, lost: float, hours: float) -> float:
    return lost / hazard if hazard > 1e-12 else hours
