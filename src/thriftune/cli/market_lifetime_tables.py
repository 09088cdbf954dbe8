"""Print lifetimes of machines and the models fitted to them as tables and charts, or as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from thriftune.cli.market_numbers import format_hours
from thriftune.cli.screen import chart, open_console, section, table
from thriftune.market import lifetime, summary
from thriftune.market.lifetime.pooling import MAX_RELATIVE_WEIGHT


def lifetime_json(kind: str, figures: summary.LifetimeFigures) -> dict[str, Any]:
    """Return the lifetimes of a machine type as JSON fields."""
    return {
        "type": kind,
        "machines": figures.machines,
        "revoked": figures.revoked,
        "stopped": figures.stopped,
        "quantiles": {
            f"{level:g}": age for level, age in zip(summary.QUANTILE_LEVELS, figures.quantiles, strict=True)
        },
        "mean_hours": figures.mean,
        "curve": {"hours": figures.curve.ages.tolist(), "alive": figures.curve.alive.tolist()},
    }


def show_lifetimes(figures_by_type: Mapping[str, summary.LifetimeFigures], charted_type: str | None) -> None:
    """Print a table of lifetimes with one row for each machine type.

    Also print a chart of `charted_type`, if given.
    """
    console = open_console()
    quantiles = (f"{level:.0%}" for level in summary.QUANTILE_LEVELS)
    columns = ("type", "machines", "revoked", "stopped", *quantiles, "mean")
    rows = [
        (
            name,
            *map(str, (figures.machines, figures.revoked, figures.stopped)),
            *map(format_hours, (*figures.quantiles, figures.mean)),
        )
        for name, figures in figures_by_type.items()
    ]
    table(console, columns, rows)
    console.print()
    note = (
        "stopped: by their owners. A column such as 10%: the hours by which this share is revoked (Kaplan-Meier)."
    )
    console.print(note, style="dim")
    if charted_type is not None and figures_by_type[charted_type].revoked > 1:
        _show_curve(console, figures_by_type[charted_type].curve)


def _show_curve(console: Any, curve: lifetime.KaplanMeier) -> None:
    section(console, "share revoked, by age in hours")
    ages, revoked = np.append(0.0, curve.ages), np.append(0.0, 1.0 - curve.alive)
    chart(console, list(zip(ages.tolist(), revoked.tolist(), strict=True)), stairs=True)


def fit_json(fit: summary.FitFigures) -> dict[str, Any]:
    """Return a fitted model, or the reason why it has no fit, as JSON fields."""
    return {
        "name": fit.name,
        "form": None if fit.model is None else type(fit.model).__name__,
        "default": fit.name == "default",
        "by": fit.by,
        "parameters": fit.parameters,
        "intervals": {name: list(interval) for name, interval in fit.intervals.items()},
        "log_likelihood": fit.log_likelihood,
        "r2": fit.r2,
        "mean_hours": fit.mean,
        "why_not": fit.failure or None,
    }


def show_fits(name: str, figures: summary.LifetimeFigures, fits: Sequence[summary.FitFigures]) -> None:
    """Print the models fitted to the lifetimes of a machine type."""
    console = open_console()
    counts = f"{figures.machines} machines, {figures.revoked} revoked, {figures.stopped} stopped by their owners"
    console.print(f"{name}: {counts}; mean {format_hours(figures.mean)} h (Kaplan-Meier)", markup=False)
    if figures.revoked > 1:
        _show_curve(console, figures.curve)
    section(console, "fits")
    rows = [
        (fit.name, fit.by, f"{fit.log_likelihood:.2f}", f"{fit.r2:.3f}", f"{format_hours(fit.mean)} h")
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
            interval = _interval(*fit.intervals.get(parameter, (math.nan, math.nan)))
            cells.append((fit.name if i == 0 else "", parameter, f"{value:.4g}", interval))
    table(console, ("form", "parameter", "value", "95 %"), cells, left=2)
    console.print()
    note = (
        "The default is Phases, fitted by likelihood. Relatives (other zones, the family) count for at most "
        f"{MAX_RELATIVE_WEIGHT:g} machines each, so they matter most for types with few machines. r2 is measured "
        "on the Kaplan-Meier curve."
    )
    console.print(note, style="dim")


def _interval(low: float, high: float) -> str:
    """Return an interval as text.

    The text is "-" if the interval is unknown or excludes no positive value.
    """
    is_informative = not (math.isnan(low) or (low <= 0.0 and math.isinf(high)))
    return f"{low:.4g} to {high:.4g}" if is_informative else "-"
