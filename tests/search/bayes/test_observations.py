"""The trials of a past as arrays."""

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
    """That many trials, all of which run."""
    past = FakePast(space, **settings)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    for _ in range(count):
        past.add(space.sample(rng))
    return past


def ids(past: FakePast, points: Array) -> list[int]:
    """The trials that an array's rows are the points of."""
    encoded = [past.space.encode(trial.config).tolist() for trial in past.trials]
    return [encoded.index(row) for row in points.tolist()]


def plain(level: StepLevel) -> list[Any]:
    return [[trial.id for trial in level.trials], level.X.tolist(), level.values.tolist()]


def test_in_the_order_in_which_they_ended() -> None:
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
def test_without_a_finite_value_it_has_failed(value: float | None) -> None:
    past = filled(3)
    past.end(past.trials[1], value)
    past.end(past.trials[0], 1.0)
    seen = ObservationReader().read(past)
    assert ids(past, seen.failed) == [1]
    assert ids(past, seen.target.X) == [0]
    assert ids(past, seen.pending) == [2]


def test_a_failed_trial_counts_for_nothing_but_its_failure() -> None:
    past = filled(2)
    past.end(past.trials[0], 0.5)
    past.trials[0].state = State.FAILED  # it had reported before it failed
    seen = ObservationReader().read(past)
    assert (len(seen.target.trials), ids(past, seen.failed)) == (0, [0])


@pytest.mark.parametrize(("state", "pending"), [(State.WAITING, 1), (State.RUNNING, 1), (State.PAUSED, 0)])
def test_what_has_not_ended_is_pending_unless_it_is_set_aside(state: State, pending: int) -> None:
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
    assert ids(past, seen.failed) == [1], "what was stopped before it told all is no failure"


def test_constraints() -> None:
    past = filled(5, constraints=(Constraint("ms", 10.0, True), Constraint("accuracy", 0.5, False)))
    table = [(9.0, 0.6), (11.0, 0.6), (10.0, 0.5), (9.0, 0.4), (math.nan, 0.9)]
    for trial, (ms, accuracy) in zip(past.trials, table, strict=True):
        past.end(trial, 1.0, ms=ms, accuracy=accuracy)
    seen = ObservationReader().read(past)
    assert seen.feasible.tolist() == [True, False, True, False, False]
    assert len(seen.failed) == 0


def test_nothing_yet() -> None:
    seen = ObservationReader().read(FakePast(INFINITE))
    D = INFINITE.dimensions
    assert (seen.X.shape, seen.failed.shape, seen.pending.shape) == ((0, D), (0, D), (0, D))
    assert (seen.target.values.shape, seen.feasible.shape) == ((0, 1), (0,))


def test_a_reader_that_has_seen_another_past_tells_the_same_as_a_fresh_one() -> None:
    reader = ObservationReader()
    pasts = [filled(4), filled(6), filled(5, FINITE), filled(4)]
    shifted = FakePast(INFINITE)  # other trials by the same numbers
    for trial in reversed(pasts[1].trials):
        shifted.add(trial.config)
    for past in [*pasts, shifted, pasts[0].copy()]:
        past.end(past.trials[2], 1.0)
        past.end(past.trials[0], None)
        found, expected = reader.read(past), ObservationReader().read(past)
        assert found.ended == expected.ended
        for name in ("X", "feasible", "failed", "pending"):
            assert getattr(found, name).tolist() == getattr(expected, name).tolist()
        assert [plain(level) for level in found.levels] == [plain(level) for level in expected.levels]


# --- trials that were cut -----------------------------------------------------------------------------------

STOPPED, PAUSED, COMPLETED = State.STOPPED, State.PAUSED, State.COMPLETED
Story = tuple[float, int, State]
"""When a trial was started, for how many seconds and steps it ran, and how that ended."""


def told(stories: Sequence[Story], now: float = math.inf, **settings: object) -> FakePast:
    """What was known of these trials at that time. Each value tells of which trial and which step it is."""
    past = filled(len(stories), **settings)  # type: ignore[arg-type]
    for number in sorted(range(len(stories)), key=lambda i: (sum(stories[i][:2]), i)):
        start, length, state = stories[number]
        done = int(min(length, max(0.0, now - start)))
        values = [100.0 * number + step for step in range(1, done + 1)]
        past.tell(past.trials[number], values, state if done == length else State.RUNNING, start)
    return past


def values_of(past: FakePast) -> list[list[float]]:
    return [level.values[:, 0].tolist() for level in ObservationReader().read(past).levels]


THREE: list[Story] = [(0.0, 1, STOPPED)] * 4 + [(10.0, 3, PAUSED)] * 4 + [(20.0, 9, COMPLETED)] * 4
"""Levels at the steps 1 and 3, and at the end."""


def test_the_steps_at_which_trials_were_cut_are_levels() -> None:
    first, second, last = values_of(told(THREE))
    assert first == [100 * trial + 1 for trial in range(12)]
    assert second == [100 * trial + 3 for trial in range(4, 12)]
    assert last == [100 * trial + 9 for trial in range(8, 12)]
    upside_down = ObservationReader().read(told(THREE, maximize=True)).target
    assert upside_down.values[:, 0].tolist() == [-value for value in last]


def test_until_a_few_have_come_so_far_the_search_is_for_what_more_have_come_to() -> None:
    assert MIN_TRIALS_AT_LEVEL == 4
    assert [len(values) for values in values_of(told(THREE, now=28))] == [12, 8]
    assert [len(values) for values in values_of(told(THREE[:-1]))] == [11, 7]
    assert [len(values) for values in values_of(told(THREE[:2] + THREE[-1:]))] == [3], "the most, if few anywhere"


@QUICK
@given(st.dictionaries(st.integers(1, 200), st.integers(1, 9), max_size=12))
def test_levels_are_where_trials_were_cut_and_none_is_near_another(cut: dict[int, int]) -> None:
    steps = _level_steps(Counter(cut))
    assert steps == sorted(set(steps) & set(cut))
    assert len(steps) <= MAX_LEVELS
    assert all(high >= LEVEL_SPACING * low for low, high in pairwise(steps))
    if 0 < len(steps) < MAX_LEVELS:  # none was left out, so each counts as the highest that is not above it
        assert steps[0] == min(cut)
        assert all(step < LEVEL_SPACING * max(c for c in steps if c <= step) for step in cut)


def test_a_value_that_is_no_number_is_not_one_of_its_level() -> None:
    past = told(THREE)
    past.tell(past.trials[4], [1.0, 2.0, math.nan], PAUSED, 10)
    first, second, _ = ObservationReader().read(past).levels
    assert 4 in [trial.id for trial in first.trials]
    assert 4 not in [trial.id for trial in second.trials]


def test_a_level_that_a_trial_did_not_report_at_is_told_of_by_the_next_that_it_did() -> None:
    past = told(THREE)
    reports = past.trials[8].reports
    del reports[0]
    reports[1] = reports[1]._replace(metrics={"other": 1.0}, value=None)  # at step 3
    first, second, _ = values_of(past)
    assert {802.0, 804.0} <= {*first, *second}
    assert not {801.0, 803.0} & {*first, *second}


def test_who_ended_well_before_a_level_has_come_there_and_who_failed_has_not() -> None:
    short, failed = (30.0, 2, COMPLETED), (40.0, 9, State.FAILED)
    first, second, last = values_of(told([*THREE, short, failed]))
    assert first == [100 * trial + 1 for trial in range(13)]
    assert second == [*(100 * trial + 3 for trial in range(4, 12)), 1202]
    assert last[-1] == 1202
    past = told([*THREE, failed])
    assert ids(past, ObservationReader().read(past).failed) == [12]


def test_what_was_told_without_reports_is_of_all_levels() -> None:
    past = told(THREE)
    past.add(INFINITE.sample(np.random.default_rng(5)), 7.0)
    assert all(7.0 in values for values in values_of(past))


def test_of_several_objectives_the_last_values_count() -> None:
    past = told(THREE, objectives=(Objective("loss", False), Objective("size", False)))
    for trial in past.ended:
        trial.values = (trial.value or 0.0, 1.0)
    seen = ObservationReader().read(past)
    assert len(seen.levels) == 1
    assert seen.target.trials == seen.ended == past.ended


def test_a_trial_is_pending_until_it_comes_to_the_last_level_or_is_set_aside() -> None:
    running: list[Story] = [(30, 9, COMPLETED), (32, 9, COMPLETED), (33, 9, COMPLETED)]
    past = told([*THREE, *running], now=34)
    assert ids(past, ObservationReader().read(past).pending) == [12, 13, 14]
    past.trials[14].state = PAUSED
    assert ids(past, ObservationReader().read(past).pending) == [12, 13]
    past = told([*THREE[:8], *running], now=34)
    assert ids(past, ObservationReader().read(past).pending) == [9, 10], "the search is for what was at step 3"


def test_what_was_stopped_still_tells_of_what_else_it_measured() -> None:
    seen = ObservationReader().read(told(THREE))
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
def test_what_was_seen_first_is_what_was_seen_then(later: list[tuple[float, tuple[int, State]]], now: int) -> None:
    stories = THREE + [(start, *rest) for start, rest in later]
    seen, then = ObservationReader().read(told(stories)), ObservationReader().read(told(stories, now))
    for early, level in zip(then.levels, seen.levels, strict=True):
        n = len(early.trials)
        assert plain(early) == [part[:n] for part in plain(level)]
