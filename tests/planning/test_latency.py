"""Waits for machines: fits that find what was drawn, and the longest of many, by drawing them."""

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
def test_a_fit_finds_what_was_drawn(mean: float, std: float) -> None:
    seen = Latency(mean, std).sample((40_000,), np.random.default_rng(0))
    fitted = Latency.fit(seen.tolist())
    assert fitted.mean == pytest.approx(mean, rel=0.05)
    assert fitted.std == pytest.approx(std, rel=0.1)
    assert Latency.of(seen.tolist()) == fitted


def test_a_number_is_constant_and_so_are_several_that_are_equal() -> None:
    assert Latency.of(15) == Latency(15, 0.0)
    assert Latency.of(Latency(3.0, 1.0)) == Latency(3.0, 1.0)
    same = Latency.fit([15.0, 15.0, 15.0])
    assert (same.mean, same.std) == pytest.approx((15.0, 0.0))
    assert (Latency(7.0).sample((3, 2), np.random.default_rng(0)) == 7.0).all()


@pytest.mark.parametrize(("mean", "std"), [(15.0, 3.0), (60.0, 60.0)])
def test_what_is_drawn_has_the_mean_and_the_deviation(mean: float, std: float) -> None:
    drawn = Latency(mean, std).sample((100, 2000), np.random.default_rng(1))
    assert drawn.min() > 0.0
    assert drawn.mean() == pytest.approx(mean, abs=4.0 * std / math.sqrt(drawn.size))
    assert drawn.std() == pytest.approx(std, rel=0.1)


@pytest.mark.parametrize("std", [3.0, 15.0, 30.0])
def test_the_longest_of_many_is_what_drawing_gives(std: float) -> None:
    latency = Latency(15.0, std)
    counts = np.array([1, 2, 3, 8, 40])
    told = latency.mean_of_longest(counts)
    rng = np.random.default_rng(2)
    for count, mean in zip(counts.tolist(), told.tolist(), strict=True):
        longest = latency.sample((count, 40_000), rng).max(axis=0)
        # The formula cuts the last 1/4000 of the tail.
        assert mean == pytest.approx(longest.mean(), abs=4.0 * longest.std() / 200.0 + 0.01 * mean)


@settings(max_examples=50, deadline=None)
@given(st.floats(0.1, 1e3), st.floats(0.0, 2.0))
def test_the_longest_grows_with_their_number_and_ever_less(mean: float, variation: float) -> None:
    """What exact.py relies on."""
    told = Latency(mean, variation * mean).mean_of_longest(np.arange(60))
    assert told[0] == 0.0
    assert told[1] == pytest.approx(mean)
    steps = np.diff(told)
    assert (steps >= -1e-9 * mean).all()
    assert (np.diff(steps) <= 1e-3 * mean).all()


def test_of_none_there_is_no_wait() -> None:
    counts = np.array([[0, 1], [2, 0]])
    np.testing.assert_array_equal(Latency(15.0).mean_of_longest(counts), [[0.0, 15.0], [15.0, 0.0]])
    told = Latency(15.0, 5.0).mean_of_longest(counts)
    assert told.shape == (2, 2)
    assert (told == 0.0).tolist() == [[True, False], [False, True]]
    assert Latency(15.0, 5.0).mean_of_longest(np.array(0)) == 0.0


@pytest.mark.parametrize("seconds", [[], [15.0], [15.0, 0.0], [15.0, -1.0], [15.0, math.nan], [[1.0, 2.0]]])
def test_too_little_to_fit_is_said(seconds: Any) -> None:
    with pytest.raises(SettingError, match="needs two or more recorded seconds, each above 0"):
        Latency.fit(seconds)


@pytest.mark.parametrize("given", ["30s", ["soon", "later"], [None, 2.0]])
def test_what_are_no_numbers_is_said(given: Any) -> None:
    with pytest.raises(SettingError, match="latency"):
        Latency.of(given)


@pytest.mark.parametrize("values", [(-1.0,), (math.inf,), (1.0, -1.0), (1.0, math.nan), ("1",), (True,)])
def test_what_cannot_be_is_said(values: Any) -> None:
    with pytest.raises(SettingError, match="must be a finite number, 0 or more"):
        Latency(*values)


def test_what_takes_no_time_on_average_cannot_vary() -> None:
    with pytest.raises(SettingError, match="latency: std 1 needs a mean above 0"):
        Latency(0.0, 1.0)
