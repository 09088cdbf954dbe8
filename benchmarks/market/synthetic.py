"""The comparison of synthetic prices and lifetimes with recorded ones.

For prices, each figure is computed per market. A row has its tenth percentile, median, ninetieth percentile and
mean over the markets. For lifetimes, a row has the share of a type's machines lost by several ages (Kaplan-Meier).
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import ROOT, Row, main, say
from thriftune.market.price_history import PriceHistory, PriceSeries
from thriftune.market.synthetic import Era, synthetic_lifetimes, synthetic_prices

Floats = NDArray[np.float64]

ON_DEMAND_2016 = {
    "c1.medium": 0.13,
    "c1.xlarge": 0.52,
    "cg1.4xlarge": 2.1,
    "cr1.8xlarge": 3.5,
    "d2.xlarge": 0.69,
    "d2.2xlarge": 1.38,
    "d2.4xlarge": 2.76,
    "d2.8xlarge": 5.52,
    "g2.8xlarge": 2.6,
    "hi1.4xlarge": 3.1,
    "m1.small": 0.044,
    "m1.large": 0.175,
    "m1.xlarge": 0.35,
    "m2.xlarge": 0.245,
    "m3.medium": 0.067,
    "m3.large": 0.133,
    "m4.4xlarge": 0.958,
    "m4.10xlarge": 2.394,
    "r3.large": 0.166,
    "t1.micro": 0.02,
}
"""On-demand dollars per hour in us-east-1, Linux, as published early in 2016."""
AGES = (0.25, 1.0, 4.0, 12.0, 23.9, 24.25, 24.5)
SAMPLED_TIMES = 3000  # per market, at which a machine is started to see whether it is lost within the hour


def data() -> Path:
    """Return the folder of recorded data."""
    return Path(os.environ.get("THRIFTUNE_DATA") or ROOT.parent / "shared" / "data")


def measure(options: argparse.Namespace) -> list[Row]:
    seeds = 1 if options.quick else 3
    rows = _prices(
        "spiky", "spot_prices_useast1_2016-02-25_2016-04-09.csv.gz", ON_DEMAND_2016, 45, seeds, options.quick
    )
    today = _on_demand_today()
    rows += _prices("smooth", "spot_prices_useast1_2021-03_2021-05.csv.gz", today, 90, 1, options.quick)
    return rows + _lifetimes(500 if options.quick else 20_000)


# --- prices -----------------------------------------------------------------------------------------------


def _prices(era: Era, file: str, on_demand: Mapping[str, float], days: int, seeds: int, quick: bool) -> list[Row]:
    recorded = PriceHistory.read(data() / file) if (data() / file).exists() else None
    if recorded is None:
        say(f"no {file}: set THRIFTUNE_DATA to the folder that holds it")
    types = dict(list(on_demand.items())[: 3 if quick else None])
    synthetic = [
        one
        for seed in range(seeds)
        for one in synthetic_prices(types, np.random.default_rng(seed), days=days, era=era).values()
    ]
    real = [one for one in recorded.values() if one.type in types] if recorded else []
    figures = {
        kind: [_figures(one, types[one.type]) for one in series]
        for kind, series in (("recorded", real), ("synthetic", synthetic))
        if series
    }
    correlation = {
        kind: _correlation(series)
        for kind, series in (("recorded", real), ("synthetic", synthetic[: len(types) * 3]))
        if series
    }
    say(f"{era}: {len(real)} recorded markets, {len(synthetic)} synthetic ones")
    rows = []
    for name in dict.fromkeys(name for markets in figures.values() for figure in markets for name in figure):
        values_of = {
            kind: [figure[name] for figure in markets if name in figure] for kind, markets in figures.items()
        }
        text = "; ".join(f"{kind} {_spread(values)}" for kind, values in values_of.items())
        data_of = {kind: list(values) for kind, values in values_of.items()}
        rows.append(Row(f"{era} prices: {name}", text, data=data_of))
    text = "; ".join(f"{kind} {value:.2f}" for kind, value in correlation.items())
    return [
        *rows,
        Row(f"{era} prices: correlation of two markets' hourly log prices, mean", text, data=correlation),
    ]


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "none"
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
    return f"{low:.3g} / {middle:.3g} / {high:.3g} (mean {np.mean(values):.3g})"


def _figures(one: PriceSeries, on_demand: float) -> dict[str, float]:
    """Return the figures of one market.

    A spike is a time above twice the median price.
    """
    durations = np.diff(one.times, append=one.end)
    order = np.argsort(one.prices)
    share = np.cumsum(durations[order]) / durations.sum()
    quantile = {q: float(one.prices[order][np.searchsorted(share, q)]) for q in (0.1, 0.5, 0.9, 0.99)}
    moves = np.diff(np.log(one.prices))
    moves = np.abs(moves[moves != 0])
    times = np.linspace(one.start, one.end - 3600, SAMPLED_TIMES)
    lost = one.next_above(1.1 * one.price_at(times), times) < times + 3600
    spikes = _minutes_above(one, 2 * quantile[0.5])
    days = (one.end - one.start) / 86400
    figures = {
        "median price over on-demand": quantile[0.5] / on_demand,
        "changes a day": len(moves) / days,
        "share of time above on-demand": float(durations[one.prices > on_demand].sum() / durations.sum()),
        "highest price over on-demand": float(one.prices.max() / on_demand),
        "q10 of price over median": quantile[0.1] / quantile[0.5],
        "q90 of price over median": quantile[0.9] / quantile[0.5],
        "q99 of price over median": quantile[0.99] / quantile[0.5],
        "one-hour revocations at 1.1 x the price": float(lost.mean()),
        "spikes a day": len(spikes) / days,
    }
    if len(spikes):
        figures["median minutes of a spike"] = float(np.median(spikes))
        figures["mean minutes of a spike"] = float(np.mean(spikes))
    if len(moves):
        figures["median change, log"] = float(np.median(moves))
        figures["q99 of changes, log"] = float(np.quantile(moves, 0.99))
    if len(one) > 1:
        figures["median seconds between rows"] = float(np.median(np.diff(one.times)))
    return figures


def _minutes_above(one: PriceSeries, price: float) -> Floats:
    edges = np.diff(np.concatenate([[False], one.prices > price, [False]]).astype(int))
    times = np.append(one.times, one.end)
    minutes: Floats = (times[np.flatnonzero(edges == -1)] - times[np.flatnonzero(edges == 1)]) / 60
    return minutes


def _correlation(series: Sequence[PriceSeries]) -> float:
    """Return the mean correlation of hourly log prices over pairs of markets."""
    start, end = max(one.start for one in series), min(one.end for one in series)
    hourly = np.array([np.log(one.price_at(np.arange(start, end, 3600.0))) for one in series[:200]])
    matrix = np.corrcoef(hourly[hourly.std(axis=1) > 0])
    return float(matrix[np.triu_indices_from(matrix, k=1)].mean())


def _on_demand_today() -> dict[str, float]:
    """Return on-demand prices of us-east-1 in 2026.

    They are also used for 2021, because they rarely change.
    """
    path = data() / "catalog_aws_us_2026-08.csv.gz"
    if not path.exists():
        return {"c5.xlarge": 0.17, "m5.large": 0.096, "p3.2xlarge": 3.06}
    with gzip.open(path, "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["Region"] == "us-east-1" and row["Price"]]
    return {row["InstanceType"]: float(row["Price"]) for row in rows}


# --- lifetimes --------------------------------------------------------------------------------------------


def _lifetimes(n: int) -> list[Row]:
    path = data() / "gcp_preemptions_2019_us-central1-c.csv.gz"
    recorded: dict[int, list[tuple[float, bool]]] = {2: [], 4: [], 8: [], 16: [], 32: [], 64: []}
    if path.exists():
        with gzip.open(path, "rt", newline="") as file:
            for row in csv.DictReader(file):
                cores = int(row["machine_type"].rpartition("-")[2])
                recorded[cores].append((float(row["lifetime_s"]) / 3600, row["end_kind"] == "preempted"))
    rows = []
    for cores, observed in recorded.items():
        lifetimes = {}
        if observed:
            hours, ended = zip(*observed, strict=True)
            lifetimes["recorded"] = (np.array(hours), np.array(ended))
        lifetimes["synthetic"] = synthetic_lifetimes(n, np.random.default_rng(cores), cores=cores)
        by_age = {kind: _lost_by_age(*columns) for kind, columns in lifetimes.items()}
        figure = "; ".join(
            f"{kind} {' '.join(f'{share:.2f}' for share in by_age[kind])}, stopped {1 - ended.mean():.0%}"
            for kind, (_, ended) in lifetimes.items()
        )
        rows.append(
            Row(
                f"{cores} cores ({len(observed)} observed): lost by {'/'.join(f'{age:g}' for age in AGES)} h",
                figure,
                data=by_age,
            )
        )
    return rows


def _lost_by_age(hours: Floats, ended: NDArray[np.bool_]) -> list[float]:
    """Return the shares lost by AGES, by the Kaplan-Meier estimate."""
    order = np.lexsort((~ended, hours))
    alive = np.cumprod(1 - ended[order] / np.arange(len(hours), 0, -1))
    row = np.searchsorted(hours[order], AGES, side="right") - 1
    shares: list[float] = np.where(row < 0, 0.0, 1 - alive[row]).tolist()
    return shares


if __name__ == "__main__":
    raise SystemExit(main(measure))
