"""Tests of lifetimes from hourly probabilities, and of lifetimes from prices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from thriftune.errors import SettingError
from thriftune.market import PriceSeries, expected_hours
from thriftune.market.lifetime import KaplanMeier
from thriftune.market.revocation import as_survival


@pytest.mark.parametrize("probability", [0.0, 1e-6, 0.1, 0.5, 1.0])
def test_the_lifetime_has_the_hourly_probability(probability: float) -> None:
    lifetime = as_survival(probability)
    assert 1.0 - lifetime.survival(1.0) == pytest.approx(probability, abs=1e-8)
    assert lifetime.survival(1.0, age=7.0) == pytest.approx(lifetime.survival(1.0))
    assert expected_hours(lifetime, 0.01) >= 0.01


@pytest.mark.parametrize("probability", [-0.1, 1.1, math.nan, "likely", np.array([0.1, 0.2])])
def test_invalid_probabilities_are_refused(probability: Any) -> None:
    with pytest.raises(SettingError, match="must be one number between 0 and 1"):
        as_survival(probability)


def test_lifetimes_follow_from_prices() -> None:
    hour = 3600.0
    series = PriceSeries("t", "z", [0.0, 2 * hour, 3 * hour, 7 * hour], [0.1, 0.5, 0.1, 0.2], end=10 * hour)
    hours, ended = series.lifetimes(0.3, np.array([0.0, 1.5, 2.5, 3.0, 9.0]) * hour)
    assert hours.tolist() == [2.0, 0.5, 7.0, 1.0]  # at 2.5 h the price is above the maximum
    assert ended.tolist() == [True, True, False, False]  # the last two are alive when the record ends
    assert KaplanMeier.fit(hours, ended).survival(1.0) > 0.5
    hours, ended = series.lifetimes(np.array([0.15, 0.6]), np.array([3.0, 3.0]) * hour)
    assert hours.tolist() == [4.0, 7.0]
    assert ended.tolist() == [True, False]
