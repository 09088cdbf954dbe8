"""The cost of a useful hour on a machine, and its useful share of time.

A machine costs `price` dollars per hour and is preempted at a rate of `hazard` per hour. Every start takes `start`
hours, `unbilled` of which cost nothing. A preemption loses `redo` hours of work. Without refunds, a machine is
used until it is preempted: an hour of work takes 1 + hazard (start + redo) hours, all billed except the unbilled
ones.

If the provider refunds machines that it preempts in their first `refunded` hours, a trial may leave its machine at
the end of these hours and rent a new one. With p = 1 - exp(-hazard refunded), each such rental costs (1 - p) price
refunded, and does p / hazard - start hours of work, less the work that preemptions lose. This is cheaper if
preemptions are frequent. SpotTune's Eq. 2 is the case without start and lost work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UsefulHourCost:
    """The cost of one way to use machines of a type."""

    dollars: float  # per hour of useful work
    useful_share: float  # hours of useful work per hour
    rotates: bool = False  # the trial leaves a machine when its refund period ends


_MIN_WORK_HOURS = 1e-9  # avoids a division by zero
_NO_HAZARD = 1e-12  # per hour; below it a machine counts as never preempted

UNUSABLE = UsefulHourCost(math.inf, 0.0)
"""The cost of machines on which no work can be done."""


def cost_until_preempted(
    price: float, hazard: float, start: float, unbilled: float, redo: float, overhead: float = 0.0
) -> UsefulHourCost:
    """Return the cost of using each machine until it is preempted.

    `overhead` is the time for saves, as a share of the work.
    """
    hours = 1.0 + overhead + hazard * (start + redo)
    return UsefulHourCost(price * (hours - hazard * unbilled), 1.0 / hours)


def cost_of_rotation(
    price: float,
    hazard: float,
    start: float,
    unbilled: float,
    redo: float,
    refunded: float,
    overhead: float = 0.0,
    alive_hours: float | None = None,
) -> UsefulHourCost:
    """Return the cost of using each machine only for its refund period.

    The machines are used one after the other. `alive_hours` is the part of the refund period for which a machine
    is expected to live. Give it if lifetimes are known: most preemptions are early, which a constant hazard
    ignores.
    """
    preempted = -math.expm1(-hazard * refunded)
    alive = _expected_alive_hours(hazard, preempted, refunded) if alive_hours is None else alive_hours
    work = (alive - (start - unbilled) - preempted * redo) / (1.0 + overhead)
    if work <= 0.0:
        return UNUSABLE
    dollars = (1.0 - preempted) * price * refunded / work
    return UsefulHourCost(dollars, work / (alive + unbilled), rotates=True)


def cost_until_refund_ends(
    price: float,
    hazard: float,
    age: float,
    redo: float,
    refunded: float,
    overhead: float = 0.0,
    alive_hours: float | None = None,
) -> UsefulHourCost:
    """Return the cost of staying on a machine until its refund period ends.

    `age` is the machine's age in hours. The cost of the time before is not counted, because it must be paid even
    if the trial leaves now.
    """
    rest = refunded - age
    preempted = -math.expm1(-hazard * rest)
    alive = _expected_alive_hours(hazard, preempted, rest) if alive_hours is None else alive_hours
    work = max(_MIN_WORK_HOURS, (alive - preempted * redo) / (1.0 + overhead))
    dollars = max(0.0, ((1.0 - preempted) * refunded - age) * price / work)
    return UsefulHourCost(dollars, min(1.0, work / alive))


def _expected_alive_hours(hazard: float, preempted: float, hours: float) -> float:
    """Return how many of these hours a machine is expected to live.

    `preempted` is the probability that it does not survive them.
    """
    return preempted / hazard if hazard > _NO_HAZARD else hours
