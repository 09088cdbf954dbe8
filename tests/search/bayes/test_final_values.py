"""Estimates of what would have come of trials that were cut, and how far off they are."""

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
    """Of the last so many trials; each one's point is its number."""
    count = len(states)
    trials = [TrialRecord(number, {}, created_at=0.0, state=state) for number, state in enumerate(states)]
    trials = trials[count - len(values) :]
    X = np.array([[float(trial.id)] for trial in trials])
    return StepLevel(trials, X, np.array(values, dtype=float)[:, None])


def guessed(lower: Sequence[StepLevel], there: dict[int, float], robust: bool = False) -> Estimates:
    return estimate_cut_short(lower, there, robust=robust)


def points(found: Estimates) -> list[int]:
    return [int(row[0]) for row in found.X]


# --- by hand ------------------------------------------------------------------------------------------------


@QUICK
@given(st.integers(3, 12), st.integers(1, 5), st.booleans(), st.integers(0, 2**32))
def test_it_is_a_least_squares_line_read_backwards(further: int, cut: int, robust: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(cut + further)
    level = level_of(values, [STOPPED] * cut + [COMPLETED] * further)
    x = normalise(values, robust=robust)
    y = 2.0 * x[cut:] + 0.3 * rng.standard_normal(further)
    found = guessed([level], dict(enumerate(y.tolist(), cut)), robust)
    line = linregress(y, x[cut:])
    if line.slope <= 1e-3:
        return  # see below
    assert points(found) == list(range(cut))
    rest = x[cut:] - line.intercept - line.slope * y
    back = np.clip((x[:cut] - line.intercept) / line.slope, y.min(), y.max())
    away = (back - y.mean()) ** 2 / ((y - y.mean()) ** 2).sum()
    assert found.y == pytest.approx(back, abs=1e-6)
    expected = (rest @ rest) / (further - 2) / line.slope**2 * (1.0 + 1.0 / further + away)
    assert found.variance == pytest.approx(expected, rel=1e-6)


def test_who_was_worse_is_not_taken_to_become_better() -> None:
    level = level_of([9.0, 1.0, 2.0, 3.0, 4.0], [STOPPED] + [COMPLETED] * 4)
    assert points(guessed([level], {1: 4.0, 2: 3.0, 3: 2.0, 4: 1.0})) == [], "such a level tells nothing"


def test_a_guess_stays_within_what_was_seen() -> None:
    level = level_of([99.0, -99.0, 1.0, 2.0, 3.0, 4.5], [STOPPED] * 2 + [COMPLETED] * 4)
    found = guessed([level], {2: 1.0, 3: 2.0, 4: 3.0, 5: 4.0})
    assert found.y.tolist() == [4.0, 1.0]


def test_what_tells_little_is_said_to() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(24)
    level = level_of(x, [STOPPED] * 4 + [COMPLETED] * 20)

    def variance(noise: float) -> float:
        y = x[4:] + noise * rng.standard_normal(20)
        return float(guessed([level], dict(enumerate(y.tolist(), 4))).variance.mean())

    assert variance(0.0) < 1e-9
    assert variance(0.1) < 0.1 < variance(1.0)


# --- of whom, from which level ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "found"), [(STOPPED, [0]), (PAUSED, [0]), (RUNNING, []), (State.WAITING, []), (COMPLETED, [])]
)
def test_guesses_are_of_those_that_were_cut(state: State, found: list[int]) -> None:
    level = level_of([1.0, 2.0, 3.0, 5.0, 8.0], [state] + [COMPLETED] * 4)
    assert points(guessed([level], {1: 2.0, 2: 3.0, 3: 5.0, 4: 8.0})) == found


def test_who_was_cut_where_it_is_searched_has_its_value_and_needs_no_guess() -> None:
    level = level_of([1.0, 2.0, 3.0, 5.0, 8.0], [STOPPED] * 5)
    assert points(guessed([level], {1: 2.0, 2: 3.0, 3: 5.0, 4: 8.0})) == [0]


def test_each_is_guessed_from_the_highest_level_that_it_came_to() -> None:
    """What is at the upper level is what it will be; the lower one tells nothing."""
    states = [STOPPED] * 4 + [COMPLETED] * 4
    lower = level_of([1.0, 5.0, 2.0, 4.0, 3.0, 1.0, 4.0, 2.0], states)
    upper = level_of([2.5, 1.5, 0.0, 1.0, 2.0, 3.0], states)
    y = normalise(upper.values[:, 0], robust=False)
    found = guessed([lower, upper], dict(enumerate(y[2:].tolist(), 4)))
    assert {2, 3} <= set(points(found)) <= {0, 1, 2, 3}
    by_trial = dict(zip(points(found), zip(found.y, found.variance, strict=True), strict=True))
    assert by_trial[2] == (pytest.approx(y[0]), pytest.approx(0.0, abs=1e-9))
    assert by_trial[3] == (pytest.approx(y[1]), pytest.approx(0.0, abs=1e-9))
    assert all(by_trial[i][1] > 0.01 for i in (0, 1) if i in by_trial)


# --- where nothing can be said --------------------------------------------------------------------------------


def test_two_tell_nothing_nor_do_values_that_are_all_alike() -> None:
    level = level_of([1.0, 2.0, 3.0], [STOPPED] + [COMPLETED] * 2)
    assert points(guessed([level], {1: 0.0, 2: 1.0})) == []
    alike = level_of([3.0] * 6, [STOPPED] * 2 + [COMPLETED] * 4)
    assert points(guessed([alike], {2: 0.0, 3: 1.0, 4: 2.0, 5: 3.0})) == []
    assert points(guessed([], {2: 0.0, 3: 1.0})) == []


def test_who_came_from_there_may_all_have_ended_alike() -> None:
    level = level_of([1.0, 2.0, 3.0, 4.0, 5.0], [STOPPED] + [COMPLETED] * 4)
    assert points(guessed([level], dict.fromkeys(range(1, 5), 0.0))) == []


@pytest.mark.parametrize("scale", [1e-200, 2.0**-9, 1.0, 2.0**40, 1e90])
def test_what_a_level_is_measured_in_does_not_matter(scale: float) -> None:
    values = np.array([3.0, 1.0, 4.0, 1.5, 5.0, 9.0, 2.0, 6.0])
    states, there = [STOPPED] * 3 + [COMPLETED] * 5, {3: -1.0, 4: 0.0, 5: 2.0, 6: -0.5, 7: 1.0}
    expected = guessed([level_of(values, states)], there, robust=True)
    found = guessed([level_of(scale * values, states)], there, robust=True)
    assert found.y == pytest.approx(expected.y)
    assert found.variance == pytest.approx(expected.variance)


@QUICK
@given(st.lists(st.floats(-1e300, 1e300) | st.sampled_from([0.0, 1.0]), min_size=4, max_size=12), st.booleans())
def test_whatever_comes_in_what_goes_out_is_sound(values: list[float], robust: bool) -> None:
    level = level_of(values, [STOPPED] + [COMPLETED] * (len(values) - 1))
    there = {number: math.sin(number) for number in range(1, len(values))}
    found = guessed([level], there, robust)
    assert np.isfinite(found.y).all()
    assert np.isfinite(found.variance).all()
    assert (found.variance >= 0.0).all()
