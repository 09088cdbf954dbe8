"""Draw prices, lifetimes, the models fitted to lifetimes, and their consequences for jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from thriftune.common.formatting import plural
from thriftune.market.catalog import Offer
from thriftune.market.lifetime import KaplanMeier, Lifetime
from thriftune.market.price_history import PriceSeries
from thriftune.market.reuse import ReuseTable
from thriftune.market.running_time import expected_hours
from thriftune.market.summary import FitFigures, Revocations
from thriftune.results.curves import wants_log
from thriftune.show.plot_style import ACCENT, INK, MUTED, SERIES, dollar_axis, legend, picture

_CURVE_POINTS = 600
_MAX_SLOWDOWN = 3.0
"""Expected hours over a job's own hours that are drawn at most. A job beyond that needs checkpoints anyway."""

_LINE_STYLES = ("-", "--", ":", "-.")
_MIN_HAZARD, _MAX_HAZARD = 1e-4, 100.0
"""Hazards, per hour, between which the axis is drawn: outside, a fitted curve is numerical noise."""


def plot_prices(series: PriceSeries, offer: Offer | None, lost: Revocations | None, path: Path) -> None:
    """Draw the spot price over time.

    If `lost` is given, also draw the revocations at its maximum price.
    """
    with picture(path, f"{series.type} in {series.zone}", width=9.0) as (axes,):
        times = [_date(t) for t in (*series.times.tolist(), series.end)]
        prices = np.append(series.prices, series.prices[-1])
        axes.step(times, prices, where="post", color=MUTED, lw=1.2, label="spot price")
        shown = series.prices.tolist()
        if offer is not None:
            label = f"on demand, {offer.as_of}"
            axes.axhline(offer.price_per_hour, color=INK, linestyle="--", linewidth=1.2, label=label)
            shown.append(offer.price_per_hour)
        if lost is not None:
            axes.axhline(lost.max_price, color=ACCENT, linewidth=1.2, label="maximum price")
            dates = [_date(t) for t in lost.times.tolist()]
            label = plural(len(dates), "revocation")
            axes.plot(dates, np.full(len(dates), lost.max_price), "v", color=ACCENT, markersize=5, label=label)
            shown.append(lost.max_price)
        dollar_axis(axes, log=wants_log(shown))
        axes.set(ylabel="dollars an hour", title="Spot price")
        legend(axes, columns=4)
        axes.tick_params(axis="x", labelrotation=20)


def plot_lifetimes(curves: Mapping[str, KaplanMeier], path: Path) -> None:
    """Draw the share of machines revoked by age.

    Each machine type has one Kaplan-Meier curve.
    """
    with picture(path, "How long machines live", width=9.0) as (axes,):
        for i, (name, curve) in enumerate(curves.items()):
            # With more types than colours, the colours repeat with another line style.
            style = _LINE_STYLES[i // len(SERIES) % len(_LINE_STYLES)]
            color = SERIES[i % len(SERIES)]
            axes.step(*_revoked_share(curve), where="post", color=color, linestyle=style, label=name)
        axes.set(xlabel="age, hours", ylabel="share revoked", ylim=(0, 1.02), title="Kaplan-Meier")
        legend(axes)


def plot_fits(fits: Sequence[FitFigures], curve: KaplanMeier, oldest: float, name: str, path: Path) -> None:
    """Draw the fitted models over the Kaplan-Meier curve, and their hazards.

    The curve has its confidence band. `oldest` is the highest age drawn, in hours.
    """
    ages = np.linspace(0.0, oldest, _CURVE_POINTS)[1:]
    with picture(path, f"{name}: lifetimes and fitted models", 2) as (left, right):
        low, high = curve.interval()
        left.fill_between(curve.ages, 1 - high, 1 - low, step="post", color=MUTED, alpha=0.3, lw=0, label="95 %")
        left.step(*_revoked_share(curve), where="post", color=INK, linewidth=1.2, label="Kaplan-Meier")
        hazards = []
        for i, fit in enumerate(fit for fit in fits if fit.model is not None):
            assert fit.model is not None
            style: Any = {"color": SERIES[i % len(SERIES)], "linewidth": 2.4 if fit.name == "default" else 1.3}
            left.plot(ages, fit.model.cdf(ages), label=fit.name, **style)
            hazards.append(fit.model.hazard(ages))
            right.plot(ages, hazards[-1], **style)
        left.set(xlabel="age, hours", ylabel="share revoked", ylim=(0, 1.02), title="CDF")
        shown = np.concatenate(hazards) if hazards else np.array([])
        shown = shown[np.isfinite(shown) & (shown > _MIN_HAZARD)]
        right.set(xlabel="age, hours", ylabel="share of alive machines revoked an hour", title="Hazard")
        if len(shown):
            right.set(yscale="log", ylim=(shown.min() / 1.5, 1.5 * min(float(shown.max()), _MAX_HAZARD)))
        left.legend(loc="best")


def plot_jobs(
    survival: Lifetime, table: ReuseTable, restart_hours: float, ages: Sequence[float], name: str, path: Path
) -> None:
    """Draw which jobs to run on the present machine.

    Also draw the expected hours of jobs by the machine's age, relative to the job's own hours. `ages` are in
    hours.
    """
    with picture(path, f"{name}: keep the machine, or take a new one?", 2) as (left, right):
        left.fill_between(table.ages, table.up_to, color=ACCENT, alpha=0.2, linewidth=0, label="keep it")
        left.plot(table.ages, table.up_to, color=ACCENT, linewidth=2)
        if (table.longest > table.up_to + 1e-6).any():
            left.plot(table.ages, table.longest, color=ACCENT, linestyle=":", label="keep for some jobs below")
        style: Any = {"color": MUTED, "alpha": 0.2, "linewidth": 0, "label": "take a new one"}
        left.fill_between(table.ages, table.up_to, table.hours[-1], **style)
        left.set(xlabel="the machine's age, hours", ylabel="the job, hours", title="Frontier")
        left.set(xlim=(0, table.ages[-1]), ylim=(0, table.hours[-1]))
        legend(left)
        hours = np.linspace(0.0, table.hours[-1], _CURVE_POINTS // 4)[1:]
        for i, age in enumerate(ages):
            slowdown = np.asarray(expected_hours(survival, hours, age, restart_hours=restart_hours)) / hours
            slowdown[slowdown > _MAX_SLOWDOWN] = np.nan
            label = f"{age:g} h old" if age else "new"
            right.plot(hours, slowdown, color=SERIES[i % len(SERIES)], label=label)
        right.set(xlabel="the job, hours", ylabel="expected hours / job's hours", title="Without checkpoints")
        right.set(ylim=(0.95, _MAX_SLOWDOWN))
        right.legend(loc="best")


def _revoked_share(curve: KaplanMeier) -> tuple[Any, Any]:
    """Return the ages in hours, from 0, and the share of machines revoked by each."""
    return np.append(0.0, curve.ages), np.append(0.0, 1.0 - curve.alive)


def _date(t: float) -> datetime:
    return datetime.fromtimestamp(t, UTC)
