"""How is a market told? As tables and charts for people, as JSON for programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np
from rich.text import Text

from thriftune.cli.screen import chart, facts_table, listed, open_console, section, table
from thriftune.common.formatting import format_seconds
from thriftune.market import lifetime, summary
from thriftune.market.checkpoint_schedule import Schedule, young_daly_hours
from thriftune.market.lifetime.pooling import MAX_RELATIVE_WEIGHT
from thriftune.market.prices import PriceSeries
from thriftune.market.reuse import ReuseTable

_MARKETS_SHOWN, _LOST_SHOWN, _SEGMENTS_SHOWN = 60, 12, 10
_NEVER = 1000.0  # times the hours of a job: nobody waits so long
_NEVER_DONE = "never"

# --- prices -----------------------------------------------------------------------------------------------


def price_json(one: PriceSeries, lost: summary.Revocations | None = None) -> dict[str, Any]:
    offer = summary.on_demand_offer(one.type, one.zone)
    told: dict[str, Any] = {"type": one.type, "zone": one.zone, **asdict(summary.price_figures(one))}
    told["on_demand"] = None if offer is None else {"price": offer.price_per_hour, "as_of": offer.as_of}
    if lost is not None:
        told["max_price"] = lost.max_price
        told["to_be_had"], told["within_an_hour"] = lost.available_share, lost.within_an_hour
        told["mean_price_paid"] = lost.mean_price
        told["revocations"] = [
            {"t": t, "lived_hours": hours}
            for t, hours in zip(lost.times.tolist(), lost.lived_hours.tolist(), strict=True)
        ]
    return told


def show_markets(found: Sequence[PriceSeries], repairs: Sequence[str]) -> None:
    console = open_console()
    console.print(f"{len(found)} markets; prices in dollars an hour")
    console.print()
    rows = []
    for one in found[:_MARKETS_SHOWN]:
        figures, offer = summary.price_figures(one), summary.on_demand_offer(one.type, one.zone)
        prices = (_dollars(price) for price in (figures.lowest, figures.median, figures.highest))
        record = (str(figures.rows), _day(figures.start), _day(figures.end))
        known = "-" if offer is None else _dollars(offer.price_per_hour)
        rows.append((one.type, one.zone, *record, *prices, _short(figures.changes_a_day), known))
    columns = ("type", "zone", "rows", "from", "to", "lowest", "median", "highest", "changes a day", "on demand")
    table(console, columns, rows, left=2)
    if more := len(found) - len(rows):
        console.print(f"and {more} more: --type and --zone choose, --json gives all", style="dim")
    _show_repairs(console, repairs)


def show_prices(one: PriceSeries, lost: summary.Revocations | None, repairs: Sequence[str]) -> None:
    console = open_console()
    figures, offer = summary.price_figures(one), summary.on_demand_offer(one.type, one.zone)
    facts = facts_table()
    facts.add_row("market", Text(f"{one.type} in {one.zone}", style="bold"))
    days = (figures.end - figures.start) / summary.DAY
    facts.add_row("record", f"{_minute(figures.start)} to {_minute(figures.end)} UTC, {days:.1f} days")
    facts.add_row("rows", f"{figures.rows}, {_short(figures.changes_a_day)} changes a day")
    parts = ("lowest", "median", "mean", "highest")
    facts.add_row("price", ", ".join(f"{part} {_dollars(getattr(figures, part))}" for part in parts) + " an hour")
    if offer is not None:
        known = f"{_dollars(offer.price_per_hour)} in {offer.region}, {offer.as_of}"
        facts.add_row("on demand", f"{known}; the median is {figures.median / offer.price_per_hour:.0%} of it")
    if lost is not None:
        had = f"to be had for that {_part(lost.available_share)} of the time"
        facts.add_row("maximum", f"{_dollars(lost.max_price)}; {had}")
        often = f"{len(lost.times)}; in {_part(lost.within_an_hour)} of the hours that begin with a machine"
        facts.add_row("revocations", often)
    console.print(facts)
    if len(one) > 1:
        section(console, f"dollars an hour, by days since {_minute(one.start)} UTC")
        days_of = ((np.append(one.times, one.end) - one.start) / summary.DAY).round(2).tolist()
        prices = np.append(one.prices, one.prices[-1]).tolist()
        chart(console, list(zip(days_of, prices, strict=True)), stairs=True)
    if lost is not None and len(lost.times):
        section(console, "revocations, the latest first")
        rows = list(zip(lost.times.tolist(), lost.lived_hours.tolist(), strict=True))[::-1]
        cells = [(f"{_minute(t)} UTC", format_seconds(summary.HOUR * hours)) for t, hours in rows[:_LOST_SHOWN]]
        table(console, ("when", "the machine had lived"), cells)
        if more := len(rows) - len(cells):
            console.print(f"and {more} more: --json gives all", style="dim")
    _show_repairs(console, repairs)


def _show_repairs(console: Any, repairs: Sequence[str]) -> None:
    if repairs:
        section(console, "put right on reading")
        listed(console, repairs, len(repairs))


# --- lifetimes --------------------------------------------------------------------------------------------


def lifetime_json(kind: str, figures: summary.LifetimeFigures) -> dict[str, Any]:
    return {
        "type": kind,
        "machines": figures.machines,
        "revoked": figures.revoked,
        "stopped": figures.stopped,
        "quantiles": {
            f"{part:g}": age for part, age in zip(summary.QUANTILE_LEVELS, figures.quantiles, strict=True)
        },
        "mean_hours": figures.mean,
        "curve": {"hours": figures.curve.ages.tolist(), "alive": figures.curve.alive.tolist()},
    }


def show_lifetimes(found: Mapping[str, summary.LifetimeFigures], kind: str | None) -> None:
    console = open_console()
    quantiles = (f"{part:.0%}" for part in summary.QUANTILE_LEVELS)
    columns = ("type", "machines", "revoked", "stopped", *quantiles, "mean")
    rows = [
        (name, *map(str, (one.machines, one.revoked, one.stopped)), *map(_hours, (*one.quantiles, one.mean)))
        for name, one in found.items()
    ]
    table(console, columns, rows)
    console.print()
    console.print("stopped: by their owners. Hours by which so many are revoked (Kaplan-Meier).", style="dim")
    if kind is not None and found[kind].revoked > 1:
        section(console, "part revoked, by age in hours")
        _chart_of(console, found[kind].curve)


def _chart_of(console: Any, curve: lifetime.KaplanMeier) -> None:
    ages, dead = np.append(0.0, curve.ages), np.append(0.0, 1.0 - curve.alive)
    chart(console, list(zip(ages.tolist(), dead.tolist(), strict=True)), stairs=True)


def fit_json(fit: summary.FitFigures) -> dict[str, Any]:
    return {
        "name": fit.name,
        "form": None if fit.model is None else type(fit.model).__name__,
        "default": fit.name == "default",
        "by": fit.by,
        "parameters": fit.parameters,
        "intervals": {name: list(each) for name, each in fit.intervals.items()},
        "log_likelihood": fit.log_likelihood,
        "r2": fit.r2,
        "mean_hours": fit.mean,
        "why_not": fit.failure or None,
    }


def show_fits(name: str, figures: summary.LifetimeFigures, fits: Sequence[summary.FitFigures]) -> None:
    console = open_console()
    counted = f"{figures.machines} machines, {figures.revoked} revoked, {figures.stopped} stopped by their owners"
    console.print(f"{name}: {counted}; mean {_hours(figures.mean)} h (Kaplan-Meier)", markup=False)
    if figures.revoked > 1:
        section(console, "part revoked, by age in hours")
        _chart_of(console, figures.curve)
    section(console, "fits")
    rows = [
        (fit.name, fit.by, f"{fit.log_likelihood:.2f}", f"{fit.r2:.3f}", f"{_hours(fit.mean)} h")
        for fit in fits
        if fit.model is not None
    ]
    table(console, ("form", "by", "log-likelihood", "r2", "mean"), rows, left=2)
    for fit in fits:
        if fit.model is None:
            console.print(f"{fit.name}: {fit.failure}", style="yellow", markup=False)
    section(console, "parameters, with 95 % intervals")
    cells = []
    for fit in fits:
        for i, (parameter, value) in enumerate(fit.parameters.items()):
            low, high = fit.intervals.get(parameter, (math.nan, math.nan))
            told = not (math.isnan(low) or (low <= 0.0 and math.isinf(high)))
            interval = f"{low:.4g} to {high:.4g}" if told else "-"
            cells.append((fit.name if i == 0 else "", parameter, f"{value:.4g}", interval))
    table(console, ("form", "parameter", "value", "95 %"), cells, left=2)
    console.print()
    default = "The default is Phases, by likelihood. Relatives (other zones, the family) count for"
    worth = f"{MAX_RELATIVE_WEIGHT:g} machines each at most: the fewer machines of its own, the more they decide."
    console.print(f"{default} {worth} r2: on the Kaplan-Meier curve.", style="dim")


# --- jobs -------------------------------------------------------------------------------------------------


def jobs_json(
    kind: str,
    zone: str | None,
    model: lifetime.Phases,
    frontier: ReuseTable,
    starts: Sequence[summary.JobFigures],
    saved: Sequence[summary.CheckpointFigures],
    checkpoint_hours: float,
    restart_hours: float,
) -> dict[str, Any]:
    return {
        "type": kind,
        "zone": zone,
        "checkpoint_hours": checkpoint_hours,
        "restart_hours": restart_hours,
        "mean_hours": model.mean(),
        "starts": [asdict(start) for start in starts],
        "frontier": {
            "ages": frontier.ages.tolist(),
            "up_to": frontier.up_to.tolist(),
            "longest": frontier.longest.tolist(),
        },
        "checkpoints": [
            {
                "job_hours": one.job_hours,
                "without_hours": one.without,
                "young_daly": {"segments": one.young_daly.segments, "hours": one.young_daly.expected_hours},
                "best": {"segments": one.best.segments, "hours": one.best.expected_hours},
            }
            for one in saved
        ],
    }


def show_jobs(
    name: str,
    model: lifetime.Phases,
    frontier: ReuseTable,
    starts: Sequence[summary.JobFigures],
    saved: Sequence[summary.CheckpointFigures],
    checkpoint_hours: float,
    restart_hours: float,
) -> None:
    console = open_console()
    lived = model.mean()
    told = "are hardly ever lost" if math.isinf(lived) else f"live {_hours(lived)} h on average"
    console.print(f"{name}: by the default fit, machines {told}", markup=False)
    section(console, f"without checkpoints, {60 * restart_hours:g} min to get a new machine")
    rows = []
    for start in starts:
        job = f"{start.job_hours:g} h" if not start.age else ""
        takes = _expected(start.expected_hours, start.job_hours)
        better = "keep it" if start.keep else "take a new one"
        better = "" if not start.age else "needs checkpoints" if takes == _NEVER_DONE else better
        aged = f"{start.age:g} h" if start.age else "new"
        rows.append((job, aged, _part(start.failure_probability), takes, better))
    table(console, ("job", "machine's age", "fails", "expected time", "better"), rows, left=0)
    section(console, "jobs up to so many hours are better kept, by the machine's age in hours")
    curve = list(zip(frontier.ages.tolist(), frontier.up_to.tolist(), strict=True))
    chart(console, curve, stairs=False, log=False)
    if (frontier.longest > frontier.up_to + 1e-6).any():
        console.print("At some ages longer jobs are better kept, too: see the picture, or --json.", style="dim")
    section(console, f"with checkpoints of {60 * checkpoint_hours:g} min, on a new machine: expected time")
    interval = young_daly_hours(checkpoint_hours, lived)
    even = f"Young-Daly, every {_hours(interval)} h" if 0.0 < interval < math.inf else "Young-Daly"
    cells = [
        (
            f"{one.job_hours:g} h",
            _expected(one.without, one.job_hours),
            _expected(one.young_daly.expected_hours, one.job_hours),
            _expected(one.best.expected_hours, one.job_hours),
            _segments(one.best, checkpoint_hours, float(frontier.ages[-1])),
        )
        for one in saved
    ]
    table(console, ("job", "without", even, "best", "hours between its checkpoints"), cells, left=0)


def _segments(schedule: Schedule, checkpoint_hours: float, oldest: float) -> str:
    """While the machine may live: what is planned for one that is older than any comes to nothing."""
    begun = np.cumsum([0.0, *schedule.segments[:-1]]) + checkpoint_hours * np.arange(len(schedule.segments))
    segments = [f"{each:.3g}" for each, age in zip(schedule.segments, begun, strict=True) if age < oldest]
    more = len(segments) - _SEGMENTS_SHOWN
    return " ".join(segments[:_SEGMENTS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _expected(hours: float, job: float) -> str:
    return f"{_hours(hours)} h" if hours < _NEVER * job else _NEVER_DONE


# --- figures ----------------------------------------------------------------------------------------------


def _hours(value: float) -> str:
    if math.isnan(value):
        return "-"
    return "no end" if math.isinf(value) else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _dollars(value: float) -> str:
    return f"${value:.4f}" if value < 1 else f"${value:.2f}"


def _short(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _part(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1%}"


def _day(t: float) -> str:
    return f"{datetime.fromtimestamp(t, UTC):%Y-%m-%d}"


def _minute(t: float) -> str:
    return f"{datetime.fromtimestamp(t, UTC):%Y-%m-%d %H:%M}"
