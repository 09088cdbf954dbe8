"""Tests of the price curve against scans of all prices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.market.revocation.markets import START, Floats, Prices, small_markets, spiky
from thriftune.errors import SettingError
from thriftune.market.revocation.price_curve import HOUR, PriceCurve, flat_queries, revoked


def naive_price(series: Prices, t: float) -> float:
    return float(series.prices[series.times <= t][-1]) if t >= series.times[0] else float(series.prices[0])


def naive_prices(series: Prices, t0: float, t1: float) -> Floats:
    """Return all prices at any time in [t0, t1]."""
    changed = series.prices[(series.times > t0) & (series.times <= t1)]
    return np.append(changed, naive_price(series, t0))


MOMENT = st.integers(0, 60_000).map(lambda s: START + s)
CENTS = st.integers(0, 20).map(lambda half: (half + 0.0) / 200.0 + 0.0001)


@settings(max_examples=100, deadline=None)
@given(small_markets(), MOMENT, CENTS, st.integers(1, 9000))
def test_labels_equal_a_scan(series: Prices, t: float, max_price: float, seconds: int) -> None:
    then = (series.times > t) & (series.times <= t + seconds)
    result = revoked(PriceCurve(series), np.array([t]), np.array([max_price]), seconds)
    assert result.tolist() == [bool((series.prices[then] > max_price).any())]


@settings(max_examples=100, deadline=None)
@given(small_markets(), MOMENT, CENTS, st.integers(0, 9000))
def test_window_statistics_equal_a_scan(series: Prices, t: float, max_price: float, seconds: int) -> None:
    curve = PriceCurve(series)
    t0, t1 = np.array([t - seconds]), np.array([t])
    assert curve.highest(t0, t1)[0] == naive_prices(series, t - seconds, t).max()
    in_window = (series.times > max(t - seconds, START)) & (series.times <= t)
    changes, rises, moved = (float(one[0]) for one in curve.changes(t0, t1))
    assert changes == in_window.sum()
    ratios = np.diff(np.log(series.prices), prepend=np.log(series.prices[0]))[in_window]
    assert rises == (ratios > 0).sum()
    assert moved == pytest.approx(np.abs(ratios).sum(), abs=1e-9)
    seen = np.arange(max(t - seconds, START), t)
    if len(seen):
        mean = np.mean([naive_price(series, second) for second in seen[:: max(1, len(seen) // 200)]])
        if seconds <= 200:  # the scan is exact at every whole second
            assert curve.mean(t0, t1)[0] == pytest.approx(mean)


@settings(max_examples=100, deadline=None)
@given(small_markets(), MOMENT, CENTS)
def test_time_since_above_equals_a_scan(series: Prices, t: float, max_price: float) -> None:
    result = PriceCurve(series).seconds_since_above(np.array([max_price]), np.array([t]))[0]
    known = series.times <= t
    above = np.flatnonzero(series.prices[known] > max_price)
    if not len(above):
        assert result == t - START
    elif above[-1] == known.sum() - 1:
        assert result == 0.0
    else:
        assert result == t - series.times[above[-1] + 1]


def test_the_hour_is_open_at_its_start_and_closed_at_its_end() -> None:
    series = Prices(np.array([0.0, 100.0]), np.array([1.0, 2.0]), 9000.0)
    result = revoked(PriceCurve(series), np.array([100.0 - HOUR - 1, 100.0 - HOUR, 99.0, 100.0]), np.full(4, 1.5))
    assert result.tolist() == [False, True, True, False]
    assert not revoked(PriceCurve(series), np.array([50.0]), np.array([2.0]))[0]  # an equal price is not above


def test_invalid_queries_are_refused() -> None:
    curve = PriceCurve(spiky(1.0))
    with pytest.raises(SettingError, match="before the first price"):
        flat_queries(curve, START - 1.0, 0.1)
    with pytest.raises(SettingError, match="max_price 0 must be above 0"):
        flat_queries(curve, START + 1.0, 0.0)
    with pytest.raises(SettingError, match="before the first price"):
        flat_queries(curve, float("nan"), 0.1)
    with pytest.raises(SettingError, match="is empty"):
        PriceCurve(Prices(np.zeros(0), np.zeros(0), 0.0))
    with pytest.raises(SettingError, match="prices must be above 0"):
        PriceCurve(Prices(np.zeros(1), np.zeros(1), 0.0))
