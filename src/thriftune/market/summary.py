"""What is there to tell of a record? Figures of its prices, lifetimes and fits, and what these mean for jobs.

Prices are dollars an hour, times unix seconds, ages and lifetimes hours.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from thriftune.errors import SettingError
from thriftune.market.catalog import Catalog, Offer
from thriftune.market.checkpoint_schedule import Job, Schedule, best_schedule, young_daly_schedule
from thriftune.market.lifetime import (
    Bathtub,
    Exponential,
    Fitted,
    GompertzMakeham,
    KaplanMeier,
    Lifetime,
    Lifetimes,
    Phases,
    Weibull,
)
from thriftune.market.lifetime.fitting import By
from thriftune.market.prices import MINUTE, PriceSeries
from thriftune.market.reuse import reuse
from thriftune.market.running_time import expected_hours, failure_probability
from thriftune.market.survival import Survival

Floats = NDArray[np.float64]
Intervals = dict[str, tuple[float, float]]

HOUR, DAY = 3600.0, 86400.0
PARTS = (0.1, 0.25, 0.5, 0.75, 0.9)
FORMS: tuple[type[Fitted], ...] = (Exponential, Weibull, GompertzMakeham, Bathtub, Phases)
FINEST_HOURS, MOST_STEPS = 0.05, 400
"""Of checkpoint schedules: jobs longer than 20 h are cut coarser, so that looking at one takes a second or two."""

# --- prices -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PriceFigures:
    """Of one market, each moment alike: `median` is the price that was not exceeded half of the time."""

    rows: int
    start: float
    end: float
    lowest: float
    median: float
    highest: float
    mean: float
    changes_a_day: float


def price_figures(series: PriceSeries) -> PriceFigures:
    held = np.diff(series.times, append=series.end)
    if not held.any():  # a record of a single moment
        held[:] = 1.0
    order = np.argsort(series.prices)
    middle = int(np.searchsorted(np.cumsum(held[order]), 0.5 * held.sum()))
    days = (series.end - series.start) / DAY
    changes = int(np.count_nonzero(np.diff(series.prices)))
    return PriceFigures(
        rows=len(series),
        start=series.start,
        end=series.end,
        lowest=float(series.prices.min()),
        median=float(series.prices[order][middle]),
        highest=float(series.prices.max()),
        mean=series.mean(series.start, series.end),
        changes_a_day=changes / days if days else math.nan,
    )


def on_demand(type: str, zone: str) -> Offer | None:
    """What the shipped catalog says of that type in the zone's region; us-east-1a is in us-east-1."""
    try:
        return Catalog.shipped().find(type, re.sub(r"-?[a-z]$", "", zone))
    except SettingError:
        return None


@dataclass(frozen=True, slots=True)
class Revocations:
    """Of one machine after the other, each rented as soon as the price allows and revoked when it is above.

    - `times`, `lived_hours`: when, and how old the machine was.
    - `to_be_had`: the share of the time at which the price is not above the maximum.
    - `within_an_hour`: of the moments at which a machine is to be had, the share after which it is revoked within
      an hour; NaN if there are none.
    - `mean_price`: of the time at which a machine is to be had; NaN if there is none.
    """

    max_price: float
    times: Floats
    lived_hours: Floats
    to_be_had: float
    within_an_hour: float
    mean_price: float


def revocations(series: PriceSeries, max_price: float) -> Revocations:
    """What becomes of machines with this maximum price."""
    if not 0.0 < max_price < math.inf:
        raise SettingError(f"max price {max_price:g} must be a number of dollars an hour above 0")
    allowed = series.prices <= max_price
    begins = np.flatnonzero(allowed & ~np.append(False, allowed[:-1]))
    ends = np.flatnonzero(~allowed & np.append(False, allowed[:-1]))
    times = series.times[ends]
    held = np.diff(series.times, append=series.end)
    spent, had = float(held[allowed] @ series.prices[allowed]), float(held[allowed].sum())
    asked = np.arange(series.start, series.end - HOUR, MINUTE)
    asked = asked[series.price_at(asked) <= max_price] if len(asked) else asked
    lost = series.next_above(max_price, asked) < asked + HOUR if len(asked) else np.array([math.nan])
    return Revocations(
        max_price=max_price,
        times=times,
        lived_hours=(times - series.times[begins[: len(ends)]]) / HOUR,
        to_be_had=had / (series.end - series.start) if series.end > series.start else float(allowed.mean()),
        within_an_hour=float(lost.mean()),
        mean_price=spent / had if had else math.nan,
    )


# --- lifetimes --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LifetimeFigures:
    """Of one type. `quantiles`: the ages by which `PARTS` of machines are revoked, by the Kaplan-Meier curve; NaN
    where none was seen to live so long."""

    machines: int
    revoked: int
    stopped: int
    quantiles: tuple[float, ...]
    mean: float
    curve: KaplanMeier = field(repr=False)


def lifetime_figures(lives: Lifetimes) -> LifetimeFigures:
    curve = KaplanMeier.fit(lives.hours, lives.ended)
    # 1 - 0.9 must not be short of 0.1 by a rounding.
    at = np.searchsorted(1.0 - curve.alive, np.array(PARTS) - 1e-12)
    revoked = int(lives.ended.sum())
    return LifetimeFigures(
        machines=len(lives),
        revoked=revoked,
        stopped=len(lives) - revoked,
        quantiles=tuple(np.append(curve.ages, math.nan)[at].tolist()),
        mean=curve.mean() if revoked else math.inf,
        curve=curve,
    )


def chosen(lives: Lifetimes, type: str, zone: str | None = None) -> Lifetimes:
    """Those of that type, in that zone."""
    if type not in lives.types:
        raise SettingError(f"no lifetime of a {type!r} is recorded; there are {', '.join(lives.types)}")
    own = lives.type == type
    if zone is not None and not (own & (lives.zone == zone)).any():
        zones = sorted({str(each) for each in lives.zone[own]})
        raise SettingError(
            f"no lifetime of a {type} in {zone!r} is recorded; there are some in {', '.join(zones)}"
        )
    return lives.only(own if zone is None else own & (lives.zone == zone))


@dataclass(frozen=True, slots=True)
class Fit:
    """A form, and how well it fits the machines of one type; `why_not`: why there is none."""

    name: str
    by: str
    model: Lifetime | None = None
    parameters: dict[str, float] = field(default_factory=dict)
    intervals: Intervals = field(default_factory=dict)  # 95 %
    log_likelihood: float = math.nan
    r2: float = math.nan  # on the Kaplan-Meier curve
    mean: float = math.nan
    why_not: str = ""


def fit_default(lives: Lifetimes, type: str, zone: str | None = None) -> Fit:
    """The one that thriftune goes by. How well it fits is told of the type's own machines alone."""
    own = chosen(lives, type, zone)
    return _judged("default", "likelihood, relatives", lives.fit(type, zone), own)


def fit_form(form: type[Fitted], own: Lifetimes, by: By) -> Fit:
    """`Phases` always by likelihood, which is how the default comes about; by least squares its intervals would
    take a minute."""
    by = "likelihood" if form is Phases else by
    intervals: Intervals = {}
    try:
        model = form.fit(own.hours, own.ended, by=by)
        # Of few machines drawn anew, none may be left that such a form fits: then there are no intervals.
        with suppress(SettingError):
            intervals = model.intervals(own.hours, own.ended, by=by)
    except SettingError as error:
        return Fit(form.__name__, by, why_not=str(error))
    return _judged(form.__name__, by, model, own, intervals)


def _judged(name: str, by: str, model: Fitted, own: Lifetimes, intervals: Intervals | None = None) -> Fit:
    return Fit(
        name,
        by.replace("_", " "),
        model,
        {parameter.name: each for parameter, each in zip(model.PARAMETERS, model.values(), strict=False)},
        intervals or {},
        model.log_likelihood(own.hours, own.ended),
        r_squared(model, KaplanMeier.fit(own.hours, own.ended)),
        model.mean(),
    )


def r_squared(model: Lifetime, curve: KaplanMeier) -> float:
    """Of the model's CDF, at the ages at which machines died; NaN where they are too few to tell."""
    dead = 1.0 - curve.alive
    around = float(np.sum((dead - dead.mean()) ** 2)) if len(dead) else 0.0
    return 1.0 - float(np.sum((model.cdf(curve.ages) - dead) ** 2)) / around if around else math.nan


# --- jobs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """A job on a machine of some age: `keep`: it is done at least as soon there as on a new one."""

    job_hours: float
    age: float
    failure_probability: float
    expected_hours: float
    keep: bool


def starts(survival: Survival, jobs: Sequence[float], ages: Sequence[float], restart_hours: float) -> list[Start]:
    job, age = (each.ravel() for each in np.meshgrid(jobs, ages, indexing="ij"))
    failure = np.asarray(failure_probability(survival, job, age))
    expected = np.asarray(expected_hours(survival, job, age, restart_hours=restart_hours))
    keep = np.asarray(reuse(survival, job, age, restart_hours=restart_hours))
    return [Start(*each) for each in zip(*(a.tolist() for a in (job, age, failure, expected, keep)), strict=True)]


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Of a job that starts on a fresh machine: without any, by Young and Daly, and the best there are."""

    job_hours: float
    without: float  # expected hours
    young_daly: Schedule
    best: Schedule


def checkpoints(
    survival: Survival, jobs: Sequence[float], checkpoint_hours: float, restart_hours: float
) -> Iterator[Checkpoints]:
    for hours in jobs:
        job = Job(hours, checkpoint_hours, restart_hours)
        try:
            best = best_schedule(job, survival, resolution_hours=max(FINEST_HOURS, hours / MOST_STEPS))
        except SettingError:
            raise SettingError(
                f"a job of {hours:g} h: such machines live too short for it, with checkpoints of "
                f"{checkpoint_hours:g} h; give a shorter job or shorter checkpoints"
            ) from None
        without = float(expected_hours(survival, hours, restart_hours=restart_hours))
        yield Checkpoints(hours, without, young_daly_schedule(job, survival), best)


def looked_at(own: Lifetimes) -> tuple[float, list[float]]:
    """The oldest machine that was seen, and the ages up to there that are worth a line."""
    oldest = float(own.hours.max())
    quarters = (float(f"{part * oldest:.2g}") for part in (0.25, 0.5, 0.75))
    return oldest, sorted({0.0, *(age for age in (1.0, *quarters) if 0.0 < age < oldest)})
