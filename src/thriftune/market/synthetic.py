"""Synthetic price histories and lifetimes, drawn at random.

Use them if you have no records. They resemble records in what matters to a tuner: how often and how far prices
change, how often machines with a given maximum price are preempted, and how long machines live. The benchmark
benchmarks.market.synthetic compares them with the records.

- "spiky" prices resemble EC2 in 2016. Each market is calm, busy or stormy. The price wanders above a floor, in
  bursts of rapid changes. Spikes come in clusters and rise above the on-demand price. Some stay at the cap of ten
  times the on-demand price.
- "smooth" prices resemble EC2 from 2018 on. Many never change. The others change a little about every six hours,
  mostly in the direction of the previous change. Such prices do not predict preemptions.
- Lifetimes resemble those of Google Cloud's preemptible machines in 2019, whose hazard was a bathtub curve. Some
  machines are lost within the first hour and some during the day, with larger shares of large machines. All others
  are lost after 24 hours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from thriftune.errors import SettingError
from thriftune.market.price_history import PriceHistory, PriceSeries

Floats = NDArray[np.float64]
Era = Literal["spiky", "smooth"]

DAY = 86400.0
ZONES = ("zone-a", "zone-b", "zone-c")
START = 1_456_358_400.0  # 2016-02-25, the start of the spiky record
TICK = 0.0001  # dollars per hour: EC2's prices have four decimals


@dataclass(frozen=True, slots=True)
class MarketKind:
    """The parameters of one kind of spiky market.

    With z standard normal, log(price / base) is `spread` * (exp(`skew` * z) - 1), so prices have a floor and a
    long upper tail. A pair is a range from which each market draws its own value. The values are chosen so that
    the figures of benchmarks.market.synthetic match those of the 50 recorded markets of 2016.
    """

    share: float  # the share of markets of this kind
    base: tuple[float, float]  # the median price without spikes, as a share of the on-demand price
    rows_a_day: tuple[float, float]
    spread: tuple[float, float]
    skew: float
    spikes_a_day: tuple[float, float]
    steps: tuple[tuple[float, float], ...]  # (probability, size of the change of z): small changes, jumps, resets


MARKET_KINDS = (
    # Calm, as c1, m1, m3, t1: stable within a few percent for weeks. A machine with a maximum price of 1.1 times
    # the price is preempted in under 3 % of the hours.
    MarketKind(
        share=0.46,
        base=(0.08, 0.17),
        rows_a_day=(10, 400),
        spread=(0.01, 0.1),
        skew=0.6,
        spikes_a_day=(0.0005, 0.01),
        steps=((0.95, 0.1), (0.045, 0.2), (0.005, 1.0)),
    ),
    # Busy, as cr1, d2, hi1: at 1.4 times the median price for a tenth of the time, rarely above the on-demand
    # price.
    MarketKind(
        share=0.32,
        base=(0.10, 0.16),
        rows_a_day=(150, 420),
        spread=(0.09, 0.38),
        skew=0.7,
        spikes_a_day=(0.01, 0.1),
        steps=((0.9, 0.06), (0.092, 0.2), (0.008, 1.0)),
    ),
    # Stormy, as g2, m4.10xlarge, r3: above the on-demand price for 2 to 20 % of the time.
    MarketKind(
        share=0.22,
        base=(0.11, 0.35),
        rows_a_day=(120, 420),
        spread=(0.25, 1.1),
        skew=0.4,
        spikes_a_day=(0.8, 4.5),
        steps=((0.83, 0.07), (0.155, 0.2), (0.015, 0.7)),
    ),
)
# Seconds between rows are at least MIN_GAP_SECONDS (the tenth percentile of the record is 66). The rest is the
# product of an independent log-normal factor and one that is correlated over some 30 rows. The ninetieth
# percentile is then five times the median, as in the record.
MIN_GAP_SECONDS = 50.0
GAP_SIGMA = 1.0  # standard deviation of the log of the independent factor
# Standard deviation of the log of the correlated factor, and its correlation from row to row.
BURST_SIGMA, BURST_MEMORY = 1.0, 0.97
# The log-normal length of spikes. For g2, m4 and r3 the median is 4 to 30 minutes, the mean 20 to 140.
SPIKE_MINUTES, SPIKE_SIGMA = 14.0, 1.9
SPIKE_ROW_SECONDS = 300.0  # mean time between rows during a spike
CLUSTERED_SHARE, CLUSTER_GAP_HOURS = 0.5, 1.5  # share of spikes that follow another one, and the mean gap
SPIKE_HEIGHT, HEIGHT_SIGMA = 1.3, 0.9  # log-normal height below the cap, as a multiple of the on-demand price
CAPPED_SPIKE_SHARE = 0.15  # the share of spikes that reach the cap
CAP = 10.0  # EC2 allowed no bid above ten times the on-demand price
# The share of markets whose prices can reach the cap, and the range of the highest bid in the others.
CAPPED_MARKET_SHARE, UNCAPPED_MAX_BIDS = 0.6, (2.5, 7.0)

CONSTANT_SHARE = 0.36  # share of 1,241 markets of 2021 that had less than one change in two days
CONSTANT_BASE = 0.3  # share of the on-demand price; the lowest in the smooth record
MOVING_BASE = (0.3, 0.5)  # share of the on-demand price at the start
UPDATE_HOURS = (4.6, 7.6)  # hours between changes: first percentile and third quartile of the record
# The size of changes of the log price, log-normal by market. The median change is 0.14 %.
STEP, STEP_SIGMA = 0.0022, 1.0
MOMENTUM = 0.7  # correlation of changes; three in four have the sign of the one before: 1/2 + asin(0.7) / pi
LOWEST, HIGHEST = 0.1, 0.95  # bounds of smooth prices as shares of the on-demand price

CORES = (2, 4, 8, 16, 32, 64)
# The share lost in SciSpot's initial phase, by cores: Kaplan-Meier at 1 h.
EARLY = (0.12, 0.18, 0.21, 0.20, 0.26, 0.55)
LATE = (0.20, 0.15, 0.27, 0.38, 0.42, 0.30)  # share lost later in the day, by cores: Kaplan-Meier at 24 h
EARLY_HOURS = 0.4  # mean lifetime in the initial phase; SciSpot's tau1 is 0.5 or more, for lack of a slow phase
LATE_HOURS = 8.0  # mean lifetime of machines that are lost later in the day
END_HOURS, END_SPREAD_HOURS, END_SHAPE = 24.0, 0.8, 1.4
"""The forced end of life: END_HOURS, plus END_SPREAD_HOURS times a draw from the beta distribution with parameters
1 and END_SHAPE. SciSpot's e^((t - b) / tau2) with b = 24 and tau2 = 0.8 loses machines from 22 hours on. In the
record hardly any machine is lost between 22 and 24 hours. All are lost in the next 48 minutes, most of them soon
after 24 hours."""
STOP_HOURS, STOP_SIGMA = 0.8, 2.0  # log-normal age at which a user stops a machine
STOPPED = 0.75  # share of machines that users would stop if they lived long enough: 57 % of the record is censored


def synthetic_prices(
    on_demand: Mapping[str, float],
    rng: np.random.Generator,
    *,
    zones: Sequence[str] = ZONES,
    days: float = 45.0,
    era: Era = "spiky",
    start: float = START,
) -> PriceHistory:
    """Return independent price series, one for each machine type and zone.

    - `on_demand`: the machine types with their on-demand prices in dollars per hour.
    - `start`: the time of the first row, in unix seconds.
    """
    if era not in ("spiky", "smooth"):
        raise SettingError(f"synthetic prices: the era {era!r} must be spiky or smooth")
    if not 0 < days < math.inf:
        raise SettingError(f"synthetic prices: days {days} must be above zero")
    markets = [(type, zone) for type in on_demand for zone in zones]
    # Stratified quantiles: even a few markets get different kinds.
    quantiles = (rng.permutation(len(markets)) + rng.random(len(markets))) / max(len(markets), 1)
    series = []
    for (type, zone), quantile, market_rng in zip(markets, quantiles, rng.spawn(len(markets)), strict=True):
        price = on_demand[type]
        if not TICK < price < math.inf:
            raise SettingError(f"synthetic prices: {type}: on-demand price {price} must be above {TICK}")
        times, prices = (_spiky if era == "spiky" else _smooth)(price, days * DAY, float(quantile), market_rng)
        series.append(PriceSeries(type, zone, start + times, prices, end=start + days * DAY))
    return PriceHistory(series)


def synthetic_lifetimes(
    n: int, rng: np.random.Generator, *, cores: int = 16, stopped: float = STOPPED
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the observed hours of n machines, and whether each was preempted.

    The others were stopped by their users. `stopped` is the share of machines that users would stop if they lived
    long enough; with 0, no lifetime is censored.
    """
    if n < 0 or cores < 1 or not 0 <= stopped <= 1:
        raise SettingError(
            f"synthetic lifetimes: n {n} must be 0 or more, cores {cores} must be 1 or more, and stopped "
            f"{stopped} must be between 0 and 1"
        )
    size = math.log2(cores)
    early, late = (float(np.interp(size, np.log2(CORES), shares)) for shares in (EARLY, LATE))
    phase = rng.random(n)
    first, slow = rng.exponential(EARLY_HOURS, n), rng.exponential(LATE_HOURS, n)
    last = END_HOURS + END_SPREAD_HOURS * rng.beta(1.0, END_SHAPE, n)
    hours = np.minimum(np.where(phase < early, first, np.where(phase < early + late, slow, last)), last)
    stop = np.where(rng.random(n) < stopped, rng.lognormal(math.log(STOP_HOURS), STOP_SIGMA, n), math.inf)
    return np.minimum(hours, stop), hours <= stop


# --- the spiky era ----------------------------------------------------------------------------------------


def _spiky(on_demand: float, seconds: float, quantile: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return the times and prices of one spiky market.

    `quantile` selects its kind.
    """
    shares = np.cumsum([kind.share for kind in MARKET_KINDS])
    kind = MARKET_KINDS[min(int(np.searchsorted(shares, quantile)), len(MARKET_KINDS) - 1)]
    base = on_demand * _log_uniform(kind.base, rng)
    times = _row_times(_log_uniform(kind.rows_a_day, rng), seconds, rng)
    z = _random_walk(kind.steps, len(times), rng)
    prices = base * np.exp(_log_uniform(kind.spread, rng) * np.expm1(kind.skew * z))

    cap = on_demand * (CAP if rng.random() < CAPPED_MARKET_SHARE else rng.uniform(*UNCAPPED_MAX_BIDS))
    for start, length in _spikes(_log_uniform(kind.spikes_a_day, rng), seconds, rng):
        at_cap = rng.random() < CAPPED_SPIKE_SHARE
        height = cap if at_cap else min(cap, on_demand * rng.lognormal(math.log(SPIKE_HEIGHT), HEIGHT_SIGMA))
        end = min(start + length, seconds)
        later_rows = np.sort(rng.uniform(start, end, rng.poisson(length / SPIKE_ROW_SECONDS)))
        spike_times = np.append(start, later_rows)
        before, after = np.searchsorted(times, [start, end])
        price_after = prices[max(after - 1, 0)]
        moves = np.zeros(len(spike_times)) if at_cap else rng.normal(0.0, 0.15, len(spike_times))
        spike_prices = np.maximum(np.minimum(height * np.exp(moves), cap), prices[max(before - 1, 0)])
        times = np.concatenate([times[:before], spike_times, [end], times[after:]])
        prices = np.concatenate([prices[:before], spike_prices, [price_after], prices[after:]])
    return _as_ec2_rows(times, np.minimum(prices, cap), seconds)


def _row_times(rows_a_day: float, seconds: float, rng: np.random.Generator) -> Floats:
    """Return the times of rows, with bursts of short gaps."""
    scale = max(DAY / rows_a_day - MIN_GAP_SECONDS, 1.0) / math.exp(0.5 * (GAP_SIGMA**2 + BURST_SIGMA**2))
    times = np.zeros(1)
    while times[-1] < seconds:
        n = 100 + int(1.2 * (seconds - times[-1]) / DAY * rows_a_day)
        burst = lfilter([math.sqrt(1 - BURST_MEMORY**2)], [1, -BURST_MEMORY], rng.normal(size=n))
        gaps = MIN_GAP_SECONDS + scale * np.exp(BURST_SIGMA * burst + GAP_SIGMA * rng.normal(size=n))
        times = np.append(times, times[-1] + np.cumsum(gaps))
    return times[times < seconds]


def _random_walk(steps: Sequence[tuple[float, float]], n: int, rng: np.random.Generator) -> Floats:
    """Return a stationary series of n standard normal values.

    A step of size s replaces z by sqrt(1 - s^2) z plus noise of standard deviation s, so the variance stays 1.
    """
    kinds = rng.choice(len(steps), n, p=[probability for probability, _ in steps])
    sizes = np.array([size for _, size in steps])[kinds]
    factors = np.sqrt(1 - sizes**2)
    values = []
    z = float(rng.normal())
    for factor, noise in zip(factors.tolist(), (sizes * rng.normal(size=n)).tolist(), strict=True):
        z = factor * z + noise
        values.append(z)
    return np.array(values)


def _spikes(spikes_a_day: float, seconds: float, rng: np.random.Generator) -> list[tuple[float, float]]:
    """Return the start and the length in seconds of each spike.

    Spikes come in clusters.
    """
    clusters = np.sort(rng.uniform(0, seconds, rng.poisson(spikes_a_day * (1 - CLUSTERED_SHARE) * seconds / DAY)))
    starts = []
    for first in clusters.tolist():
        gaps = rng.exponential(CLUSTER_GAP_HOURS * 3600, rng.geometric(1 - CLUSTERED_SHARE) - 1)
        starts += [first, *(first + np.cumsum(gaps)).tolist()]
    lengths = 60 * rng.lognormal(math.log(SPIKE_MINUTES), SPIKE_SIGMA, len(starts))
    return [(start, length) for start, length in zip(starts, lengths.tolist(), strict=True) if start < seconds]


# --- the smooth era ---------------------------------------------------------------------------------------


def _smooth(on_demand: float, seconds: float, quantile: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return the times and prices of one smooth market.

    `quantile` decides whether its price is constant.
    """
    if quantile < CONSTANT_SHARE:
        return _as_ec2_rows(np.zeros(1), np.array([on_demand * CONSTANT_BASE]), seconds)
    n = 2 + int(seconds / (UPDATE_HOURS[0] * 3600))
    times = np.append(0.0, np.cumsum(3600 * rng.uniform(*UPDATE_HOURS, n - 1)))
    step = STEP * rng.lognormal(0.0, STEP_SIGMA)
    drift = lfilter([math.sqrt(1 - MOMENTUM**2)], [1, -MOMENTUM], rng.normal(size=n))
    log_price = math.log(_log_uniform(MOVING_BASE, rng)) + step * np.cumsum(drift)
    prices = on_demand * np.clip(np.exp(log_price), LOWEST, HIGHEST)
    return _as_ec2_rows(times[times < seconds], prices[times < seconds], seconds)


# --- both eras --------------------------------------------------------------------------------------------


def _log_uniform(bounds: tuple[float, float], rng: np.random.Generator) -> float:
    return math.exp(rng.uniform(*np.log(bounds)))


def _as_ec2_rows(times: Floats, prices: Floats, seconds: float) -> tuple[Floats, Floats]:
    """Return the rows as EC2 lists them.

    Times are whole seconds, prices are whole ticks. Each change has a row, and so does each day without changes.
    """
    times, first = np.unique(np.floor(times), return_index=True)
    prices = np.maximum(np.round(prices[first] / TICK), 1) * TICK
    changed = np.append(True, np.abs(np.diff(prices)) > TICK / 2)
    times, prices = times[changed], np.round(prices[changed], 4)
    repeats = np.maximum(np.ceil(np.diff(times, append=seconds) / DAY).astype(int), 1)
    nth = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    return np.repeat(times, repeats) + DAY * nth, np.repeat(prices, repeats)
