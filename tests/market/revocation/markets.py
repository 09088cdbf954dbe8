"""Synthetic markets for the tests of revocation models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

Floats = NDArray[np.float64]

START = 1_456_358_400.0  # 2016-02-25


@dataclass(frozen=True)
class Prices:
    """A price series with only the attributes that the models read."""

    times: Floats
    prices: Floats
    end: float


def spiky(days: float, seed: int = 0, after: float = START) -> Prices:
    """Return a market with frequent spikes from 14 to 18 h.

    Prices change about every ten minutes.
    """
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(600.0, round(days * 144 * 1.5) + 10)
    times = after + np.concatenate([[0.0], np.cumsum(gaps)])
    times = times[times <= after + days * 86400.0]
    hour = times % 86400.0 / 3600.0
    busy = (hour >= 14.0) & (hour < 18.0)
    spike = rng.random(len(times)) < np.where(busy, 0.4, 0.01)
    prices = 0.1 * np.exp(0.02 * rng.standard_normal(len(times)) + spike * rng.uniform(0.1, 1.0, len(times)))
    return Prices(times, prices, after + days * 86400.0)


def changed_after(series: Prices, t: float, factor: float) -> Prices:
    """Return the series with all prices after `t` multiplied by `factor`."""
    later = series.times > t
    return Prices(series.times, np.where(later, series.prices * factor, series.prices), series.end)


@st.composite
def small_markets(draw: st.DrawFn) -> Prices:
    """Draw a market with a few prices at whole seconds, some of them equal."""
    gaps = draw(st.lists(st.integers(1, 4000), min_size=0, max_size=30))
    times = START + np.concatenate([[0.0], np.cumsum(np.array(gaps, float))])
    cents = draw(st.lists(st.integers(1, 9), min_size=len(times), max_size=len(times)))
    last = float(times[-1]) + draw(st.integers(0, 5000))
    return Prices(times, np.array(cents, float) / 100.0, last)
