"""Tests of SpotTune's price records, maximum prices and Eq. 3."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit

from tests.market.revocation.markets import START, Prices, spiky
from thriftune.errors import SettingError
from thriftune.market.revocation.networks import unweighted_log_odds
from thriftune.market.revocation.price_curve import HOUR, PriceCurve
from thriftune.market.revocation.spottune_inputs import (
    border_max_prices,
    past_price_records,
    price_records,
    random_max_prices,
    training_times,
)


def test_a_record_has_the_six_features() -> None:
    times = np.array([0.0, 1800.0, 3000.0]) + START  # a Thursday, 0 h
    curve = PriceCurve(Prices(times, np.array([0.1, 0.3, 0.2]), START + 9000.0))
    result = price_records(curve, np.array([START + 3600.0]))[0]
    mean = (0.1 * 1800 + 0.3 * 1200 + 0.2 * 600) / 3600
    assert result.tolist() == pytest.approx([0.2, mean, 2.0, 10.0, 1.0, 1.0])


def test_saturdays_and_sundays_are_not_workdays() -> None:
    curve = PriceCurve(spiky(8.0))
    days = price_records(curve, START + 86400.0 * np.arange(8.0))[:, 4]
    assert days.tolist() == [1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]  # Thursday, Friday, Saturday, ...


def test_past_records_are_59_minutes_oldest_first() -> None:
    curve = PriceCurve(spiky(2.0))
    t = START + 86400.0 + np.array([0.0, 777.0])
    result = past_price_records(curve, t)
    assert result.shape == (2, 59, 6)
    assert np.array_equal(result[:, 0], price_records(curve, t - 59 * 60.0))
    assert np.array_equal(result[:, -1], price_records(curve, t - 60.0))


def test_algorithm_2_by_hand() -> None:
    """The price rises a cent each minute for half an hour, then stays.

    That gives 29 deltas of a cent and 30 of zero.
    """
    times = START + 60.0 * np.arange(31.0)
    curve = PriceCurve(Prices(times, 0.1 + 0.01 * np.arange(31.0), START + 9000.0))
    deltas = np.sort([0.01] * 29 + [0.0] * 30)
    untrimmed = [delta for i, delta in enumerate(deltas) if 0.2 * 59 < i < 0.8 * 59]
    result = border_max_prices(curve, np.array([START + 3600.0]))
    assert result[0] == pytest.approx(0.4 + sum(untrimmed) / (0.6 * 59))


def test_algorithm_2_interpolates_only_known_changes() -> None:
    """Interpolation turns a known jump after a constant hour into a slope."""
    series = Prices(START + np.array([0.0, 7200.0]), np.array([0.1, 0.22]), START + 9000.0)
    result = border_max_prices(PriceCurve(series), START + np.array([7100.0, 7200.0]))
    assert result[0] == pytest.approx(0.1)
    assert result[1] == pytest.approx(0.22 + 0.001 * 36 / 35.4)


def test_random_maximum_prices_are_slightly_above() -> None:
    curve = PriceCurve(spiky(2.0))
    t = START + np.linspace(0.0, 86400.0, 500)
    above = random_max_prices(curve, t, np.random.default_rng(0)) - curve.price(t)
    assert above.min() >= 0.00001 - 1e-12
    assert above.max() <= 0.2
    assert above.mean() == pytest.approx(0.1, abs=0.01)


def test_training_times_have_a_past_and_a_future_hour() -> None:
    curve = PriceCurve(spiky(2.0))
    t = training_times(curve, 10**6, "it")
    assert t[0] == START + HOUR
    assert t[-1] + HOUR <= curve.end
    assert set(np.diff(t)) == {60.0}
    assert len(training_times(curve, 100, "it")) == 100
    with pytest.raises(SettingError, match=r"it: a price series of 12\.0 h is too short"):
        training_times(PriceCurve(spiky(0.5)), 100, "it")


@given(st.floats(0.001, 0.999), st.floats(0.001, 0.999))
def test_the_correction_undoes_the_class_weights(p: float, share: float) -> None:
    """The minimum of the weighted loss is p'.

    It satisfies p' / (1 - p') = p phi- / ((1 - p) phi+).
    """
    weighted = p * (1.0 - share) / (p * (1.0 - share) + (1.0 - p) * share)
    result = expit(unweighted_log_odds(np.array([logit(weighted)]), share))
    assert result[0] == pytest.approx(p)
    printed = expit(unweighted_log_odds(np.array([logit(weighted)]), share, as_printed=True))[0]
    odds = weighted * (1.0 - share) / ((1.0 - weighted) * share)  # Eq. 3 as printed
    assert printed / (1.0 - printed) == pytest.approx(odds, rel=1e-6)
