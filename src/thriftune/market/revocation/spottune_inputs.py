"""The inputs of the SpotTune paper's models.

They are one-minute price records of six features, and maximum prices.
"""

from __future__ import annotations

import numpy as np

from thriftune.errors import SettingError
from thriftune.market.revocation.price_curve import DAY, HOUR, Floats, PriceCurve

MINUTE = 60.0
PAST_RECORDS = 59  # before the present one (SpotTune III-B)
MIN_HOURS = 24.0
LOWEST_DELTA, HIGHEST_DELTA = 0.00001, 0.2  # dollars per hour above the price, as in SpotTune


def price_records(curve: PriceCurve, t: Floats) -> Floats:
    """Return the six features of SpotTune III-B at each time, on a new last axis.

    They are the price, its mean over the past hour, the number of changes in the past hour, the minutes since the
    last change, whether it is a workday, and the hour of the day (UTC).
    """
    at = curve.index(t)
    columns = [
        curve.prices[at],
        curve.mean(t - HOUR, t),
        curve.changes(t - HOUR, t)[0],
        np.maximum(t - curve.times[at], 0.0) / MINUTE,
        (np.floor(t / DAY) + 3.0) % 7.0 < 5.0,  # 1 January 1970 was a Thursday
        np.floor(t % DAY / HOUR),
    ]
    return np.stack(columns, axis=-1)


def past_price_records(curve: PriceCurve, t: Floats) -> Floats:
    """Return the records of the 59 minutes before `t`, oldest first.

    The shape is (times, 59, 6).
    """
    return price_records(curve, t[:, None] - MINUTE * np.arange(PAST_RECORDS, 0, -1))


def random_max_prices(curve: PriceCurve, t: Floats, rng: np.random.Generator) -> Floats:
    """Return random maximum prices slightly above the price.

    Tributary trains on such prices, and SpotTune bids them.
    """
    return curve.price(t) + rng.uniform(LOWEST_DELTA, HIGHEST_DELTA, t.shape)


def border_max_prices(curve: PriceCurve, t: Floats) -> Floats:
    """Return the maximum prices of SpotTune Algorithm 2.

    Each is the price plus the trimmed mean of its changes per minute in the past hour. The price is interpolated
    between its changes, as in the paper, but only between changes known at `t`. Without interpolation the trimmed
    mean would nearly always be 0, because most minutes have no change.
    """
    minutes = t[:, None] - MINUTE * np.arange(PAST_RECORDS, -1, -1)
    at = curve.index(minutes)
    after = np.minimum(at + 1, len(curve.times) - 1)
    known = (curve.times[after] <= t[:, None]) & (after > at) & (minutes >= curve.start)
    share = np.where(
        known, (minutes - curve.times[at]) / np.where(known, curve.times[after] - curve.times[at], 1.0), 0.0
    )
    prices = curve.prices[at] + share * (curve.prices[after] - curve.prices[at])
    deltas = np.sort(np.abs(np.diff(prices, axis=1)), axis=1)
    ranks = np.arange(PAST_RECORDS)
    untrimmed = (ranks > 0.2 * PAST_RECORDS) & (ranks < 0.8 * PAST_RECORDS)
    max_prices: Floats = curve.price(t) + deltas[:, untrimmed].sum(axis=1) / (0.6 * PAST_RECORDS)
    return max_prices


def training_times(curve: PriceCurve, max_count: int, model_name: str) -> Floats:
    """Return at most `max_count` evenly spaced minutes for training.

    The hour before and the hour after each minute lie in the series.
    """
    hours = (curve.end - curve.start) / HOUR
    if hours < MIN_HOURS:
        raise SettingError(
            f"{model_name}: a price series of {hours:.1f} h is too short; fit it on {MIN_HOURS:g} h or more"
        )
    t = np.arange(curve.start + HOUR, curve.end - HOUR, MINUTE)
    return t if len(t) <= max_count else t[np.linspace(0, len(t) - 1, max_count).astype(np.int64)]
