"""Tests the conversion of a past to arrays."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.bayes.problems import QUICK
from tests.search.conformance import FINITE, INFINITE, FakePast
from thriftune.search.bayes.kernel import Array
from thriftune.search.bayes.observations import (
    LEVEL_SPACING,
    MAX_LEVELS,
    MIN_TRIALS_AT_LEVEL,
    ObservationReader,
    StepLevel,
    _level_steps,
)
from thriftune.space.objectives import Constraint, Objective
from thriftune.space.space import Space
from thriftune.state.trial_record import State


def filled(count: int = 6, space: Space = INFINITE, **settings: object) -> FakePast:
    """Return a past with `count` running trials."""
    past = FakePast(space, **settings)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    for _ in range(count):
        past.add(space.sample(rng))
    return past


def ids(past: FakePast, points: Array) -> list[int]:
    """Return the ids of the trials at these points."""
    encoded = [past.space.encode(trial.config).tolist() for trial in past.trials]
    return [encoded.index(row) for row in points.tolist()]


def as_lists(level: StepLevel) -> list[Any]:
    return [[trial.id for trial in level.trials], level.X.tolist(), level.values.tolist()]


def test_trials_are_in_the_order_in_which_they_ended() -> None:
    past = filled()
    for number, value in ((3, 0.3), (0, 0.1), (4, 0.4)):
        past.end(past.trials[number], value)
    seen = ObservationReader().read(past)
    assert [trial.id for trial in seen.target.trials] == ids(past, seen.target.X) == [3, 0, 4]
    assert seen.target.values.tolist() == [[0.3], [0.1], [0.4]]
    assert ids(past, seen.pending) == [1, 2, 5]
    assert seen.failed.shape == (0, INFINITE.dimensions)
    assert seen.feasible.tolist() == [True] * 3


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_a_trial_without_a_finite_value_counts_as_failed(value: float | None) -> None:
    past = filled(3)
    past.end(past.trials[1], value)
    past.end(past.trials[0], 1.0)
    seen = ObservationReader().read(past)
    assert ids(past, seen.failed) == [1]
    assert ids(past, seen.target.X) == [0]
    assert ids(past, seen.pending) == [2]


def test_the_value_of_a_failed_trial_does_not_count() -> None:
    past = filled(2)
    past.end(past.trials[0], 0.5)
    past.trials[0].state = State.FAILED  # it reported before it failed
    seen = ObservationReader().read(past)
    assert (len(seen.target.trials), ids(past, seen.failed)) == (0, [0])


@pytest.mark.parametrize(("state", "pending"), [(State.WAITING, 1), (State.RUNNING, 1), (State.PAUSED, 0)])
def test_a_trial_that_has_not_ended_is_pending_unless_it_is_paused(state: State, pending: int) -> None:
    past = filled(1)
    past.trials[0].state = state
    assert len(ObservationReader().read(past).pending) == pending


def test_several_objectives() -> None:
    past = filled(3, objectives=(Objective("loss", False), Objective("accuracy", True), Objective("size", False)))
    past.end(past.trials[0], 0.5, accuracy=0.9, size=10.0)
    past.end(past.trials[1], 0.4, accuracy=math.nan, size=20.0)
    past.end(past.trials[2], 0.3, size=30.0)  # one is missing
    seen = ObservationReader().read(past)
    assert seen.target.values.tolist() == [[0.5, -0.9, 10.0]]
    assert ids(past, seen.failed) == [1], "a trial that was stopped before it reported all metrics has not failed"


def test_constraints() -> None:
    past = filled(5, constraints=(Constraint("ms", 10.0, True), Constraint("accuracy", 0.5, False)))
    table = [(9.0, 0.6), (11.0, 0.6), (10.0, 0.5), (9.0, 0.4), (math.nan, 0.9)]
    for trial, (ms, accuracy) in zip(past.trials, table, strict=True):
        past.end(trial, 1.0, ms=ms, accuracy=accuracy)
    seen = ObservationReader().read(past)
    assert seen.feasible.tolist() == [True, False, True, False, False]
    assert len(seen.failed) == 0


def test_an_empty_past_gives_empty_arrays() -> None:
    seen = ObservationReader().read(FakePast(INFINITE))
    D = INFINITE.dimensions
    assert (seen.X.shape, seen.failed.shape, seen.pending.shape) == ((0, D), (0, D), (0, D))
    assert (seen.target.values.shape, seen.feasible.shape) == ((0, 1), (0,))


def test_a_reader_of_other_pasts_gives_the_same_as_a_new_one() -> None:
    reader = ObservationReader()
    pasts = [filled(4), filled(6), filled(5, FINITE), filled(4)]
    shifted = FakePast(INFINITE)  # other trials with the same ids
    for trial in reversed(pasts[1].trials):
        shifted.add(trial.config)
    for past in [*pasts, shifted, pasts[0].copy()]:
        past.end(past.trials[2], 1.0)
        past.end(past.trials[0], None)
        read, expected = reader.read(past), ObservationReader().read(past)
        assert read.ended == expected.ended
        for name in ("X", "feasible", "failed", "pending"):
            assert getattr(read, name).tolist() == getattr(expected, name).tolist()
        assert [as_lists(level) for level in read.levels] == [as_lists(level) for level in expected.levels]


# --- trials that were cut short -----------------------------------------------------------------------------

STOPPED, PAUSED, COMPLETED = State.STOPPED, State.PAUSED, State.COMPLETED
Story = tuple[float, int, State]
"""The start time of a trial, its length in steps of one second, and its final state."""


def past_of(stories: Sequence[Story], now: float = math.inf, **settings: object) -> FakePast:
    """Return the past at time `now`. The value of a report is 100 times the trial id plus the step."""
    past = filled(len(stories), **settings)  # type: ignore[arg-type]
    for number in sorted(range(len(stories)), key=lambda i: (sum(stories[i][:2]), i)):
        start, length, state = stories[number]
        done = int(min(length, max(0.0, now - start)))
        values = [100.0 * number + step for step in range(1, done + 1)]
        past.report(past.trials[number], values, state if done == length else State.RUNNING, start)
    return past


def values_of(past: FakePast) -> list[list[float]]:
    return [level.values[:, 0].tolist() for level in ObservationReader().read(past).levels]


THREE: list[Story] = [(0.0, 1, STOPPED)] * 4 + [(10.0, 3, PAUSED)] * 4 + [(20.0, 9, COMPLETED)] * 4
"""Trials that give levels at the steps 1 and 3, and at the end."""


def test_the_steps_at_which_trials_were_cut_short_are_levels() -> None:
    first, second, last = values_of(past_of(THREE))
    assert first == [100 * trial + 1 for trial in range(12)]
    assert second == [100 * trial + 3 for trial in range(4, 12)]
    assert last == [100 * trial + 9 for trial in range(8, 12)]
    maximised = ObservationReader().read(past_of(THREE, maximize=True)).target
    assert maximised.values[:, 0].tolist() == [-value for value in last]


def test_a_level_with_too_few_values_is_left_out() -> None:
    assert MIN_TRIALS_AT_LEVEL == 4
    assert [len(values) for values in values_of(past_of(THREE, now=28))] == [12, 8]
    assert [len(values) for values in values_of(past_of(THREE[:-1]))] == [11, 7]
    assert [len(values) for values in values_of(past_of(THREE[:2] + THREE[-1:]))] == [3], (
        "the largest level, if all have too few"
    )


@QUICK
@given(st.dictionaries(st.integers(1, 200), st.integers(1, 9), max_size=12))
def test_levels_are_steps_of_trials_cut_short_and_not_near_each_other(cut_short: dict[int, int]) -> None:
    steps = _level_steps(Counter(cut_short))
    assert steps == sorted(set(steps) & set(cut_short))
    assert len(steps) <= MAX_LEVELS
    assert all(high >= LEVEL_SPACING * low for low, high in pairwise(steps))
    if 0 < len(steps) < MAX_LEVELS:  # no step was left out, so each counts for the highest level below it
        assert steps[0] == min(cut_short)
        assert all(step < LEVEL_SPACING * max(c for c in steps if c <= step) for step in cut_short)


def test_a_level_leaves_out_values_that_are_not_finite() -> None:
    past = past_of(THREE)
    past.report(past.trials[4], [1.0, 2.0, math.nan], PAUSED, 10)
    first, second, _ = ObservationReader().read(past).levels
    assert 4 in [trial.id for trial in first.trials]
    assert 4 not in [trial.id for trial in second.trials]


def test_a_trial_without_a_report_at_a_level_counts_with_its_next_report() -> None:
    past = past_of(THREE)
    reports = past.trials[8].reports
    del reports[0]
    reports[1] = reports[1]._replace(metrics={"other": 1.0}, value=None)  # at step 3
    first, second, _ = values_of(past)
    assert {802.0, 804.0} <= {*first, *second}
    assert not {801.0, 803.0} & {*first, *second}


def test_a_trial_that_completed_before_a_level_counts_there_and_a_failed_one_does_not() -> None:
    short, failed = (30.0, 2, COMPLETED), (40.0, 9, State.FAILED)
    first, second, last = values_of(past_of([*THREE, short, failed]))
    assert first == [100 * trial + 1 for trial in range(13)]
    assert second == [*(100 * trial + 3 for trial in range(4, 12)), 1202]
    assert last[-1] == 1202
    past = past_of([*THREE, failed])
    assert ids(past, ObservationReader().read(past).failed) == [12]


def test_a_result_without_reports_counts_at_all_levels() -> None:
    past = past_of(THREE)
    past.add(INFINITE.sample(np.random.default_rng(5)), 7.0)
    assert all(7.0 in values for values in values_of(past))


def test_with_several_objectives_the_last_values_count() -> None:
    past = past_of(THREE, objectives=(Objective("loss", False), Objective("size", False)))
    for trial in past.ended:
        trial.values = (trial.value or 0.0, 1.0)
    seen = ObservationReader().read(past)
    assert len(seen.levels) == 1
    assert seen.target.trials == seen.ended == past.ended


def test_a_trial_is_pending_until_it_reaches_the_last_level_or_is_paused() -> None:
    running: list[Story] = [(30, 9, COMPLETED), (32, 9, COMPLETED), (33, 9, COMPLETED)]
    past = past_of([*THREE, *running], now=34)
    assert ids(past, ObservationReader().read(past).pending) == [12, 13, 14]
    past.trials[14].state = PAUSED
    assert ids(past, ObservationReader().read(past).pending) == [12, 13]
    past = past_of([*THREE[:8], *running], now=34)
    assert ids(past, ObservationReader().read(past).pending) == [9, 10], "the search is for the best at step 3"


def test_stopped_trials_count_for_constraints() -> None:
    seen = ObservationReader().read(past_of(THREE))
    assert [trial.id for trial in seen.ended] == [0, 1, 2, 3, 8, 9, 10, 11]
    assert len(seen.X) == 8


@QUICK
@given(
    st.lists(
        st.tuples(
            st.integers(30, 60).map(float),
            st.sampled_from([(1, STOPPED), (3, PAUSED), (9, COMPLETED), (2, COMPLETED)]),
        ),
        max_size=8,
    ),
    st.integers(30, 70),
)
def test_later_trials_do_not_change_earlier_values(later: list[tuple[float, tuple[int, State]]], now: int) -> None:
    stories = THREE + [(start, *rest) for start, rest in later]
    final, early = ObservationReader().read(past_of(stories)), ObservationReader().read(past_of(stories, now))
    for early_level, level in zip(early.levels, final.levels, strict=True):
        n = len(early_level.trials)
        assert as_lists(early_level) == [column[:n] for column in as_lists(level)]
