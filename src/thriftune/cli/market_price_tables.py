"""Print prices and revocations of markets as tables and charts, or as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np
from rich.text import Text

from thriftune.cli.market_numbers import format_share
from thriftune.cli.screen import chart, facts_table, listed, open_console, section, table
from thriftune.common.formatting import format_seconds
from thriftune.market import summary
from thriftune.market.price_history import PriceSeries

_MAX_MARKETS, _MAX_REVOCATIONS = 60, 12


def price_json(series: PriceSeries, lost: summary.Revocations | None = None) -> dict[str, Any]:
    """Return a market's prices as JSON fields.

    If `lost` is given, add the revocations at its maximum price.
    """
    offer = summary.on_demand_offer(series.type, series.zone)
    fields: dict[str, Any] = {"type": series.type, "zone": series.zone, **asdict(summary.price_figures(series))}
    fields["on_demand"] = None if offer is None else {"price": offer.price_per_hour, "as_of": offer.as_of}
    if lost is not None:
        fields["max_price"] = lost.max_price
        fields["to_be_had"], fields["within_an_hour"] = lost.available_share, lost.within_an_hour
        fields["mean_price_paid"] = lost.mean_price
        fields["revocations"] = [
            {"t": t, "lived_hours": hours}
            for t, hours in zip(lost.times.tolist(), lost.lived_hours.tolist(), strict=True)
        ]
    return fields


def show_markets(markets: Sequence[PriceSeries], repairs: Sequence[str]) -> None:
    """Print a table with one row for each market.

    `repairs` has a sentence about each kind of error that was corrected on reading.
    """
    console = open_console()
    console.print(f"{len(markets)} markets; prices in dollars an hour")
    console.print()
    rows = []
    for series in markets[:_MAX_MARKETS]:
        figures, offer = summary.price_figures(series), summary.on_demand_offer(series.type, series.zone)
        prices = (_format_price(price) for price in (figures.lowest, figures.median, figures.highest))
        record = (str(figures.rows), _format_day(figures.start), _format_day(figures.end))
        on_demand = "-" if offer is None else _format_price(offer.price_per_hour)
        changes = _format_changes(figures.changes_a_day)
        rows.append((series.type, series.zone, *record, *prices, changes, on_demand))
    columns = ("type", "zone", "rows", "from", "to", "lowest", "median", "highest", "changes a day", "on demand")
    table(console, columns, rows, left=2)
    if more := len(markets) - len(rows):
        console.print(f"and {more} more: choose with --type and --zone, or see all with --json", style="dim")
    _show_repairs(console, repairs)


def show_prices(series: PriceSeries, lost: summary.Revocations | None, repairs: Sequence[str]) -> None:
    """Print one market: its facts and its price over time.

    If `lost` is given, also print the revocations.
    """
    console = open_console()
    figures, offer = summary.price_figures(series), summary.on_demand_offer(series.type, series.zone)
    facts = facts_table()
    facts.add_row("market", Text(f"{series.type} in {series.zone}", style="bold"))
    days = (figures.end - figures.start) / summary.DAY
    facts.add_row(
        "record", f"{_format_minute(figures.start)} to {_format_minute(figures.end)} UTC, {days:.1f} days"
    )
    facts.add_row("rows", f"{figures.rows}, {_format_changes(figures.changes_a_day)} changes a day")
    names = ("lowest", "median", "mean", "highest")
    prices = ", ".join(f"{name} {_format_price(getattr(figures, name))}" for name in names)
    facts.add_row("price", f"{prices} an hour")
    if offer is not None:
        on_demand = f"{_format_price(offer.price_per_hour)} in {offer.region}, {offer.as_of}"
        share = figures.median / offer.price_per_hour
        facts.add_row("on demand", f"{on_demand}; the median spot price is {share:.0%} of it")
    if lost is not None:
        available = f"available at that price {format_share(lost.available_share)} of the time"
        facts.add_row("maximum", f"{_format_price(lost.max_price)}; {available}")
        hourly = f"in {format_share(lost.within_an_hour)} of the hours that begin with a machine"
        facts.add_row("revocations", f"{len(lost.times)}; {hourly}")
    console.print(facts)
    if len(series) > 1:
        section(console, f"dollars an hour, by days since {_format_minute(series.start)} UTC")
        elapsed_days = ((np.append(series.times, series.end) - series.start) / summary.DAY).round(2).tolist()
        curve = zip(elapsed_days, np.append(series.prices, series.prices[-1]).tolist(), strict=True)
        chart(console, list(curve), stairs=True)
    if lost is not None and len(lost.times):
        section(console, "revocations, the latest first")
        rows = list(zip(lost.times.tolist(), lost.lived_hours.tolist(), strict=True))[::-1]
        cells = [
            (f"{_format_minute(t)} UTC", format_seconds(summary.HOUR * hours))
            for t, hours in rows[:_MAX_REVOCATIONS]
        ]
        table(console, ("when", "machine's age"), cells)
        if more := len(rows) - len(cells):
            console.print(f"and {more} more: see all with --json", style="dim")
    _show_repairs(console, repairs)


def _show_repairs(console: Any, repairs: Sequence[str]) -> None:
    if repairs:
        section(console, "corrected on reading")
        listed(console, repairs, len(repairs))


def _format_price(dollars: float) -> str:
    return f"${dollars:.4f}" if dollars < 1 else f"${dollars:.2f}"


def _format_changes(changes: float) -> str:
    return "-" if math.isnan(changes) else f"{changes:.1f}" if changes < 100 else f"{changes:.0f}"


def _format_day(t: float) -> str:
    return f"{datetime.fromtimestamp(t, UTC):%Y-%m-%d}"


def _format_minute(t: float) -> str:
    return f"{datetime.fromtimestamp(t, UTC):%Y-%m-%d %H:%M}"
