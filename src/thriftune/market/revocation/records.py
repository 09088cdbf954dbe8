"""What do the models of the SpotTune paper see? One-minute price records of six features, and maximum prices."""

from __future__ import annotations

import numpy as np

from thriftune.errors import SettingError
from thriftune.market.revocation.steps import DAY, HOUR, Floats, Steps

MINUTE = 60.0
PAST = 59  # records before the present one
LEAST_HOURS = 24.0
LOWEST_DELTA, HIGHEST_DELTA = 0.00001, 0.2  # dollars an hour


def records(steps: Steps, t: Floats) -> Floats:
    """The six features of section III-B, on a last axis.

    The price, its mean over the past hour, the number of changes in the past hour, minutes since the last one,
    whether it is a workday, the hour of the day (UTC).
    """
    at = steps.index(t)
    columns = [
        steps.prices[at],
        steps.mean(t - HOUR, t),
        steps.changes(t - HOUR, t)[0],
        np.maximum(t - steps.times[at], 0.0) / MINUTE,
        (np.floor(t / DAY) + 3.0) % 7.0 < 5.0,  # the first of January 1970 was a Thursday
        np.floor(t % DAY / HOUR),
    ]
    return np.stack(columns, axis=-1)


def past_records(steps: Steps, t: Floats) -> Floats:
    """Those of the 59 minutes before `t`, oldest first: an array of (times, 59, 6)."""
    return records(steps, t[:, None] - MINUTE * np.arange(PAST, 0, -1))


def random_max_prices(steps: Steps, t: Floats, rng: np.random.Generator) -> Floats:
    """Slightly above the price, as Tributary trains and as SpotTune asks."""
    return steps.price(t) + rng.uniform(LOWEST_DELTA, HIGHEST_DELTA, t.shape)


def border_max_prices(steps: Steps, t: Floats) -> Floats:
    """SpotTune Algorithm 2: the price plus the trimmed mean of its changes by the minute over the past hour.

    The paper interpolates between the records. Here that is done as far as they are known at `t`: the step
    function itself stands still in most minutes, and its trimmed mean would nearly always be 0.
    """
    minutes = t[:, None] - MINUTE * np.arange(PAST, -1, -1)
    at = steps.index(minutes)
    after = np.minimum(at + 1, len(steps.times) - 1)
    known = (steps.times[after] <= t[:, None]) & (after > at) & (minutes >= steps.start)
    share = np.where(
        known, (minutes - steps.times[at]) / np.where(known, steps.times[after] - steps.times[at], 1.0), 0.0
    )
    prices = steps.prices[at] + share * (steps.prices[after] - steps.prices[at])
    deltas = np.sort(np.abs(np.diff(prices, axis=1)), axis=1)
    places = np.arange(PAST)
    middle = (places > 0.2 * PAST) & (places < 0.8 * PAST)
    border: Floats = steps.price(t) + deltas[:, middle].sum(axis=1) / (0.6 * PAST)
    return border


def training_times(steps: Steps, most: int, who: str) -> Floats:
    """Minutes whose past and next hour are both in the series; of more than `most`, evenly chosen ones."""
    hours = (steps.end - steps.start) / HOUR
    if hours < LEAST_HOURS:
        raise SettingError(
            f"{who}: a price series of {hours:.1f} h is too short; fit it on {LEAST_HOURS:g} h or more"
        )
    t = np.arange(steps.start + HOUR, steps.end - HOUR, MINUTE)
    return t if len(t) <= most else t[np.linspace(0, len(t) - 1, most).astype(np.int64)]
