"""What does a market look like? Prices, lifetimes, what was fitted to them and what follows, as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from thriftune.common.formatting import plural
from thriftune.market.catalog import Offer
from thriftune.market.lifetime import KaplanMeier, Lifetime
from thriftune.market.prices import PriceSeries
from thriftune.market.reuse import ReuseTable
from thriftune.market.running_time import expected_hours
from thriftune.market.summary import FitFigures, Revocations
from thriftune.results.curves import wants_log
from thriftune.show.plot_style import ACCENT, INK, MUTED, SERIES, dollar_axis, legend, picture

_FINE = 600  # points of a curve
_HIGHEST = 3.0  # times the job's own hours: beyond, the job needs checkpoints, however much beyond


def plot_prices(series: PriceSeries, offer: Offer | None, lost: Revocations | None, path: Path) -> None:
    """The price over time; with a maximum price, when machines are revoked."""
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
            at = [_date(t) for t in lost.times.tolist()]
            label = plural(len(at), "revocation")
            axes.plot(at, np.full(len(at), lost.max_price), "v", color=ACCENT, markersize=5, label=label)
            shown.append(lost.max_price)
        dollar_axis(axes, log=wants_log(shown))
        axes.set(ylabel="dollars an hour", title="Spot price")
        legend(axes, columns=4)
        axes.tick_params(axis="x", labelrotation=20)


def plot_lifetimes(curves: Mapping[str, KaplanMeier], path: Path) -> None:
    """A CDF for each type, as was seen."""
    with picture(path, "How long machines live", width=9.0) as (axes,):
        for i, (name, curve) in enumerate(curves.items()):
            # As many lines as there are types: colours come again, in another stroke.
            stroke = ("-", "--", ":", "-.")[i // len(SERIES) % 4]
            axes.step(*_seen(curve), where="post", color=SERIES[i % len(SERIES)], linestyle=stroke, label=name)
        axes.set(xlabel="age, hours", ylabel="part revoked", ylim=(0, 1.02), title="Kaplan-Meier")
        legend(axes)


def plot_fits(fits: Sequence[FitFigures], curve: KaplanMeier, oldest: float, name: str, path: Path) -> None:
    """The Kaplan-Meier curve with its band and the fits; their hazards."""
    ages = np.linspace(0.0, oldest, _FINE)[1:]
    with picture(path, f"{name}: what was seen, and what was fitted", 2) as (left, right):
        low, high = curve.interval()
        left.fill_between(curve.ages, 1 - high, 1 - low, step="post", color=MUTED, alpha=0.3, lw=0, label="95 %")
        left.step(*_seen(curve), where="post", color=INK, linewidth=1.2, label="Kaplan-Meier")
        hazards = []
        for i, fit in enumerate(fit for fit in fits if fit.model is not None):
            assert fit.model is not None
            style: Any = {"color": SERIES[i % len(SERIES)], "linewidth": 2.4 if fit.name == "default" else 1.3}
            left.plot(ages, fit.model.cdf(ages), label=fit.name, **style)
            hazards.append(fit.model.hazard(ages))
            right.plot(ages, hazards[-1], **style)
        left.set(xlabel="age, hours", ylabel="part revoked", ylim=(0, 1.02), title="CDF")
        told = np.concatenate(hazards) if hazards else np.array([])
        told = told[np.isfinite(told) & (told > 1e-4)]
        right.set(xlabel="age, hours", ylabel="revoked an hour, of those alive", title="Hazard")
        if len(told):
            right.set(yscale="log", ylim=(told.min() / 1.5, 1.5 * min(float(told.max()), 100.0)))
        left.legend(loc="best")


def plot_jobs(
    survival: Lifetime, table: ReuseTable, restart_hours: float, ages: Sequence[float], name: str, path: Path
) -> None:
    """The transition frontier; and the expected hours of jobs, as a multiple of the job's own, by age."""
    with picture(path, f"{name}: keep the machine, or take a new one?", 2) as (left, right):
        left.fill_between(table.ages, table.up_to, color=ACCENT, alpha=0.2, linewidth=0, label="keep it")
        left.plot(table.ages, table.up_to, color=ACCENT, linewidth=2)
        if (table.longest > table.up_to + 1e-6).any():
            left.plot(table.ages, table.longest, color=ACCENT, linestyle=":", label="keep some below")
        new: Any = {"color": MUTED, "alpha": 0.2, "linewidth": 0, "label": "take a new one"}
        left.fill_between(table.ages, table.up_to, table.hours[-1], **new)
        left.set(xlabel="the machine's age, hours", ylabel="the job, hours", title="Frontier")
        left.set(xlim=(0, table.ages[-1]), ylim=(0, table.hours[-1]))
        legend(left)
        hours = np.linspace(0.0, table.hours[-1], _FINE // 4)[1:]
        for i, age in enumerate(ages):
            takes = np.asarray(expected_hours(survival, hours, age, restart_hours=restart_hours)) / hours
            takes[takes > _HIGHEST] = np.nan
            label = f"{age:g} h old" if age else "new"
            right.plot(hours, takes, color=SERIES[i % len(SERIES)], label=label)
        right.set(xlabel="the job, hours", ylabel="expected hours, over the job's", title="Without checkpoints")
        right.set(ylim=(0.95, _HIGHEST))
        right.legend(loc="best")


def _seen(curve: KaplanMeier) -> tuple[Any, Any]:
    return np.append(0.0, curve.ages), np.append(0.0, 1.0 - curve.alive)


def _date(t: float) -> datetime:
    return datetime.fromtimestamp(t, UTC)
