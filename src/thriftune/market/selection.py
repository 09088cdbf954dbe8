"""The ranking of offers by the cost of a useful step.

The method generalises SpotTune Eq. 1-2 and SciSpot Eq. 11.

A job uses machines of one offer, one after the other. On each machine it starts (`restart_seconds`), then
alternates between work and checkpoints. Its stint on the machine ends with a checkpoint, when its steps are done
or its hours are over. If the machine is lost earlier, the next machine repeats the work since the last checkpoint.
By renewal theory,

    dollars per step = E[dollars of a stint] / E[saved steps of a stint].

- The dollars of a stint are the hours that the machine lives, at its price, plus the time that the billing rule
  adds (whole hours, a minimum), minus the refund if the provider preempts the machine.
- Work is saved if the machine lives until the end of the next checkpoint. If the notice is long enough for a
  checkpoint, the checkpoint is made at the notice and saves all work until then.

The papers' formulas are special cases:

- SciSpot's dollars of a job are n c E[T]: the number of machines, their price and the expected hours. This has one
  stint for the whole job, without refund, notice or checkpoints.
- SpotTune's dollars per step are M (1 - p) price: M is the time per step, and p the probability of a loss within
  the hour. This has a stint of one hour, with refund and notice, and machines are lost at its end. The formula
  counts the steps of a whole hour even for a machine that is lost within the hour.
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

_HOUR = 3600.0  # seconds
_BILLING_PIECES = 1024  # pieces of a stint over which the effects of billing units are summed
_MAX_SEGMENTS = 20_000  # segments of a stint; more would take too much memory

TO_THE_MOMENT = Billing(granularity_seconds=1e-6)
"""Bills exactly the time that the machine lives. No provider does, but the papers' formulas assume it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An offer with the figures that a job needs to compare it with others.

    - `survival`: the survival until the first of the `machines` is lost, which ends the stint.
    - `seconds_per_step`: the job's time per step on all `machines` together.
    - `price_per_hour`: the price of one machine in dollars.
    - `notice_seconds`: the time between the interruption notice and the loss.
    - `billing`: the provider's billing rule; by default exactly the time that the machine lives.
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
            raise SettingError(
                f"{self.name}: billing {self.billing!r} must be a Billing, such as billing.EC2_SPOT"
            )


@dataclass(frozen=True, slots=True)
class Stint:
    """The use of one machine by a job.

    It ends after `steps` or `hours`, whichever comes first.
    """

    steps: float = math.inf
    hours: float = math.inf
    checkpoint_every_seconds: float = math.inf  # seconds of work; inf: only at the stint's end and at a notice
    checkpoint_seconds: float = 0.0  # how long a checkpoint takes
    restart_seconds: float = 0.0  # billed time before the first step

    def __post_init__(self) -> None:
        for name in ("steps", "hours", "checkpoint_every_seconds"):
            checked_above_zero(name, getattr(self, name), finite=False)
        checked("checkpoint_seconds", self.checkpoint_seconds)
        checked("restart_seconds", self.restart_seconds)
        if math.isinf(self.steps) and math.isinf(self.hours):
            raise SettingError("a stint has no end; give steps= or hours=, the most for which a machine is used")
        overhead = (self.restart_seconds + self.checkpoint_seconds) / _HOUR
        if self.hours <= overhead:
            raise SettingError(
                f"hours {self.hours:g}: a restart and a checkpoint alone take {overhead:g} h; give more hours"
            )


@dataclass(frozen=True, slots=True)
class OfferStepCost:
    """The cost of a useful step on an offer in dollars, with its components."""

    name: str
    dollars: float  # the sum of the six components below; inf if no work is ever saved
    work: float  # dollars for the step itself
    lost: float  # dollars for work that was lost
    checkpoints: float  # dollars for the time of checkpoints
    restarts: float  # dollars for the time of restarts
    rounding: float  # dollars for time billed beyond the machine's life, to fill a billing unit or the minimum
    refund: float  # refunded dollars, 0 or negative
    seconds: float  # machine time per useful step, including lost work, checkpoints and restarts
    failure_probability: float  # the probability that the machine is lost during the stint


def rank(candidates: Iterable[Candidate], stint: Stint) -> list[OfferStepCost]:
    """Return the cost of a useful step on each offer, cheapest first.

    Offers of equal cost keep their order.
    """
    return sorted((step_cost(candidate, stint) for candidate in candidates), key=lambda cost: cost.dollars)


def step_cost(candidate: Candidate, stint: Stint) -> OfferStepCost:
    """Return the cost of a useful step on this offer.

    The module's docstring has the formula.
    """
    starts, ends, saves = _segments(candidate, stint)
    survival, stint_end = candidate.survival, saves[-1]
    checkpoint = stint.checkpoint_seconds / _HOUR
    # Expected hours of a stint.
    restarting = _lived(survival, starts[:1]).sum()
    working = (_lived(survival, ends) - _lived(survival, starts)).sum()
    saving = (_lived(survival, saves) - _lived(survival, ends)).sum()
    if candidate.notice_seconds > 0.0 and candidate.notice_seconds >= stint.checkpoint_seconds:
        useful = (_lived(survival, ends + checkpoint) - _lived(survival, starts + checkpoint)).sum()
    else:
        useful = ((ends - starts) * alive(survival, saves)).sum()
    rounding_hours, refund_hours = _billing_hours(candidate.billing, survival, float(stint_end))
    # Rounding errors must not make the refund larger than the bill.
    refund_hours = min(refund_hours, float(working + saving + restarting) + rounding_hours)
    step = candidate.seconds_per_step / _HOUR
    failure = float(failure_probability(survival, stint_end))
    if not useful > 0.0:
        inf = math.inf
        return OfferStepCost(candidate.name, inf, inf, inf, inf, inf, inf, 0.0, inf, failure)
    price = candidate.price_per_hour * candidate.machines * step
    work, lost, checkpoints, restarts, rounding, refund = (
        float(price * hours / useful)
        for hours in (useful, working - useful, saving, restarting, rounding_hours, -refund_hours)
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
        seconds=candidate.seconds_per_step * float((working + saving + restarting) / useful),
        failure_probability=failure,
    )


def spottune_eq2(seconds_per_step: float, price_per_hour: float, revocation_probability: float) -> float:
    """Return the dollars per step of SpotTune Eq. 2, as printed: M (1 - p) price.

    M is the time per step, and p the probability of a loss within the hour.
    """
    return seconds_per_step / _HOUR * (1.0 - revocation_probability) * price_per_hour


def scispot_eq11(machines: int, price_per_hour: float, expected_hours: float) -> float:
    """Return the dollars of a job by SciSpot Eq. 11, as printed: n c E[T].

    n is the number of machines and c their price per hour. `scispot_eq9` returns E[T] as printed.
    """
    return machines * price_per_hour * expected_hours


def _segments(candidate: Candidate, stint: Stint) -> tuple[Array, Array, Array]:
    """Return the machine's ages when each segment starts, ends and is saved.

    These are three arrays in hours. A segment is saved at the end of its checkpoint.
    """
    start, save = stint.restart_seconds / _HOUR, stint.checkpoint_seconds / _HOUR
    free = stint.hours - start
    work = min(stint.steps * candidate.seconds_per_step / _HOUR, free - save)
    every = min(stint.checkpoint_every_seconds / _HOUR, work)
    if free < math.inf:
        whole = math.floor(free / (every + save) + 1e-9)
        rest = free - whole * (every + save) - save
        work = min(work, whole * every + max(0.0, rest))
    count = max(1.0, math.ceil(work / every - 1e-9))
    if count > _MAX_SEGMENTS:
        raise SettingError(
            f"a stint of {count:g} segments is too long, {_MAX_SEGMENTS:g} is the maximum; give fewer steps=, "
            "fewer hours=, or a larger checkpoint_every_seconds="
        )
    number = np.arange(count)
    starts = start + number * (every + save)
    ends = starts + np.minimum(every, work - every * number)
    return starts, ends, ends + save


def _billing_hours(billing: Billing, survival: Survival, stint_end: float) -> tuple[float, float]:
    """Return the expected hours per stint that billing adds, and those it refunds.

    The added hours are billed beyond the machine's life. The refund of whole lifetimes is computed exactly.
    Effects that depend on the position within a billing unit are summed over short pieces of the stint.
    """
    free_until, unit = billing.refunded_first_seconds / _HOUR, billing.granularity_seconds / _HOUR
    edges = [
        np.linspace(0.0, stint_end, _BILLING_PIECES + 1),
        np.array([free_until, billing.least_seconds / _HOUR]),
    ]
    if stint_end < _BILLING_PIECES * unit:
        edges.append(unit * np.arange(1.0, stint_end / unit))
    ends = np.unique(np.clip(np.concatenate(edges), 0.0, stint_end))
    alive_at_ends = alive(survival, ends)
    # A machine lost at the end of a piece has not started another billing unit.
    loss_probabilities, lifetimes = -np.diff(alive_at_ends), ends[1:] - HOURS_TOLERANCE
    full = billing.billed_seconds(_HOUR * lifetimes) / _HOUR
    paid = billing.billed_seconds(_HOUR * lifetimes, revoked=True) / _HOUR
    whole_stint = float(billing.billed_seconds(_HOUR * stint_end)) / _HOUR
    rounding = float(loss_probabilities @ (full - lifetimes) + alive_at_ends[-1] * (whole_stint - stint_end))
    refunded = float(loss_probabilities @ (full - paid - np.where(lifetimes < free_until, lifetimes, 0.0)))
    free_hours = min(free_until, stint_end)
    free_probability = float(failure_probability(survival, free_hours))
    if free_probability > 0.0:
        refunded += free_probability * float(expected_waste(survival, free_hours))
    return max(0.0, rounding), max(0.0, refunded)


def _lived(survival: Survival, ages: Array) -> Array:
    """Return the expected hours that a new machine lives until each age."""
    return np.asarray(lived_hours(survival, ages))
