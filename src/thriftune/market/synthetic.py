"""What might prices and lifetimes look like? Seeded traces for those who have no record of their own.

They resemble the records in what matters to a tuner: how often a price moves and how far, how often a machine with
some maximum price is lost, how long one lives. `python -m benchmarks.market.synthetic` sets them side by side.

- "spiky", as on EC2 in 2016: each market is calm, busy or stormy. A price wanders above a floor, in bursts of
  rapid changes; spikes, which come in flocks, go above the on-demand price; some stick at the cap, ten times that.
- "smooth", as on EC2 from 2018 on: many prices never move, the others a little, every six hours or so, mostly on
  in the direction of the change before. Such a price says nothing about revocation.
- Lifetimes as of preemptible machines on Google's cloud in 2019: a bathtub. Some are lost within the first hour,
  some in the course of the day, the larger the machine the more, and after 24 hours all that are left must go.
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
from thriftune.market.prices import PriceHistory, PriceSeries

Floats = NDArray[np.float64]
Era = Literal["spiky", "smooth"]

DAY = 86400.0
ZONES = ("zone-a", "zone-b", "zone-c")
START = 1_456_358_400.0  # 2016-02-25, when the record of the spiky era begins
TICK = 0.0001  # dollars an hour: EC2's prices have four decimals


@dataclass(frozen=True, slots=True)
class Mood:
    """What one kind of market of the spiky era is like.

    With z standard normal, log(price / base) is `spread` * (exp(`skew` * z) - 1): prices have a floor, and a long
    way up. Pairs are the bounds between which a market's own figure is drawn. They were set so that the figures of
    benchmarks.market.synthetic come out as those of the 50 markets in the record of 2016.
    """

    share: float  # of the markets
    base: tuple[float, float]  # the middle price without spikes, over the on-demand price
    rows_a_day: tuple[float, float]
    spread: tuple[float, float]
    skew: float
    spikes_a_day: tuple[float, float]
    steps: tuple[tuple[float, float], ...]  # (probability, how far z goes): small moves, jumps, a new price


MOODS = (
    # As c1, m1, m3, t1: within some percent for weeks, revoked (at 1.1 times the price) in under 3 % of the hours.
    Mood(
        share=0.46,
        base=(0.08, 0.17),
        rows_a_day=(10, 400),
        spread=(0.01, 0.1),
        skew=0.6,
        spikes_a_day=(0.0005, 0.01),
        steps=((0.95, 0.1), (0.045, 0.2), (0.005, 1.0)),
    ),
    # As cr1, d2, hi1: 1.4 times the middle price in a tenth of the time, seldom above the on-demand price.
    Mood(
        share=0.32,
        base=(0.10, 0.16),
        rows_a_day=(150, 420),
        spread=(0.09, 0.38),
        skew=0.7,
        spikes_a_day=(0.01, 0.1),
        steps=((0.9, 0.06), (0.092, 0.2), (0.008, 1.0)),
    ),
    # As g2, m4.10xlarge, r3: above on demand for 2 to 20 % of the time.
    Mood(
        share=0.22,
        base=(0.11, 0.35),
        rows_a_day=(120, 420),
        spread=(0.25, 1.1),
        skew=0.4,
        spikes_a_day=(0.8, 4.5),
        steps=((0.83, 0.07), (0.155, 0.2), (0.015, 0.7)),
    ),
)
FASTEST_SECONDS = 50.0  # few rows follow one another faster; the tenth percentile is 66
GAP_SIGMA = 1.0  # of the log of the seconds between rows: the ninetieth percentile is five times the middle
BURST_SIGMA, BURST_MEMORY = 1.0, 0.97  # of the part of it that lasts, for some 30 rows
SPIKE_MINUTES, SPIKE_SIGMA = 14.0, 1.9  # log-normal; of g2, m4 and r3 the middle is 4 to 30, the mean 20 to 140
SPIKE_ROW_SECONDS = 300.0  # between rows while it lasts
FLOCK_SHARE, FLOCK_HOURS = 0.5, 1.5  # so many spikes follow another within so long
SPIKE_HEIGHT, HEIGHT_SIGMA = 1.3, 0.9  # over the on-demand price, log-normal, where it is not the cap
AT_CAP = 0.15  # of the spikes
CAP = 10.0  # no one may bid more than ten times the on-demand price
CAPPED_MARKETS, HIGHEST_BIDS = 0.6, (2.5, 7.0)  # in the other markets no bid comes near it

STILL_SHARE = 0.36  # of 1,241 markets of 2021, those whose price moved less than every other day, or never
STILL_BASE = 0.3  # the lowest of the smoothed era
MOVING_BASE = (0.3, 0.5)
UPDATE_HOURS = (4.6, 7.6)  # between changes: a hundredth and three quarters of the record lie there
STEP, STEP_SIGMA = 0.0022, 1.0  # of the log price, by market log-normal: the middle change is 0.14 %
MOMENTUM = 0.7  # three changes in four go on as the one before: 1/2 + asin(0.7) / pi
LOWEST, HIGHEST = 0.1, 0.95  # over the on-demand price

CORES = (2, 4, 8, 16, 32, 64)
EARLY = (0.12, 0.18, 0.21, 0.20, 0.26, 0.55)  # lost in SciSpot's initial phase, by cores: Kaplan-Meier at 1 h
LATE = (0.20, 0.15, 0.27, 0.38, 0.42, 0.30)  # lost later in the day, by cores: Kaplan-Meier at 24 h
EARLY_HOURS = 0.4  # tau1; SciSpot has 0.5 and more, because its form has no slow part
LATE_HOURS = 8.0
END_HOURS, END_SPREAD_HOURS, END_SHAPE = 24.0, 0.8, 1.4
"""SciSpot's e^((t - b) / tau2) with b = 24 and tau2 = 0.8 lets machines go from 22 hours on. In the record hardly
any goes between 22 and 24 hours; then all do within 48 minutes, the most of them soon."""
STOP_HOURS, STOP_SIGMA = 0.8, 2.0  # when an owner stops a machine, log-normal
STOPPED = 0.75  # of the machines, if they live so long: 57 % of the record is censored


def synthetic_prices(
    on_demand: Mapping[str, float],
    rng: np.random.Generator,
    *,
    zones: Sequence[str] = ZONES,
    days: float = 45.0,
    era: Era = "spiky",
    start: float = START,
) -> PriceHistory:
    """Prices of each type of machine in each zone, each of its own course.

    - `on_demand`: the types, with their on-demand prices in dollars an hour.
    - `start`: unix seconds.
    """
    if era not in ("spiky", "smooth"):
        raise SettingError(f"synthetic prices: the era {era!r} is none of spiky, smooth")
    if not 0 < days < math.inf:
        raise SettingError(f"synthetic prices: days {days} must be above zero")
    markets = [(kind, zone) for kind in on_demand for zone in zones]
    # One from each stratum: a handful of markets, too, are of different kinds.
    draws = (rng.permutation(len(markets)) + rng.random(len(markets))) / max(len(markets), 1)
    series = []
    for (kind, zone), draw, own in zip(markets, draws, rng.spawn(len(markets)), strict=True):
        price = on_demand[kind]
        if not TICK < price < math.inf:
            raise SettingError(f"synthetic prices: {kind}: on-demand price {price} must be above {TICK}")
        times, prices = (_spiky if era == "spiky" else _smooth)(price, days * DAY, float(draw), own)
        series.append(PriceSeries(kind, zone, start + times, prices, end=start + days * DAY))
    return PriceHistory(series)


def synthetic_lifetimes(
    n: int, rng: np.random.Generator, *, cores: int = 16, stopped: float = STOPPED
) -> tuple[Floats, NDArray[np.bool_]]:
    """How many hours each of n machines was observed, and whether it ended then (or was stopped by its owner).

    - `stopped`: the share of machines whose owner would stop them some time; 0 for lifetimes without censoring.
    """
    if n < 0 or cores < 1 or not 0 <= stopped <= 1:
        raise SettingError(f"synthetic lifetimes: cannot be of n {n}, cores {cores}, stopped {stopped}")
    size = math.log2(cores)
    early, late = (float(np.interp(size, np.log2(CORES), shares)) for shares in (EARLY, LATE))
    phase = rng.random(n)
    first, slow = rng.exponential(EARLY_HOURS, n), rng.exponential(LATE_HOURS, n)
    last = END_HOURS + END_SPREAD_HOURS * rng.beta(1.0, END_SHAPE, n)
    hours = np.minimum(np.where(phase < early, first, np.where(phase < early + late, slow, last)), last)
    stop = np.where(rng.random(n) < stopped, rng.lognormal(math.log(STOP_HOURS), STOP_SIGMA, n), math.inf)
    return np.minimum(hours, stop), hours <= stop


# --- the spiky era ----------------------------------------------------------------------------------------


def _spiky(on_demand: float, seconds: float, draw: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    mood = MOODS[min(int(np.searchsorted(np.cumsum([mood.share for mood in MOODS]), draw)), len(MOODS) - 1)]
    base = on_demand * _log_uniform(mood.base, rng)
    times = _row_times(_log_uniform(mood.rows_a_day, rng), seconds, rng)
    z = _wander(mood.steps, len(times), rng)
    prices = base * np.exp(_log_uniform(mood.spread, rng) * np.expm1(mood.skew * z))

    cap = on_demand * (CAP if rng.random() < CAPPED_MARKETS else rng.uniform(*HIGHEST_BIDS))
    for begin, length in _spikes(_log_uniform(mood.spikes_a_day, rng), seconds, rng):
        at_cap = rng.random() < AT_CAP
        height = cap if at_cap else min(cap, on_demand * rng.lognormal(math.log(SPIKE_HEIGHT), HEIGHT_SIGMA))
        finish = min(begin + length, seconds)
        while_it_lasts = np.append(
            begin, np.sort(rng.uniform(begin, finish, rng.poisson(length / SPIKE_ROW_SECONDS)))
        )
        before, after = np.searchsorted(times, [begin, finish])
        falls_back = prices[max(after - 1, 0)]
        moves = np.zeros(len(while_it_lasts)) if at_cap else rng.normal(0.0, 0.15, len(while_it_lasts))
        above = np.maximum(np.minimum(height * np.exp(moves), cap), prices[max(before - 1, 0)])
        times = np.concatenate([times[:before], while_it_lasts, [finish], times[after:]])
        prices = np.concatenate([prices[:before], above, [falls_back], prices[after:]])
    return _as_told(times, np.minimum(prices, cap), seconds)


def _row_times(rows_a_day: float, seconds: float, rng: np.random.Generator) -> Floats:
    """Gaps are log-normal, and a slow one of the two parts makes bursts of them."""
    scale = max(DAY / rows_a_day - FASTEST_SECONDS, 1.0) / math.exp(0.5 * (GAP_SIGMA**2 + BURST_SIGMA**2))
    times = np.zeros(1)
    while times[-1] < seconds:
        n = 100 + int(1.2 * (seconds - times[-1]) / DAY * rows_a_day)
        burst = lfilter([math.sqrt(1 - BURST_MEMORY**2)], [1, -BURST_MEMORY], rng.normal(size=n))
        gaps = FASTEST_SECONDS + scale * np.exp(BURST_SIGMA * burst + GAP_SIGMA * rng.normal(size=n))
        times = np.append(times, times[-1] + np.cumsum(gaps))
    return times[times < seconds]


def _wander(steps: Sequence[tuple[float, float]], n: int, rng: np.random.Generator) -> Floats:
    """Standard normal at each row. A step that goes `far` forgets as much as it adds, and so keeps it that."""
    kinds = rng.choice(len(steps), n, p=[probability for probability, _ in steps])
    added = np.array([far for _, far in steps])[kinds]
    kept = np.sqrt(1 - added**2)
    told = []
    z = float(rng.normal())
    for keep, add in zip(kept.tolist(), (added * rng.normal(size=n)).tolist(), strict=True):
        z = keep * z + add
        told.append(z)
    return np.array(told)


def _spikes(a_day: float, seconds: float, rng: np.random.Generator) -> list[tuple[float, float]]:
    """When each begins and how many seconds it lasts; they come in flocks."""
    flocks = np.sort(rng.uniform(0, seconds, rng.poisson(a_day * (1 - FLOCK_SHARE) * seconds / DAY)))
    begins = []
    for first in flocks.tolist():
        gaps = rng.exponential(FLOCK_HOURS * 3600, rng.geometric(1 - FLOCK_SHARE) - 1)
        begins += [first, *(first + np.cumsum(gaps)).tolist()]
    lengths = 60 * rng.lognormal(math.log(SPIKE_MINUTES), SPIKE_SIGMA, len(begins))
    return [(begin, length) for begin, length in zip(begins, lengths.tolist(), strict=True) if begin < seconds]


# --- the smooth era ---------------------------------------------------------------------------------------


def _smooth(on_demand: float, seconds: float, draw: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    if draw < STILL_SHARE:
        return _as_told(np.zeros(1), np.array([on_demand * STILL_BASE]), seconds)
    n = 2 + int(seconds / (UPDATE_HOURS[0] * 3600))
    times = np.append(0.0, np.cumsum(3600 * rng.uniform(*UPDATE_HOURS, n - 1)))
    step = STEP * rng.lognormal(0.0, STEP_SIGMA)
    drift = lfilter([math.sqrt(1 - MOMENTUM**2)], [1, -MOMENTUM], rng.normal(size=n))
    log_price = math.log(_log_uniform(MOVING_BASE, rng)) + step * np.cumsum(drift)
    prices = on_demand * np.clip(np.exp(log_price), LOWEST, HIGHEST)
    return _as_told(times[times < seconds], prices[times < seconds], seconds)


# --- both -------------------------------------------------------------------------------------------------


def _log_uniform(bounds: tuple[float, float], rng: np.random.Generator) -> float:
    return math.exp(rng.uniform(*np.log(bounds)))


def _as_told(times: Floats, prices: Floats, seconds: float) -> tuple[Floats, Floats]:
    """As EC2 tells them: whole seconds and ticks, a row a change, and one a day where there is none."""
    times, first = np.unique(np.floor(times), return_index=True)
    prices = np.maximum(np.round(prices[first] / TICK), 1) * TICK
    changed = np.append(True, np.abs(np.diff(prices)) > TICK / 2)
    times, prices = times[changed], np.round(prices[changed], 4)
    repeats = np.maximum(np.ceil(np.diff(times, append=seconds) / DAY).astype(int), 1)
    nth = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    return np.repeat(times, repeats) + DAY * nth, np.repeat(prices, repeats)
