"""The accuracy of revocation models on later prices.

The models predict whether a spot machine is preempted within the hour. The prices are EC2's of 2016, when the
price decided about preemptions. Each market (type and zone) has its own model, fitted on the first 70 % of its
time and queried at random times of the rest. The maximum prices are SpotTune's (the price plus a random 0.00001 to
0.2 dollars), and 1.05 to 2 times the price. A probability above one half counts as a predicted preemption. Without
--markets, all markets that change often are used. The default model was designed on zones a and b of the types in
DESIGN; the other markets are held out.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from benchmarks.common import Row, main, say
from benchmarks.search.tables import data
from thriftune.market.price_history import PriceHistory, PriceSeries
from thriftune.market.revocation import (
    LogisticRegression,
    RevocationModel,
    RevocationPredictor,
    RevPred,
    Tributary,
)
from thriftune.market.revocation.networks import TrainingLimits
from thriftune.market.revocation.price_curve import DAY, HOUR, Floats, PriceCurve, revoked
from thriftune.market.revocation.spottune_inputs import random_max_prices

Market = tuple[str, str]
Scores = dict[str, float]

DESIGN = ("c1.xlarge", "d2.2xlarge", "d2.8xlarge", "hi1.4xlarge", "m3.large", "m4.10xlarge", "r3.large")
FITTED_SHARE = 0.7  # of a market's time
MIN_CHANGES_PER_DAY = 100  # in the fitted part
QUERIED_TIMES = 4000  # in the later part
OURS = "RevocationModel"
# These depend more on chance, so they are fitted once per seed.
NETWORKS = ("Tributary", "RevPred", "RevPred as printed")


def measure(options: argparse.Namespace) -> list[Row]:
    markets = {("toy", "a"): _toy_market()} if options.quick else dict(_chosen(_read(), options.markets))
    models = _models(options)
    scores_of: dict[tuple[str, str, Market], Scores] = {}
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        pairs = [(market, name) for market in markets for name in models]
        futures = {
            pool.submit(_mean_scores, markets[market], name, options): (market, name) for market, name in pairs
        }
        for future in as_completed(futures):
            market, name = futures[future]
            for kind, scores in future.result().items():
                scores_of[kind, name, market] = scores
            say(f"{' '.join(market)}: {name} done")
    rows: list[Row] = []
    for kind in ("deltas", "multiples"):
        for group, group_markets in _groups(list(markets)).items():
            rows += _table(scores_of, kind, group, group_markets, list(models), check_bars=not options.quick)
    alone = options.processes == 1  # parallel processes slow each other
    return rows + _speed(scores_of, markets, list(models), check_bars=alone and not options.quick)


def _models(options: argparse.Namespace) -> dict[str, Callable[[], RevocationPredictor]]:
    limits: TrainingLimits = {"rows": options.rows, "epochs": options.epochs, "seconds": options.seconds}
    models: dict[str, Callable[[], RevocationPredictor]] = {OURS: RevocationModel, "logistic": LogisticRegression}
    if not (options.without_torch or options.without_peers):
        tributary, revpred, printed = NETWORKS
        models |= {tributary: lambda: Tributary(**limits), revpred: lambda: RevPred(**limits)}
        models[printed] = lambda: RevPred(as_printed=True, **limits)
    return models


def _mean_scores(series: PriceSeries, name: str, options: argparse.Namespace) -> dict[str, Scores]:
    """Return the mean scores over the seeds, by the kind of maximum prices."""
    seeds = range(options.seeds if name in NETWORKS else 1)
    runs = [_scores(series, _models(options)[name], np.random.default_rng(seed)) for seed in seeds]
    return {kind: {m: _mean([run[kind][m] for run in runs]) for m in scores} for kind, scores in runs[0].items()}


def _scores(
    series: PriceSeries, make: Callable[[], RevocationPredictor], fit_rng: np.random.Generator
) -> dict[str, Scores]:
    """Fit and score one model, by the kind of maximum prices.

    The queries are the same for every model and seed.
    """
    rng = np.random.default_rng(7)
    curve = PriceCurve(series)
    cut = curve.start + FITTED_SHARE * (curve.end - curve.start)
    known = series.window(curve.start, cut)
    started = time.perf_counter()
    model = make().fit(known, fit_rng)
    seconds = time.perf_counter() - started
    t = np.sort(rng.uniform(cut, curve.end - HOUR, QUERIED_TIMES))
    kinds = {
        "deltas": random_max_prices(curve, t, rng),
        "multiples": curve.price(t) * rng.uniform(1.05, 2.0, len(t)),
    }
    scores = {}
    for kind, max_price in kinds.items():
        y, some = revoked(curve, t, max_price), rng.permutation(len(t))[:1000]
        speed = {"seconds to fit": seconds, "ms for 1,000": _milliseconds(model, series, t[some], max_price[some])}
        scores[kind] = judgement(np.asarray(model.probability(series, t, max_price)), y) | speed
    return scores


def judgement(p: Floats, y: NDArray[np.bool_]) -> Scores:
    """F1 and AUC are NaN where nothing was revoked."""
    safe = np.clip(p, 1e-6, 1.0 - 1e-6)
    predicted = p > 0.5
    positives, n = int(y.sum()), len(y)
    bins = np.array_split(np.argsort(p, kind="stable"), 15)  # of equal mass
    ranks = float(rankdata(p)[y].sum()) - positives * (positives + 1) / 2
    pairs = positives * (n - positives)
    return {
        "log loss": float(-np.mean(np.log(np.where(y, safe, 1.0 - safe)))),
        "Brier": float(np.mean((p - y) ** 2)),
        "reliability error": sum(abs(float((p[b] - y[b]).sum())) for b in bins) / n,
        "accuracy": float(np.mean(predicted == y)),
        "F1": 2.0 * float((predicted & y).sum()) / (predicted.sum() + positives) if positives else np.nan,
        "AUC": ranks / pairs if pairs else np.nan,
        "revoked": positives / n,
    }


def _milliseconds(model: RevocationPredictor, series: PriceSeries, t: Floats, max_price: Floats) -> float:
    spent = []
    for _ in range(7):
        started = time.perf_counter()
        model.probability(series, t, max_price)
        spent.append(time.perf_counter() - started)
    return float(np.median(spent)) * 1e3


def _table(
    scores_of: dict[tuple[str, str, Market], Scores],
    kind: str,
    group: str,
    markets: list[Market],
    models: list[str],
    check_bars: bool,
) -> list[Row]:
    """Return a row per model with its means over the markets, and a row per bar."""
    rows = []
    means: dict[str, Scores] = {}
    for name in models:
        each = {" ".join(market): scores_of[kind, name, market] for market in markets}
        measures = next(iter(each.values()))
        means[name] = {m: _mean([scores[m] for scores in each.values()]) for m in measures}
        shown = ", ".join(f"{m} {means[name][m]:.4f}" for m in measures if not m.startswith(("seconds", "ms")))
        rows.append(Row(f"{kind}, {len(markets)} {group}: {name}", shown, data=each))
    others = [name for name in models if name != OURS]
    for m in ("log loss", "Brier"):
        best = min(means[name][m] for name in others)
        won = sum(
            scores_of[kind, OURS, k][m] <= min(scores_of[kind, name, k][m] for name in others) for k in markets
        )
        figure = f"{means[OURS][m]:.4f} against {best:.4f}; best in {won} of {len(markets)} markets"
        bar = "below all others"
        rows.append(
            Row(f"{kind}, {group}: {m} of {OURS}", figure, bar, means[OURS][m] < best if check_bars else None)
        )
    errors = [scores_of[kind, OURS, market]["reliability error"] for market in markets]
    figure = (
        f"mean {np.mean(errors):.4f}, worst {max(errors):.4f}, above in {sum(e >= 0.05 for e in errors)} markets"
    )
    met = float(np.mean(errors)) < 0.05 if check_bars else None
    rows.append(Row(f"{kind}, {group}: reliability error of {OURS}", figure, "mean below 0.05", met))
    if "RevPred" in models:
        for m in ("accuracy", "F1"):
            best = max(means["Tributary"][m], means["logistic"][m])
            figure = f"{means['RevPred'][m]:.4f} against {best:.4f}"
            met = means["RevPred"][m] > best if check_bars else None
            rows.append(Row(f"{kind}, {group}: {m} of RevPred", figure, "above Tributary and logistic", met))
    return rows


def _speed(
    scores_of: dict[tuple[str, str, Market], Scores],
    markets: dict[Market, PriceSeries],
    models: list[str],
    check_bars: bool,
) -> list[Row]:
    """Return rows with the times of fits and of queries."""
    rows = []
    for name in models:
        fits = [scores_of["deltas", name, market]["seconds to fit"] for market in markets]
        queries = [
            scores_of[kind, name, market]["ms for 1,000"] for kind in ("deltas", "multiples") for market in markets
        ]
        figure = f"fit {np.mean(fits):.1f} s, worst {max(fits):.1f} s"
        figure += f"; 1,000 in {np.mean(queries):.1f} ms, worst {max(queries):.1f}"
        rows.append(Row(f"speed on {FITTED_SHARE:.0%} of the time: {name}", figure))
    queries = [
        scores_of[kind, OURS, market]["ms for 1,000"] for kind in ("deltas", "multiples") for market in markets
    ]
    met = float(np.median(queries)) < 20.0 if check_bars else None
    figure = f"median {np.median(queries):.1f} ms, worst {max(queries):.1f}"
    rows.append(Row(f"1,000 probabilities by {OURS}", figure, "below 20 ms", met))
    longest = max(markets, key=lambda market: len(markets[market].times))
    started = time.perf_counter()
    RevocationModel().fit(markets[longest])
    seconds = time.perf_counter() - started
    days = (markets[longest].end - markets[longest].times[0]) / DAY
    what = f"{OURS} fitted on {days:.0f} days of {' '.join(longest)}, {len(markets[longest].times)} changes"
    return [*rows, Row(what, f"{seconds:.1f} s", "below 10 s", seconds < 10.0 if check_bars else None)]


def _groups(markets: list[Market]) -> dict[str, list[Market]]:
    """Return the markets on which the default was designed, and the held-out ones."""
    design = [market for market in markets if market[0] in DESIGN and market[1][-1] in "ab"]
    groups = {"design markets": design, "held-out markets": [m for m in markets if m not in design]}
    return {group: members for group, members in groups.items() if members}


def _mean(values: list[float]) -> float:
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def _read() -> PriceHistory:
    return PriceHistory.read(data() / "spot_prices_useast1_2016-02-25_2016-04-09.csv.gz")


def _chosen(markets: PriceHistory, named: str | None) -> Iterator[tuple[Market, PriceSeries]]:
    for market, series in markets.items():
        days = FITTED_SHARE * (series.end - series.start) / DAY
        changes = len(series.window(series.start, series.start + days * DAY))
        if "/".join(market) in named.split(",") if named else changes >= MIN_CHANGES_PER_DAY * days:
            yield market, series


def _toy_market() -> PriceSeries:
    """Return a calm market with a spike about every other hour, for a quick run."""
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.exponential(600.0, 1500))
    prices = 0.1 * np.exp(
        0.05 * rng.standard_normal(1500) + (rng.random(1500) < 0.08) * rng.uniform(0.1, 1.5, 1500)
    )
    return PriceSeries("toy", "a", times, prices)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--markets", help="use only these markets: type/zone, separated by commas, such as r3.large/us-east-1a"
    )
    parser.add_argument("--without-torch", action="store_true", help="omit the networks")
    parser.add_argument("--rows", type=int, default=20_000, help="minutes of history that train a network")
    parser.add_argument("--epochs", type=int, default=10, help="epochs of a network's training")
    parser.add_argument("--seeds", type=int, default=1, help="fits of a network on a market; the means are shown")
    parser.add_argument(
        "--processes", type=int, default=1, help="parallel fits; with more than one, speed is not checked"
    )
    parser.add_argument("--seconds", type=float, help="time limit of a network's training on a market")


if __name__ == "__main__":
    raise SystemExit(main(measure, further=_options))
