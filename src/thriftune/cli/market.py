"""`thriftune market`: what machines cost, how long they live, and what that means for jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from thriftune.cli.common import json_option, plot_option, print_json
from thriftune.cli.market_catalog import catalog_command
from thriftune.cli.market_records import read_lifetimes, read_prices, record_option, type_of
from thriftune.errors import SettingError
from thriftune.show.plot_style import check_plot_path

if TYPE_CHECKING:
    from thriftune.market.lifetime.fitting import By

# Slow imports are inside the commands, so that `thriftune market --help` starts fast.


@click.group("market")
def market_command() -> None:
    """Show what machines cost and how long they live.

    FILE is a record of prices (for prices) or of lifetimes (for lifetimes, fit and compare), in a format of
    docs/market.md, possibly gzipped. --synthetic uses made-up data instead that resembles real data.
    """


market_command.add_command(catalog_command)


def _type_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--type", "kind", metavar="T", help="Only this machine type.")(command)


def _zone_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--zone", metavar="Z", help="Only this zone.")(command)


@market_command.command("prices")
@record_option
@_type_option
@_zone_option
@click.option(
    "--max-price", type=float, metavar="P", help="Show the revocations at this maximum price, in dollars an hour."
)
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
    """List the markets in a record of prices, or show one market's price over time.

    --type and --zone choose one market. With --max-price, the command lists every revocation of a machine that is
    rented again whenever the price allows.
    """
    from thriftune.cli import market_price_tables as tables
    from thriftune.market.summary import on_demand_offer, revocations

    if plot is not None:
        check_plot_path(plot)
    history = read_prices(file, synthetic, seed)
    markets = [market for market in history.markets if kind in (None, market[0]) and zone in (None, market[1])]
    if not markets and kind is not None:
        history[kind, zone or ""]  # raises SettingError, which names similar markets
    if not markets:
        zones = ", ".join(sorted({name for _, name in history.markets}))
        raise SettingError(f"the record has no prices for the zone {zone!r}; it has prices for {zones}")
    if len(markets) > 1:
        if max_price is not None or plot is not None:
            option = "--max-price" if max_price is not None else "--plot"
            raise SettingError(f"{option} is for one market, not {len(markets)}; choose it with --type and --zone")
        all_series = [history[market] for market in markets]
        if as_json:
            print_json({"repairs": history.repairs, "markets": [tables.price_json(each) for each in all_series]})
        else:
            tables.show_markets(all_series, history.repairs)
        return
    series = history[markets[0]]
    lost = None if max_price is None else revocations(series, max_price)
    if plot is not None:
        from thriftune.show.market_plot import plot_prices

        plot_prices(series, on_demand_offer(series.type, series.zone), lost, plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        print_json({"repairs": history.repairs, "markets": [tables.price_json(series, lost)]})
    elif plot is None:
        tables.show_prices(series, lost, history.repairs)


@market_command.command("lifetimes")
@record_option
@_type_option
@plot_option
@json_option
def lifetimes_command(
    file: Path | None, synthetic: bool, seed: int | None, kind: str | None, plot: Path | None, as_json: bool
) -> None:
    """Show how long machines lived, by type.

    A quantile is the age by which this share of machines is revoked. Machines that their owners stopped are
    treated as censored (Kaplan-Meier).
    """
    from thriftune.cli import market_lifetime_tables as tables
    from thriftune.market.summary import lifetime_figures, select_lifetimes

    if plot is not None:
        check_plot_path(plot)
    lives = read_lifetimes(file, synthetic, seed)
    types = lives.types if kind is None else [kind]
    figures_by_type = {each: lifetime_figures(select_lifetimes(lives, each)) for each in types}
    if plot is not None:
        from thriftune.show.market_plot import plot_lifetimes

        plot_lifetimes({each: figures.curve for each, figures in figures_by_type.items()}, plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        print_json({"types": [tables.lifetime_json(each, figures) for each, figures in figures_by_type.items()]})
    elif plot is None:
        tables.show_lifetimes(figures_by_type, kind)


@market_command.command("fit")
@record_option
@_type_option
@_zone_option
@click.option(
    "--by",
    type=click.Choice(["likelihood", "least_squares"]),
    default="likelihood",
    show_default=True,
    help="How to fit. least_squares fits the Kaplan-Meier curve, as in SciSpot; its intervals take half a minute.",
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
    """Fit all lifetime models to the machines of one type.

    thriftune itself uses the default fit: Phases, by likelihood, with some weight on related machine types.
    """
    from thriftune.cli import market_lifetime_tables as tables
    from thriftune.cli.screen import busy
    from thriftune.market.summary import FORMS, fit_default_form, fit_form, lifetime_figures, select_lifetimes

    if plot is not None:
        check_plot_path(plot)
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
    help="How long a job takes on a machine that is not lost; may be repeated.",
)
@click.option(
    "--checkpoint-minutes",
    type=click.FloatRange(0.0, 1440.0),
    default=1.0,
    show_default=True,
    help="Time to save a checkpoint.",
)
@click.option(
    "--restart-minutes",
    type=click.FloatRange(0.0, 1440.0),
    default=5.0,
    show_default=True,
    help="Time to get a new machine.",
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
    """Show what lifetimes mean for jobs: how often they fail, and how long they take.

    All figures use the default fit. The first table compares a new machine with machines of several ages: keep
    the machine, or take a new one? The second one shows the best times for checkpoints, and compares them with
    Young and Daly's even interval.
    """
    from thriftune.cli import market_job_tables as tables
    from thriftune.cli.screen import busy
    from thriftune.market import ReuseTable
    from thriftune.market.summary import ages_to_show, checkpoint_figures, job_figures, select_lifetimes

    if plot is not None:
        check_plot_path(plot)
    lives = read_lifetimes(file, synthetic, seed)
    kind = type_of(lives, kind, synthetic)
    oldest, ages = ages_to_show(select_lifetimes(lives, kind, zone))
    save, restart = checkpoint_minutes / 60.0, restart_minutes / 60.0
    with busy("fitting the lifetimes"):
        model = lives.fit(kind, zone)
    with busy("computing which machines to keep, and when to save"):
        table = ReuseTable(model, restart_hours=restart, resolution_hours=oldest / 240.0, longest_hours=oldest)
        job_rows = job_figures(model, jobs, ages, restart)
        checkpoints = list(checkpoint_figures(model, jobs, save, restart))
    name = f"{kind} in {zone}" if zone else kind
    if plot is not None:
        from thriftune.show.market_plot import plot_jobs

        plot_jobs(model, table, restart, ages, name, plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        print_json(tables.jobs_json(kind, zone, model, table, job_rows, checkpoints, save, restart))
    elif plot is None:
        tables.show_jobs(name, model, table, job_rows, checkpoints, save, restart)
