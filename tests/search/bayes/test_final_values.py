"""Tests the estimated final values of trials that were cut short, and their variances."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import linregress

from tests.search.bayes.problems import QUICK
from thriftune.search.bayes.final_values import Estimates, estimate_cut_short
from thriftune.search.bayes.kernel import Array
from thriftune.search.bayes.normalization import normalise
from thriftune.search.bayes.observations import StepLevel
from thriftune.state.trial_record import State, TrialRecord

STOPPED, PAUSED, COMPLETED, RUNNING = State.STOPPED, State.PAUSED, State.COMPLETED, State.RUNNING


def level_of(values: Sequence[float] | Array, states: Sequence[State]) -> StepLevel:
    """Return a level with values of the last trials; the point of a trial is its id."""
    count = len(states)
    trials = [TrialRecord(number, {}, created_at=0.0, state=state) for number, state in enumerate(states)]
    trials = trials[count - len(values) :]
    X = np.array([[float(trial.id)] for trial in trials])
    return StepLevel(trials, X, np.array(values, dtype=float)[:, None])


def estimates_of(lower: Sequence[StepLevel], target: dict[int, float], robust: bool = False) -> Estimates:
    return estimate_cut_short(lower, target, robust=robust)


def points(estimates: Estimates) -> list[int]:
    return [int(row[0]) for row in estimates.X]


# --- the estimates ------------------------------------------------------------------------------------------


@QUICK
@given(st.integers(3, 12), st.integers(1, 5), st.booleans(), st.integers(0, 2**32))
def test_an_estimate_is_an_inverse_least_squares_line(promoted: int, cut: int, robust: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(cut + promoted)
    level = level_of(values, [STOPPED] * cut + [COMPLETED] * promoted)
    x = normalise(values, robust=robust)
    y = 2.0 * x[cut:] + 0.3 * rng.standard_normal(promoted)
    estimates = estimates_of([level], dict(enumerate(y.tolist(), cut)), robust)
    line = linregress(y, x[cut:])
    if line.slope <= 1e-3:
        return  # see below
    assert points(estimates) == list(range(cut))
    residual = x[cut:] - line.intercept - line.slope * y
    inverse = np.clip((x[:cut] - line.intercept) / line.slope, y.min(), y.max())
    leverage = (inverse - y.mean()) ** 2 / ((y - y.mean()) ** 2).sum()
    assert estimates.y == pytest.approx(inverse, abs=1e-6)
    expected = (residual @ residual) / (promoted - 2) / line.slope**2 * (1.0 + 1.0 / promoted + leverage)
    assert estimates.variance == pytest.approx(expected, rel=1e-6)


def test_a_level_that_reverses_the_order_gives_no_estimates() -> None:
    level = level_of([9.0, 1.0, 2.0, 3.0, 4.0], [STOPPED] + [COMPLETED] * 4)
    assert points(estimates_of([level], {1: 4.0, 2: 3.0, 3: 2.0, 4: 1.0})) == [], "the slope is negative"


def test_an_estimate_stays_within_the_observed_final_values() -> None:
    level = level_of([99.0, -99.0, 1.0, 2.0, 3.0, 4.5], [STOPPED] * 2 + [COMPLETED] * 4)
    estimates = estimates_of([level], {2: 1.0, 3: 2.0, 4: 3.0, 5: 4.0})
    assert estimates.y.tolist() == [4.0, 1.0]


def test_an_estimate_from_a_noisy_level_has_a_large_variance() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(24)
    level = level_of(x, [STOPPED] * 4 + [COMPLETED] * 20)

    def variance(noise: float) -> float:
        y = x[4:] + noise * rng.standard_normal(20)
        return float(estimates_of([level], dict(enumerate(y.tolist(), 4))).variance.mean())

    assert variance(0.0) < 1e-9
    assert variance(0.1) < 0.1 < variance(1.0)


# --- which trials and levels --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "expected"), [(STOPPED, [0]), (PAUSED, [0]), (RUNNING, []), (State.WAITING, []), (COMPLETED, [])]
)
def test_estimates_are_of_trials_that_were_cut_short(state: State, expected: list[int]) -> None:
    level = level_of([1.0, 2.0, 3.0, 5.0, 8.0], [state] + [COMPLETED] * 4)
    assert points(estimates_of([level], {1: 2.0, 2: 3.0, 3: 5.0, 4: 8.0})) == expected


def test_a_trial_cut_short_at_the_target_level_has_a_value_and_no_estimate() -> None:
    level = level_of([1.0, 2.0, 3.0, 5.0, 8.0], [STOPPED] * 5)
    assert points(estimates_of([level], {1: 2.0, 2: 3.0, 3: 5.0, 4: 8.0})) == [0]


def test_each_trial_is_estimated_from_its_highest_level() -> None:
    """The upper level predicts the final value exactly, and the lower one not at all."""
    states = [STOPPED] * 4 + [COMPLETED] * 4
    lower = level_of([1.0, 5.0, 2.0, 4.0, 3.0, 1.0, 4.0, 2.0], states)
    upper = level_of([2.5, 1.5, 0.0, 1.0, 2.0, 3.0], states)
    y = normalise(upper.values[:, 0], robust=False)
    estimates = estimates_of([lower, upper], dict(enumerate(y[2:].tolist(), 4)))
    assert {2, 3} <= set(points(estimates)) <= {0, 1, 2, 3}
    by_trial = dict(zip(points(estimates), zip(estimates.y, estimates.variance, strict=True), strict=True))
    assert by_trial[2] == (pytest.approx(y[0]), pytest.approx(0.0, abs=1e-9))
    assert by_trial[3] == (pytest.approx(y[1]), pytest.approx(0.0, abs=1e-9))
    assert all(by_trial[i][1] > 0.01 for i in (0, 1) if i in by_trial)


# --- no estimates ---------------------------------------------------------------------------------------------


def test_two_trials_or_equal_values_give_no_estimates() -> None:
    level = level_of([1.0, 2.0, 3.0], [STOPPED] + [COMPLETED] * 2)
    assert points(estimates_of([level], {1: 0.0, 2: 1.0})) == []
    equal = level_of([3.0] * 6, [STOPPED] * 2 + [COMPLETED] * 4)
    assert points(estimates_of([equal], {2: 0.0, 3: 1.0, 4: 2.0, 5: 3.0})) == []
    assert points(estimates_of([], {2: 0.0, 3: 1.0})) == []


def test_equal_final_values_give_no_estimates() -> None:
    level = level_of([1.0, 2.0, 3.0, 4.0, 5.0], [STOPPED] + [COMPLETED] * 4)
    assert points(estimates_of([level], dict.fromkeys(range(1, 5), 0.0))) == []


@pytest.mark.parametrize("scale", [1e-200, 2.0**-9, 1.0, 2.0**40, 1e90])
def test_the_scale_of_a_level_does_not_matter(scale: float) -> None:
    values = np.array([3.0, 1.0, 4.0, 1.5, 5.0, 9.0, 2.0, 6.0])
    states, target = [STOPPED] * 3 + [COMPLETED] * 5, {3: -1.0, 4: 0.0, 5: 2.0, 6: -0.5, 7: 1.0}
    expected = estimates_of([level_of(values, states)], target, robust=True)
    estimates = estimates_of([level_of(scale * values, states)], target, robust=True)
    assert estimates.y == pytest.approx(expected.y)
    assert estimates.variance == pytest.approx(expected.variance)


@QUICK
@given(st.lists(st.floats(-1e300, 1e300) | st.sampled_from([0.0, 1.0]), min_size=4, max_size=12), st.booleans())
def test_estimates_of_extreme_values_are_finite(values: list[float], robust: bool) -> None:
    level = level_of(values, [STOPPED] + [COMPLETED] * (len(values) - 1))
    target = {number: math.sin(number) for number in range(1, len(values))}
    estimates = estimates_of([level], target, robust)
    assert np.isfinite(estimates.y).all()
    assert np.isfinite(estimates.variance).all()
    assert (estimates.variance >= 0.0).all()
