"""The figures that `thriftune market` shows.

They are statistics of prices, lifetimes, fits and jobs. Prices are dollars per hour, times are unix seconds, and
ages and lifetimes are hours.
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
from thriftune.market.price_history import MINUTE, PriceSeries
from thriftune.market.reuse import reuse
from thriftune.market.running_time import expected_hours, failure_probability
from thriftune.market.survival import Survival

Floats = NDArray[np.float64]
Intervals = dict[str, tuple[float, float]]

HOUR, DAY = 3600.0, 86400.0
QUANTILE_LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
FORMS: tuple[type[Fitted], ...] = (Exponential, Weibull, GompertzMakeham, Bathtub, Phases)
# The finest resolution of checkpoint schedules, and the most steps of a schedule. Jobs of more than 20 h get a
# coarser resolution, so that a schedule is computed within 1 or 2 s.
MIN_RESOLUTION_HOURS, MAX_SCHEDULE_STEPS = 0.05, 400

# --- prices -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PriceFigures:
    """Price statistics of one market, weighted by time."""

    rows: int
    start: float
    end: float
    lowest: float
    median: float
    highest: float
    mean: float
    changes_a_day: float


def price_figures(series: PriceSeries) -> PriceFigures:
    """Return the price statistics of a series."""
    durations = np.diff(series.times, append=series.end)
    if not durations.any():  # a record of a single moment
        durations[:] = 1.0
    order = np.argsort(series.prices)
    middle = int(np.searchsorted(np.cumsum(durations[order]), 0.5 * durations.sum()))
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


def on_demand_offer(type: str, zone: str) -> Offer | None:
    """Return the shipped catalog's offer of this type in the zone's region, or None.

    The zone us-east-1a is in the region us-east-1.
    """
    try:
        return Catalog.shipped().find(type, re.sub(r"-?[a-z]$", "", zone))
    except SettingError:
        return None


@dataclass(frozen=True, slots=True)
class Revocations:
    """The preemptions of a machine with a maximum price.

    The machine is rented again whenever the price is not above the maximum.

    - `times`, `lived_hours`: the time of each preemption, and the machine's age then.
    - `available_share`: the share of the time in which the price is not above the maximum.
    - `within_an_hour`: the share of that time at which a preemption is less than an hour away; NaN if the price is
      always above the maximum.
    - `mean_price`: the mean price of that time; NaN if the price is always above the maximum.
    """

    max_price: float
    times: Floats
    lived_hours: Floats
    available_share: float
    within_an_hour: float
    mean_price: float


def revocations(series: PriceSeries, max_price: float) -> Revocations:
    """Return the preemptions of a machine with this maximum price.

    After each preemption, a machine is rented again as soon as the price is not above the maximum.
    """
    if not 0.0 < max_price < math.inf:
        raise SettingError(f"max price {max_price:g} must be a number of dollars per hour above 0")
    allowed = series.prices <= max_price
    starts = np.flatnonzero(allowed & ~np.append(False, allowed[:-1]))
    ends = np.flatnonzero(~allowed & np.append(False, allowed[:-1]))
    times = series.times[ends]
    durations = np.diff(series.times, append=series.end)
    dollar_seconds, seconds = float(durations[allowed] @ series.prices[allowed]), float(durations[allowed].sum())
    minutes = np.arange(series.start, series.end - HOUR, MINUTE)
    minutes = minutes[series.price_at(minutes) <= max_price] if len(minutes) else minutes
    revoked = series.next_above(max_price, minutes) < minutes + HOUR if len(minutes) else np.array([math.nan])
    total_seconds = series.end - series.start
    return Revocations(
        max_price=max_price,
        times=times,
        lived_hours=(times - series.times[starts[: len(ends)]]) / HOUR,
        available_share=seconds / total_seconds if total_seconds > 0.0 else float(allowed.mean()),
        within_an_hour=float(revoked.mean()),
        mean_price=dollar_seconds / seconds if seconds else math.nan,
    )


# --- lifetimes --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LifetimeFigures:
    """Lifetime statistics of one machine type.

    `quantiles` are the ages by which the shares `QUANTILE_LEVELS` of machines are preempted, by the Kaplan-Meier
    curve. A quantile is NaN if no machine was observed for that long.
    """

    machines: int
    revoked: int
    stopped: int
    quantiles: tuple[float, ...]
    mean: float
    curve: KaplanMeier = field(repr=False)


def lifetime_figures(lives: Lifetimes) -> LifetimeFigures:
    """Return the lifetime statistics of a record that has one machine type."""
    curve = KaplanMeier.fit(lives.hours, lives.ended)
    # The tolerance allows for rounding errors: 1 - 0.9 must reach the level 0.1.
    at = np.searchsorted(1.0 - curve.alive, np.array(QUANTILE_LEVELS) - 1e-12)
    revoked = int(lives.ended.sum())
    return LifetimeFigures(
        machines=len(lives),
        revoked=revoked,
        stopped=len(lives) - revoked,
        quantiles=tuple(np.append(curve.ages, math.nan)[at].tolist()),
        mean=curve.mean() if revoked else math.inf,
        curve=curve,
    )


def select_lifetimes(lives: Lifetimes, type: str, zone: str | None = None) -> Lifetimes:
    """Return the lifetimes of one type, in one zone if given."""
    if type not in lives.types:
        raise SettingError(f"no lifetime of a {type!r} is recorded; recorded types are {', '.join(lives.types)}")
    own = lives.type == type
    if zone is not None and not (own & (lives.zone == zone)).any():
        zones = sorted({str(name) for name in lives.zone[own]})
        raise SettingError(
            f"no lifetime of a {type} in {zone!r} is recorded; its recorded zones are {', '.join(zones)}"
        )
    return lives.only(own if zone is None else own & (lives.zone == zone))


@dataclass(frozen=True, slots=True)
class FitFigures:
    """A fitted distribution, with measures of its fit."""

    name: str
    by: str  # the method of the fit
    model: Lifetime | None = None  # None if the fit failed
    parameters: dict[str, float] = field(default_factory=dict)
    intervals: Intervals = field(default_factory=dict)  # 95 % intervals of the parameters
    log_likelihood: float = math.nan
    r2: float = math.nan  # R^2 of the distribution's CDF against the Kaplan-Meier curve
    mean: float = math.nan  # lifetime in hours
    failure: str = ""  # the reason if the fit failed


def fit_default_form(lives: Lifetimes, type: str, zone: str | None = None) -> FitFigures:
    """Fit the default distribution to a type's lifetimes and its relatives.

    Relatives are similar machines, at a low weight. The measures of the fit are of the type's own machines only.
    """
    own = select_lifetimes(lives, type, zone)
    return _fit_figures("default", "likelihood, relatives", lives.fit(type, zone), own)


def fit_form(form: type[Fitted], own: Lifetimes, by: By) -> FitFigures:
    """Fit a distribution of this form to the lifetimes `own`, and measure the fit.

    `Phases` is always fitted by likelihood, because its intervals by least squares would take a minute.
    """
    by = "likelihood" if form is Phases else by
    intervals: Intervals = {}
    try:
        model = form.fit(own.hours, own.ended, by=by)
        # The intervals are omitted if the distribution cannot be fitted to a bootstrap sample of few machines.
        with suppress(SettingError):
            intervals = model.intervals(own.hours, own.ended, by=by)
    except SettingError as error:
        return FitFigures(form.__name__, by, failure=str(error))
    return _fit_figures(form.__name__, by, model, own, intervals)


def _fit_figures(
    name: str, by: str, model: Fitted, own: Lifetimes, intervals: Intervals | None = None
) -> FitFigures:
    return FitFigures(
        name,
        by.replace("_", " "),
        model,
        {parameter.name: value for parameter, value in zip(model.PARAMETERS, model.values(), strict=False)},
        intervals or {},
        model.log_likelihood(own.hours, own.ended),
        r_squared(model, KaplanMeier.fit(own.hours, own.ended)),
        model.mean(),
    )


def r_squared(model: Lifetime, curve: KaplanMeier) -> float:
    """Return R^2 of the model's CDF against the points of the Kaplan-Meier curve.

    It is NaN if all points of the curve are equal.
    """
    dead = 1.0 - curve.alive
    total = float(np.sum((dead - dead.mean()) ** 2)) if len(dead) else 0.0
    return 1.0 - float(np.sum((model.cdf(curve.ages) - dead) ** 2)) / total if total else math.nan


# --- jobs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobFigures:
    """The expected course of a job on a machine of a given age."""

    job_hours: float
    age: float
    failure_probability: float
    expected_hours: float  # with restarts after preemptions
    keep: bool  # whether the job is expected to end here no later than on a new machine


def job_figures(
    survival: Survival, jobs: Sequence[float], ages: Sequence[float], restart_hours: float
) -> list[JobFigures]:
    """Return the figures of every job length on machines of every age."""
    job, age = (grid.ravel() for grid in np.meshgrid(jobs, ages, indexing="ij"))
    failure = np.asarray(failure_probability(survival, job, age))
    expected = np.asarray(expected_hours(survival, job, age, restart_hours=restart_hours))
    keep = np.asarray(reuse(survival, job, age, restart_hours=restart_hours))
    return [
        JobFigures(*row) for row in zip(*(a.tolist() for a in (job, age, failure, expected, keep)), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class CheckpointFigures:
    """The expected course of a job on a new machine, by checkpoint schedule."""

    job_hours: float
    without: float  # expected hours without checkpoints
    young_daly: Schedule
    best: Schedule


def checkpoint_figures(
    survival: Survival, jobs: Sequence[float], checkpoint_hours: float, restart_hours: float
) -> Iterator[CheckpointFigures]:
    """Yield the checkpoint schedules of jobs of these lengths."""
    for hours in jobs:
        job = Job(hours, checkpoint_hours, restart_hours)
        resolution = max(MIN_RESOLUTION_HOURS, hours / MAX_SCHEDULE_STEPS)
        try:
            best = best_schedule(job, survival, resolution_hours=resolution)
        except SettingError:
            raise SettingError(
                f"a job of {hours:g} h: these machines do not live long enough for it, with checkpoints of "
                f"{checkpoint_hours:g} h; give a shorter job or shorter checkpoints"
            ) from None
        without = float(expected_hours(survival, hours, restart_hours=restart_hours))
        yield CheckpointFigures(hours, without, young_daly_schedule(job, survival), best)


def ages_to_show(own: Lifetimes) -> tuple[float, list[float]]:
    """Return the greatest observed age, and the ages to list, in hours."""
    oldest = float(own.hours.max())
    quarters = (float(f"{share * oldest:.2g}") for share in (0.25, 0.5, 0.75))
    return oldest, sorted({0.0, *(age for age in (1.0, *quarters) if 0.0 < age < oldest)})
