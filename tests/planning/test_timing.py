"""Tests of the measured times of trials, from tables of reports."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thriftune.planning.timing import (
    ObservedAttempt,
    TimingRow,
    TrialTimes,
    startup_seconds,
    summarize_trials,
    time_trial,
)
from thriftune.state.events import Ended, Reported

CONFIG = {"lr": 0.1}


def make_attempt(
    *result: tuple[float, int] | tuple[float, int, bool], ended: tuple[float, float, bool] | None = None
) -> ObservedAttempt:
    """Return an attempt from reports (seconds, step, saved) and an end (seconds, own seconds, cut)."""
    start = 1000.0
    reports = [
        Reported(start + at, 0, 1, number, step, {"loss": 0.0}, bool(saved))
        for number, (at, step, *saved) in enumerate(result, 1)
    ]
    return ObservedAttempt(start, reports, Ended(start + ended[0], 0, 1, *ended[1:]) if ended else None)


def trial(seconds: float, startup: float | None = 1.0, checkpoint: float | None = 0.5) -> TrialTimes:
    return TrialTimes(10, seconds, startup, checkpoint, "none" if checkpoint is None else "some")


def row(workers: int, seconds: Sequence[float]) -> TimingRow:
    return TimingRow(workers, tuple(map(trial, seconds)))


# --- one trial


def test_the_extra_time_of_the_first_step_is_startup() -> None:
    found = time_trial(make_attempt((5.0, 1), (7.0, 2), (9.0, 3), (12.0, 4)))
    assert found.steps == 3
    assert found.seconds_per_step == pytest.approx(7.0 / 3.0)
    assert found.startup == pytest.approx(5.0 - 7.0 / 3.0)


def test_two_reports_separate_step_and_startup() -> None:
    found = time_trial(make_attempt((5.0, 1), (7.0, 2)))
    assert found.steps == 1
    assert (found.seconds_per_step, found.startup) == pytest.approx((2.0, 3.0))


def test_steps_are_counted_by_their_numbers() -> None:
    found = time_trial(make_attempt((6.0, 10), (11.0, 20), (16.0, 30)))
    assert found.steps == 20
    assert (found.seconds_per_step, found.startup) == pytest.approx((0.5, 1.0))


def test_a_step_reported_twice_is_one_step() -> None:
    found = time_trial(make_attempt((2.0, 1), (3.0, 2), (4.0, 3), (9.0, 3)))
    assert found.steps == 2
    assert found.seconds_per_step == pytest.approx(1.0)


def test_startup_is_never_negative() -> None:
    assert time_trial(make_attempt((0.5, 1), (2.5, 2))).startup == 0.0


def test_a_single_report_of_an_ended_function_is_its_whole_training() -> None:
    found = time_trial(make_attempt((9.0, 1), ended=(10.0, 8.0, False)))
    assert found.whole
    assert found.steps == 1
    assert (found.seconds_per_step, found.startup) == pytest.approx((8.0, 2.0))
    assert time_trial(make_attempt((9.0, 4), ended=(10.0, 8.0, False))).seconds_per_step == 2.0


@pytest.mark.parametrize("ended", [None, (10.0, 9.5, True)])
def test_a_single_report_of_a_cut_function_includes_the_start(
    ended: tuple[float, float, bool] | None,
) -> None:
    found = time_trial(make_attempt((9.0, 1), ended=ended))
    assert not found.whole
    assert found.seconds_per_step == pytest.approx(9.0)
    assert found.startup is None


# --- checkpoints


def test_checkpoint_is_the_extra_time_of_a_step_with_a_save() -> None:
    found = time_trial(make_attempt((1.0, 1), (2.0, 2), (3.5, 3, True), (4.5, 4), (6.2, 5, True)))
    assert found.checkpoint == pytest.approx(0.6)
    assert found.saves == "some"
    assert found.seconds_per_step == pytest.approx(5.2 / 4)


def test_a_save_after_a_step_counts_for_the_next_span() -> None:
    found = time_trial(make_attempt((1.0, 1), (2.0, 2), (2.5, 2, True), (3.5, 3), (4.5, 4)))
    assert found.checkpoint == pytest.approx(0.5)


def test_a_save_in_every_step_cannot_be_told_apart() -> None:
    found = time_trial(make_attempt((1.0, 1, True), (2.0, 2, True), (3.0, 3, True)))
    assert (found.checkpoint, found.saves) == (None, "every")


def test_a_save_in_the_first_step_is_not_measured() -> None:
    found = time_trial(make_attempt((1.0, 1, True), (2.0, 2), (3.0, 3)))
    assert (found.checkpoint, found.saves) == (None, "none")


def test_checkpoint_is_never_negative() -> None:
    assert time_trial(make_attempt((1.0, 1), (3.0, 2), (4.0, 3, True))).checkpoint == 0.0


# --- resumed trials


def test_the_startup_of_a_resumed_trial_counts_from_its_checkpoint() -> None:
    assert startup_seconds(make_attempt((3.0, 8), (4.0, 9)), 1.0, resume_step=7) == pytest.approx(2.0)


def test_the_first_step_is_assumed_to_take_as_long_as_the_attempts_others() -> None:
    assert startup_seconds(make_attempt((3.0, 8), (5.0, 9)), 0.5, resume_step=7) == pytest.approx(1.0)


def test_a_function_that_does_not_restore_restarts_at_step_1() -> None:
    assert startup_seconds(make_attempt((3.0, 1)), 1.0, resume_step=7) == pytest.approx(2.0)


# --- all trials


def test_seconds_per_step_are_the_median_of_the_trials() -> None:
    found = summarize_trials([row(1, [1.0, 9.0, 2.0]), row(2, [1.0, 0.5, 0.7])], [], CONFIG)
    assert found.profile.seconds_per_step == {1: 2.0, 2: 0.7}
    assert [each.steps for each in found.rows] == [30, 30]


def test_the_deviation_is_pooled_relative_to_the_mean() -> None:
    found = summarize_trials([row(1, [9.0, 11.0]), row(2, [4.5, 5.5])], [], CONFIG)
    assert found.profile.variation == pytest.approx(0.02**0.5)
    assert found.profile.std == pytest.approx(10.0 * 0.02**0.5)


@given(st.lists(st.floats(0.01, 100.0), min_size=2, max_size=6))
def test_the_deviation_of_one_number_of_workers_is_that_of_its_trials(seconds: list[float]) -> None:
    mean = sum(seconds) / len(seconds)
    variance = sum((each - mean) ** 2 for each in seconds) / (len(seconds) - 1)
    found = summarize_trials([row(1, seconds)], [], CONFIG)
    assert found.profile.variation == pytest.approx(variance**0.5 / mean, abs=1e-9)


def test_one_trial_has_no_deviation() -> None:
    assert summarize_trials([row(1, [3.0]), row(2, [2.0])], [], CONFIG).profile.std == 0.0


def test_startup_is_that_of_resumed_trials_if_there_are_any() -> None:
    rows = [TimingRow(1, (trial(1.0, startup=4.0), trial(1.0, startup=6.0)))]
    assert summarize_trials(rows, [], CONFIG).profile.startup == 5.0
    assert summarize_trials(rows, [7.0, 8.0], CONFIG).profile.startup == 7.5
    assert summarize_trials([TimingRow(1, (trial(1.0, startup=None),))], [], CONFIG).profile.startup == 0.0


@pytest.mark.parametrize(
    ("trials", "says"),
    [
        ([TrialTimes(9, 1.0, 0.0, None, "every")], "every step saves"),
        ([TrialTimes(9, 1.0, 0.0, None, "none")], "no measured step saved"),
        ([TrialTimes(1, 1.0, 0.0, 0.1, "some", whole=True)], "whole training"),
        ([TrialTimes(1, 1.0, None, 0.1, "some")], "give more --seconds"),
    ],
)
def test_limits_of_the_measurement_are_remarked(trials: list[TrialTimes], says: str) -> None:
    (remark,) = summarize_trials([TimingRow(1, tuple(trials))], [], CONFIG).remarks
    assert says in remark


def test_one_trial_with_a_measured_save_is_enough() -> None:
    rows = [TimingRow(1, (TrialTimes(9, 1.0, 0.0, None, "none"),)), TimingRow(2, (trial(1.0, checkpoint=0.25),))]
    found = summarize_trials(rows, [], CONFIG)
    assert found.profile.checkpoint == 0.25
    assert found.remarks == ()
