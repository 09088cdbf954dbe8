"""Tests the scaling of observed values, also of extreme ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.search.bayes.problems import QUICK
from thriftune.search.bayes.normalization import compress_tail, normalise, scaled_distance_to_limit

NUMBERS = st.lists(
    st.floats(-1e300, 1e300) | st.floats(-10, 10) | st.integers(-3, 3).map(float), min_size=1, max_size=12
)


@QUICK
@given(NUMBERS, st.booleans())
@example([0.0, 5e-324, 1.0], True)
@example([0.0, 1e-250, 1e100], True)
@example([1e-310, 2e-310, 3e-310], True)
@example([1e300, -1e300, 0.0, 1.0], True)
@example([1.7e308, -1.7e308], False)
@example([0.0, 0.0, 0.0, 5e-324], True)
def test_normalised_values_are_finite_and_in_the_same_order(values: list[float], robust: bool) -> None:
    y = normalise(np.array(values), robust=robust)
    assert y.shape == (len(values),)
    assert np.isfinite(y).all()
    assert y.mean() == pytest.approx(0.0, abs=1e-9)
    assert y.std() == pytest.approx(1.0) or (y == 0.0).all()
    order = np.argsort(values, kind="stable")
    assert (np.diff(y[order]) >= -1e-12).all()


@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("value", [0.0, 0.1, -3.0, 1e-300, 1e300, -1e300, 5e-324])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_equal_values_become_zeros(value: float, count: int, robust: bool) -> None:
    assert normalise(np.full(count, value), robust=robust).tolist() == [0.0] * count


@pytest.mark.parametrize("bad", [1e2, 1e6, 1e15, 1e30, 1e300])
def test_a_diverged_trial_does_not_hide_the_differences_of_the_others(bad: float) -> None:
    good = np.linspace(0.0, 1.0, 12)
    y = normalise(np.append(good, bad), robust=True)
    assert (np.diff(y) > 1e-3).all()
    # Without compression, they are nearly the same.
    assert np.diff(normalise(np.append(good, bad), robust=False))[:-1].max() < 0.05


@pytest.mark.parametrize("scale", [1e-200, 1e-3, 1.0, 1e90])
@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_units_do_not_matter(scale: float, shift: float) -> None:
    values = np.array([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 60.0])
    expected = normalise(values, robust=True)
    assert normalise((values + shift) * scale, robust=True) == pytest.approx(expected, rel=1e-9)


def test_only_values_above_the_median_are_compressed() -> None:
    y = np.array([-5.0, 0.0, 1.0, 2.0, 1000.0])
    out = compress_tail(y)
    assert out[:3].tolist() == [-5.0, 0.0, 1.0]
    spread = math.sqrt((36.0 + 1.0 + 0.0) / 3.0)
    assert out[3:] == pytest.approx(1.0 + spread * np.arcsinh(np.array([1.0, 999.0]) / spread))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # Half of all values are equal: the unit is the median distance of the values above.
        ([0.0, 0.0, 0.0, 2.0, 4.0], [0.0, 0.0, 0.0, 3.0 * math.asinh(2 / 3), 3.0 * math.asinh(4 / 3)]),
        ([1.0, 1.0, 1.0], [1.0, 1.0, 1.0]),
        ([7.0], [7.0]),
        # The only different value is better than the others.
        ([-4.0, 2.0, 2.0, 2.0], [-4.0, 2.0, 2.0, 2.0]),
    ],
)
def test_compression_of_equal_values(values: list[float], expected: list[float]) -> None:
    assert compress_tail(np.array(values)) == pytest.approx(expected)


def test_the_distance_to_a_limit_is_scaled_and_compressed() -> None:
    y = scaled_distance_to_limit(np.array([1.0, 9.0, 10.0, 11.0, 1e6]), 10.0)
    assert y[2] == 0.0
    assert (np.diff(y) > 0).all()
    assert np.mean(y**2) == pytest.approx(1.0)
    assert y[4] < 100 * y[3], "a large distance is compressed"
    assert scaled_distance_to_limit(np.array([3.0, 3.0]), 3.0).tolist() == [0.0, 0.0]
    assert np.isfinite(scaled_distance_to_limit(np.array([1.7e308, -1.7e308, 5e-324]), -1.7e308)).all()
