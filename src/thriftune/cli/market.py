"""`thriftune market`: what machines cost, how long they live, and what that means for a job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from thriftune.cli.common import json_option, plot_option, print_json
from thriftune.cli.market_catalog import catalog_command
from thriftune.cli.market_records import read_lifetimes, read_prices, record_option, type_of
from thriftune.errors import SettingError

if TYPE_CHECKING:
    from thriftune.market.lifetime.fitting import By

# What is heavy is imported when a command runs: `thriftune --help` needs none of it.


@click.group("market")
def market_command() -> None:
    """What machines cost, how long they live, and what that means.

    FILE is a record of prices (prices) or of lifetimes (lifetimes, fit, compare), as docs/market.md describes
    them, perhaps gzipped. With --synthetic in its place, made-up ones that look like the real are shown.
    """


market_command.add_command(catalog_command)


def _type_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--type", "kind", metavar="T", help="Of this type of machine.")(command)


def _zone_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--zone", metavar="Z", help="In this zone.")(command)


@market_command.command("prices")
@record_option
@_type_option
@_zone_option
@click.option("--max-price", type=float, metavar="P", help="Show when machines are revoked that pay this at most.")
@plot_option
@json_option
def prices_command(
    file: Path | None,
    synthetic: bool,
    seed: int | None,
    kind: str | None,
    zone: str | None,
    max_price: float | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Which markets there are; of one of them, its prices over time.

    With --type and --zone, one market: its price as a chart, and with --max-price every revocation of a machine
    that is rented again whenever the price allows.
    """
    from thriftune.cli import market_tables as tables
    from thriftune.market.summary import on_demand_offer, revocations

    _check_plot(plot)
    history = read_prices(file, synthetic, seed)
    markets = [market for market in history.markets if kind in (None, market[0]) and zone in (None, market[1])]
    if not markets and kind is not None:
        history[kind, zone or ""]  # raises, and names what is near
    if not markets:
        there = ", ".join(sorted({name for _, name in history.markets}))
        raise SettingError(f"there are no prices in the zone {zone!r}; there are some in {there}")
    if len(markets) > 1:
        if max_price is not None or plot is not None:
            what = "--max-price" if max_price is not None else "--plot"
            raise SettingError(f"{what} is for one market, and there are {len(markets)}; give --type and --zone")
        found = [history[market] for market in markets]
        if as_json:
            print_json({"repairs": history.repairs, "markets": [tables.price_json(one) for one in found]})
        else:
            tables.show_markets(found, history.repairs)
        return
    one = history[markets[0]]
    lost = None if max_price is None else revocations(one, max_price)
    if plot is not None:
        from thriftune.show.market_plot import plot_prices

        plot_prices(one, on_demand_offer(one.type, one.zone), lost, plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        print_json({"repairs": history.repairs, "markets": [tables.price_json(one, lost)]})
    elif plot is None:
        tables.show_prices(one, lost, history.repairs)


@market_command.command("lifetimes")
@record_option
@_type_option
@plot_option
@json_option
def lifetimes_command(
    file: Path | None, synthetic: bool, seed: int | None, kind: str | None, plot: Path | None, as_json: bool
) -> None:
    """How long machines lived, by type.

    Quantiles are ages by which so many are revoked, with machines that their owners stopped counted fairly
    (Kaplan-Meier).
    """
    from thriftune.cli import market_tables as tables
    from thriftune.market.summary import lifetime_figures, select_lifetimes

    _check_plot(plot)
    lives = read_lifetimes(file, synthetic, seed)
    types = lives.types if kind is None else [kind]
    found = {each: lifetime_figures(select_lifetimes(lives, each)) for each in types}
    if plot is not None:
        from thriftune.show.market_plot import plot_lifetimes

        plot_lifetimes({each: figures.curve for each, figures in found.items()}, plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        print_json({"types": [tables.lifetime_json(each, figures) for each, figures in found.items()]})
    elif plot is None:
        tables.show_lifetimes(found, kind)


@market_command.command("fit")
@record_option
@_type_option
@_zone_option
@click.option(
    "--by",
    type=click.Choice(["likelihood", "least_squares"]),
    default="likelihood",
    show_default=True,
    help="least_squares: on the Kaplan-Meier curve, as in SciSpot; takes half a minute, for the intervals.",
)
@plot_option
@json_option
def fit_command(
    file: Path | None,
    synthetic: bool,
    seed: int | None,
    kind: str | None,
    zone: str | None,
    by: By,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Fit every form of lifetimes to one type's machines.

    The default is what thriftune goes by: Phases by likelihood, with a little help of the type's relatives.
    """
    from thriftune.cli import market_tables as tables
    from thriftune.cli.screen import busy
    from thriftune.market.summary import FORMS, fit_default_form, fit_form, lifetime_figures, select_lifetimes

    _check_plot(plot)
    lives = read_lifetimes(file, synthetic, seed)
    kind = type_of(lives, kind, synthetic)
    own = select_lifetimes(lives, kind, zone)
    with busy("fitting the default"):
        fits = [fit_default_form(lives, kind, zone)]
    for form in FORMS:
        with busy(f"fitting {form.__name__}"):
            fits.append(fit_form(form, own, by))
    figures = lifetime_figures(own)
    name = f"{kind} in {zone}" if zone else kind
    if plot is not None:
        from thriftune.show.market_plot import plot_fits

        plot_fits(fits, figures.curve, float(own.hours.max()), name, plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        print_json({**tables.lifetime_json(kind, figures), "zone": zone, "fits": [*map(tables.fit_json, fits)]})
    elif plot is None:
        tables.show_fits(name, figures, fits)


@market_command.command("compare")
@record_option
@_type_option
@_zone_option
@click.option(
    "--job",
    "jobs",
    type=click.FloatRange(0.01, 200.0),
    multiple=True,
    default=(1.0, 4.0, 12.0),
    show_default=True,
    metavar="HOURS",
    help="How long a job takes on a machine that is not lost; as often as you like.",
)
@click.option(
    "--checkpoint-minutes",
    type=click.FloatRange(0.0, 1440.0),
    default=1.0,
    show_default=True,
    help="To save its state.",
)
@click.option(
    "--restart-minutes",
    type=click.FloatRange(0.0, 1440.0),
    default=5.0,
    show_default=True,
    help="To get a new machine.",
)
@plot_option
@json_option
def compare_command(
    file: Path | None,
    synthetic: bool,
    seed: int | None,
    kind: str | None,
    zone: str | None,
    jobs: tuple[float, ...],
    checkpoint_minutes: float,
    restart_minutes: float,
    plot: Path | None,
    as_json: bool,
) -> None:
    """What lifetimes mean for jobs: do they fail, how long do they take.

    By the default fit. On a fresh machine, and on one of some age: is it better to keep it, or to take a new one?
    With checkpoints: when, and what does it gain over Young and Daly's even interval?
    """
    from thriftune.cli import market_tables as tables
    from thriftune.cli.screen import busy
    from thriftune.market import ReuseTable
    from thriftune.market.summary import ages_to_show, checkpoint_figures, job_figures, select_lifetimes

    _check_plot(plot)
    lives = read_lifetimes(file, synthetic, seed)
    kind = type_of(lives, kind, synthetic)
    oldest, ages = ages_to_show(select_lifetimes(lives, kind, zone))
    save, restart = checkpoint_minutes / 60.0, restart_minutes / 60.0
    with busy("fitting the lifetimes"):
        model = lives.fit(kind, zone)
    with busy("computing what to keep, and when to save"):
        table = ReuseTable(model, restart_hours=restart, resolution_hours=oldest / 240.0, longest_hours=oldest)
        on_ages = job_figures(model, jobs, ages, restart)
        saved = list(checkpoint_figures(model, jobs, save, restart))
    name = f"{kind} in {zone}" if zone else kind
    if plot is not None:
        from thriftune.show.market_plot import plot_jobs

        plot_jobs(model, table, restart, ages, name, plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        print_json(tables.jobs_json(kind, zone, model, table, on_ages, saved, save, restart))
    elif plot is None:
        tables.show_jobs(name, model, table, on_ages, saved, save, restart)


def _check_plot(plot: Path | None) -> None:
    """Before anything that takes a while."""
    if plot is not None:
        from thriftune.show.plot_style import check

        check(plot)
