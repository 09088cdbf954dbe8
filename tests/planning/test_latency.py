"""Tests of latencies: fits to samples, and the mean of the longest of several."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thriftune.errors import SettingError
from thriftune.planning import Latency


@pytest.mark.parametrize(("mean", "std"), [(15.0, 1.0), (60.0, 30.0), (100.0, 200.0)])
def test_a_fit_recovers_the_distribution(mean: float, std: float) -> None:
    observed = Latency(mean, std).sample((40_000,), np.random.default_rng(0))
    fitted = Latency.fit(observed.tolist())
    assert fitted.mean == pytest.approx(mean, rel=0.05)
    assert fitted.std == pytest.approx(std, rel=0.1)
    assert Latency.of(observed.tolist()) == fitted


def test_equal_times_give_a_constant_latency() -> None:
    assert Latency.of(15) == Latency(15, 0.0)
    assert Latency.of(Latency(3.0, 1.0)) == Latency(3.0, 1.0)
    same = Latency.fit([15.0, 15.0, 15.0])
    assert (same.mean, same.std) == pytest.approx((15.0, 0.0))
    assert (Latency(7.0).sample((3, 2), np.random.default_rng(0)) == 7.0).all()


@pytest.mark.parametrize(("mean", "std"), [(15.0, 3.0), (60.0, 60.0)])
def test_samples_have_the_mean_and_the_deviation(mean: float, std: float) -> None:
    drawn = Latency(mean, std).sample((100, 2000), np.random.default_rng(1))
    assert drawn.min() > 0.0
    assert drawn.mean() == pytest.approx(mean, abs=4.0 * std / math.sqrt(drawn.size))
    assert drawn.std() == pytest.approx(std, rel=0.1)


@pytest.mark.parametrize("std", [3.0, 15.0, 30.0])
def test_the_mean_of_the_longest_agrees_with_samples(std: float) -> None:
    latency = Latency(15.0, std)
    counts = np.array([1, 2, 3, 8, 40])
    result = latency.mean_of_longest(counts)
    rng = np.random.default_rng(2)
    for count, mean in zip(counts.tolist(), result.tolist(), strict=True):
        longest = latency.sample((count, 40_000), rng).max(axis=0)
        # The midpoint rule cuts the last 1/4000 of the tail.
        assert mean == pytest.approx(longest.mean(), abs=4.0 * longest.std() / 200.0 + 0.01 * mean)


@settings(max_examples=50, deadline=None)
@given(st.floats(0.1, 1e3), st.floats(0.0, 2.0))
def test_the_mean_of_the_longest_is_increasing_and_concave(mean: float, variation: float) -> None:
    """The exact planner relies on this."""
    result = Latency(mean, variation * mean).mean_of_longest(np.arange(60))
    assert result[0] == 0.0
    assert result[1] == pytest.approx(mean)
    steps = np.diff(result)
    assert (steps >= -1e-9 * mean).all()
    assert (np.diff(steps) <= 1e-3 * mean).all()


def test_no_machines_have_no_wait() -> None:
    counts = np.array([[0, 1], [2, 0]])
    np.testing.assert_array_equal(Latency(15.0).mean_of_longest(counts), [[0.0, 15.0], [15.0, 0.0]])
    result = Latency(15.0, 5.0).mean_of_longest(counts)
    assert result.shape == (2, 2)
    assert (result == 0.0).tolist() == [[True, False], [False, True]]
    assert Latency(15.0, 5.0).mean_of_longest(np.array(0)) == 0.0


@pytest.mark.parametrize("seconds", [[], [15.0], [15.0, 0.0], [15.0, -1.0], [15.0, math.nan], [[1.0, 2.0]]])
def test_a_fit_needs_two_positive_times(seconds: Any) -> None:
    with pytest.raises(SettingError, match="give at least two recorded times in seconds, each above 0"):
        Latency.fit(seconds)


@pytest.mark.parametrize("given", ["30s", ["soon", "later"], [None, 2.0]])
def test_times_must_be_numbers(given: Any) -> None:
    with pytest.raises(SettingError, match="latency"):
        Latency.of(given)


@pytest.mark.parametrize("values", [(-1.0,), (math.inf,), (1.0, -1.0), (1.0, math.nan), ("1",), (True,)])
def test_invalid_values_are_rejected(values: Any) -> None:
    with pytest.raises(SettingError, match="must be a finite number, 0 or more"):
        Latency(*values)


def test_a_deviation_needs_a_positive_mean() -> None:
    with pytest.raises(SettingError, match="latency: std 1 needs a mean above 0"):
        Latency(0.0, 1.0)
