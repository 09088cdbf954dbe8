"""Which offer gives a useful step for the fewest dollars, and why? SpotTune Eq. 1-2, SciSpot Eq. 11.

A job uses machines of one offer, one after the other. On each it starts (`restart_seconds`), works and saves in
turn, and saves at last when the machine's stint is over: its steps are done, or its hours are up. If the machine
is lost before, the work since the last checkpoint is done again, on the next one. By renewal,

    dollars a step = E[dollars of a stint] / E[steps of a stint that are kept],

- E[dollars]: the hours that the machine lives of the stint, at its price; what the provider's billing adds to them
  (whole hours, a minimum), and what it lets off where it takes the machine away;
- work is kept if the machine lives until it is saved. With a notice that is long enough for a checkpoint, that is
  what was done until a checkpoint's time before the loss; else, what a finished checkpoint holds.

SciSpot's n c E[T] is the case of one stint for the whole job, without refund, notice or checkpoints. SpotTune's
M (1 - p) price is that of a stint of one hour with a refund and a notice, at the end of which machines are lost:
it counts the steps of a whole hour, also for a machine that is lost within it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from thriftune.errors import SettingError
from thriftune.market.billing import Billing
from thriftune.market.running_time import expected_waste, failure_probability, lived_hours
from thriftune.market.survival import HOURS_TOLERANCE, Array, Survival, alive, checked, checked_above_zero

_HOUR = 3600.0
_PIECES = 1024  # of a stint
_MOST_SEGMENTS = 20_000

TO_THE_MOMENT = Billing(granularity_seconds=1e-6)
"""No provider counts so; it is what the papers' formulas assume."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An offer as a job sees it.

    - `survival`: of all its machines together, if there are several: the stint ends with the first that is lost.
    - `seconds_per_step`: of the job, on all of them.
    - `price_per_hour`: dollars, of one.
    - `notice_seconds`: from the provider's warning to the loss.
    - `billing`: how the provider counts; by default, the time that the machine lives, to the moment.
    """

    name: str
    price_per_hour: float
    seconds_per_step: float
    survival: Survival
    machines: int = 1
    notice_seconds: float = 0.0
    billing: Billing = TO_THE_MOMENT

    def __post_init__(self) -> None:
        checked(f"{self.name}: price_per_hour", self.price_per_hour)
        checked_above_zero(f"{self.name}: seconds_per_step", self.seconds_per_step)
        checked_above_zero(f"{self.name}: machines", self.machines)
        checked(f"{self.name}: notice_seconds", self.notice_seconds, finite=False)
        if not isinstance(self.billing, Billing):
            raise SettingError(f"{self.name}: billing {self.billing!r} must be a Billing, as billing.EC2_SPOT")


@dataclass(frozen=True, slots=True)
class Stint:
    """How the job uses a machine: for so many steps, or so many hours if these are over sooner."""

    steps: float = math.inf
    hours: float = math.inf
    checkpoint_every_seconds: float = math.inf  # of work; inf: only at the stint's end, and on notice
    checkpoint_seconds: float = 0.0
    restart_seconds: float = 0.0  # on the machine's bill, before its first step

    def __post_init__(self) -> None:
        for name in ("steps", "hours", "checkpoint_every_seconds"):
            checked_above_zero(name, getattr(self, name), finite=False)
        checked("checkpoint_seconds", self.checkpoint_seconds)
        checked("restart_seconds", self.restart_seconds)
        if math.isinf(self.steps) and math.isinf(self.hours):
            raise SettingError("a stint has no end: give steps=, or hours=, for which a machine is used at most")
        least = (self.restart_seconds + self.checkpoint_seconds) / _HOUR
        if self.hours <= least:
            raise SettingError(f"hours {self.hours:g}: starting and saving take {least:g} h: give more")


@dataclass(frozen=True, slots=True)
class OfferStepCost:
    """What a useful step costs on an offer, in dollars, and what the parts of it are."""

    name: str
    dollars: float  # the sum of those below; inf where no work is ever kept
    work: float  # the step itself
    lost: float  # work that was done and lost
    checkpoints: float  # saving
    restarts: float  # starting
    rounding: float  # time that is billed and was not had: the rest of an hour, or of the least that is billed
    refund: float  # what the provider gave back, 0 or below
    seconds: float  # of machine time, with all of the above
    failure_probability: float  # of a stint


def rank(candidates: Iterable[Candidate], stint: Stint) -> list[OfferStepCost]:
    """What a useful step costs on each, the cheapest first; the first given, where they cost the same."""
    return sorted((step_cost(candidate, stint) for candidate in candidates), key=lambda cost: cost.dollars)


def step_cost(candidate: Candidate, stint: Stint) -> OfferStepCost:
    """What a useful step costs on this offer, by renewal."""
    begun, ended, saved = _segments(candidate, stint)
    survival, until = candidate.survival, saved[-1]
    save = stint.checkpoint_seconds / _HOUR
    starting = _lived(survival, begun[:1]).sum()
    working = (_lived(survival, ended) - _lived(survival, begun)).sum()
    saving = (_lived(survival, saved) - _lived(survival, ended)).sum()
    if candidate.notice_seconds > 0.0 and candidate.notice_seconds >= stint.checkpoint_seconds:
        kept = (_lived(survival, ended + save) - _lived(survival, begun + save)).sum()
    else:
        kept = ((ended - begun) * alive(survival, saved)).sum()
    beyond, refunded = _by_billing(candidate.billing, survival, float(until))
    refunded = min(refunded, float(working + saving + starting) + beyond)  # but for rounding, it never is more
    step = candidate.seconds_per_step / _HOUR
    failure = float(failure_probability(survival, until))
    if not kept > 0.0:
        inf = math.inf
        return OfferStepCost(candidate.name, inf, inf, inf, inf, inf, inf, 0.0, inf, failure)
    price = candidate.price_per_hour * candidate.machines * step
    work, lost, checkpoints, restarts, rounding, refund = (
        float(price * hours / kept) for hours in (kept, working - kept, saving, starting, beyond, -refunded)
    )
    return OfferStepCost(
        name=candidate.name,
        dollars=work + lost + checkpoints + restarts + rounding + refund,
        work=work,
        lost=lost,
        checkpoints=checkpoints,
        restarts=restarts,
        rounding=rounding,
        refund=refund,
        seconds=candidate.seconds_per_step * float((working + saving + starting) / kept),
        failure_probability=failure,
    )


def spottune_eq2(seconds_per_step: float, price_per_hour: float, revocation_probability: float) -> float:
    """Dollars a step as printed, M (1 - p) price, with p the probability of a revocation within the next hour."""
    return seconds_per_step / _HOUR * (1.0 - revocation_probability) * price_per_hour


def scispot_eq11(machines: int, price_per_hour: float, expected_hours: float) -> float:
    """Dollars of a job as printed, n c E[T]; E[T] as printed is `scispot_eq9`."""
    return machines * price_per_hour * expected_hours


def _segments(candidate: Candidate, stint: Stint) -> tuple[Array, Array, Array]:
    """The ages at which each segment of work begins, ends, and is saved."""
    start, save = stint.restart_seconds / _HOUR, stint.checkpoint_seconds / _HOUR
    free = stint.hours - start
    work = min(stint.steps * candidate.seconds_per_step / _HOUR, free - save)
    every = min(stint.checkpoint_every_seconds / _HOUR, work)
    if free < math.inf:
        whole = math.floor(free / (every + save) + 1e-9)
        rest = free - whole * (every + save) - save
        work = min(work, whole * every + max(0.0, rest))
    count = max(1.0, math.ceil(work / every - 1e-9))
    if count > _MOST_SEGMENTS:
        raise SettingError(
            f"a stint of {count:g} segments is too long to look at, {_MOST_SEGMENTS:g} is the most: give fewer "
            "steps=, fewer hours=, or a larger checkpoint_every_seconds="
        )
    number = np.arange(count)
    begun = start + number * (every + save)
    ended = begun + np.minimum(every, work - every * number)
    return begun, ended, ended + save


def _by_billing(billing: Billing, survival: Survival, until: float) -> tuple[float, float]:
    """Of a stint, the expected hours that are billed beyond those that the machine lived, and those let off.

    The hours that are let off whole are exact. What depends on where in an hour a machine is lost is summed over
    short pieces of the stint.
    """
    first, granule = billing.refunded_first_seconds / _HOUR, billing.granularity_seconds / _HOUR
    edges = [np.linspace(0.0, until, _PIECES + 1), np.array([first, billing.least_seconds / _HOUR])]
    if until < _PIECES * granule:
        edges.append(granule * np.arange(1.0, until / granule))
    ends = np.unique(np.clip(np.concatenate(edges), 0.0, until))
    there = alive(survival, ends)
    lost, lives = -np.diff(there), ends[1:] - HOURS_TOLERANCE  # who is lost just then has not lived longer
    full = billing.billed_seconds(_HOUR * lives) / _HOUR
    paid = billing.billed_seconds(_HOUR * lives, revoked=True) / _HOUR
    whole = float(billing.billed_seconds(_HOUR * until)) / _HOUR
    beyond = float(lost @ (full - lives) + there[-1] * (whole - until))
    refunded = float(lost @ (full - paid - np.where(lives < first, lives, 0.0)))
    within = min(first, until)
    revoked = float(failure_probability(survival, within))
    if revoked > 0.0:
        refunded += revoked * float(expected_waste(survival, within))
    return max(0.0, beyond), max(0.0, refunded)


def _lived(survival: Survival, ages: Array) -> Array:
    """The hours a fresh machine is expected to live until each of these ages."""
    return np.asarray(lived_hours(survival, ages))
