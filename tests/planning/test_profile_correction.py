"""Tests of the correction of a profile by the step times of trials."""

from __future__ import annotations

import pytest

from tests.support.tables import Table
from thriftune.planning import CloudProfile, Profile
from thriftune.planning.profile_correction import correct_profile
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.trial_record import PastAttempt, TrialRecord

PROFILE = Profile({1: 4.0, 2: 3.0}, startup=5.0, checkpoint=1.0)
CLOUDS = [CloudProfile(1, 1.0, name="slow"), CloudProfile(1, 1.0, name="quick", speed=2.0)]


def stay(
    machine: str, steps: int, seconds: float, *, workers: int = 1, first: int = 0, until: float = 100.0
) -> PastAttempt:
    """Return an attempt that reported each step and saved the last one."""
    last = first + steps
    return PastAttempt(
        1, {machine: workers}, 0.0, until, first, last, last, steps - 1, seconds + PROFILE.checkpoint
    )


def history(*stays: PastAttempt, each: bool = True) -> History:
    """Return a history with one trial per attempt, or a single trial; machines are named by their types."""
    study = Table(slots=0)
    for cloud in CLOUDS:
        study(ev.MachineReady(study.now, cloud.name, cloud.name, 4, 1.0))
    groups = [[one] for one in stays] if each else [list(stays)]
    study.history.trials += [TrialRecord(i, {}, 0.0, past_attempts=group) for i, group in enumerate(groups)]
    return study.history


def speeds(found: tuple[Profile, list[CloudProfile]]) -> dict[str, float]:
    """Return the seconds of a step with one worker, by machine type."""
    profile, clouds = found
    return {cloud.name: profile.seconds(1) / cloud.speed for cloud in clouds}


def test_without_attempts_nothing_is_corrected() -> None:
    assert correct_profile(history(), 1e9, PROFILE, CLOUDS) == (PROFILE, CLOUDS)


def test_attempts_as_predicted_change_nothing() -> None:
    found = correct_profile(history(stay("slow", 11, 40.0), stay("quick", 11, 20.0)), 1e9, PROFILE, CLOUDS)
    assert speeds(found) == pytest.approx({"slow": 4.0, "quick": 2.0})
    assert found[0].std == pytest.approx(0.0, abs=1e-12)


def test_an_untried_type_is_scaled_like_the_others() -> None:
    assert speeds(correct_profile(history(stay("slow", 11, 60.0)), 1e9, PROFILE, CLOUDS)) == pytest.approx(
        {"slow": 6.0, "quick": 3.0}
    )


def test_a_tried_type_has_its_measured_speed() -> None:
    found = correct_profile(history(stay("slow", 11, 40.0), stay("quick", 11, 50.0)), 1e9, PROFILE, CLOUDS)
    assert speeds(found) == pytest.approx({"slow": 4.0, "quick": 5.0})


def test_each_number_of_workers_is_corrected_by_its_attempts() -> None:
    found, _ = correct_profile(history(stay("slow", 11, 60.0, workers=2)), 1e9, PROFILE, CLOUDS)
    assert found.seconds_per_step == pytest.approx({1: 8.0, 2: 6.0})


def test_later_attempts_are_ignored() -> None:
    both = history(stay("slow", 11, 60.0, until=50.0), stay("slow", 11, 400.0, until=51.0))
    assert speeds(correct_profile(both, 50.0, PROFILE, CLOUDS))["slow"] == pytest.approx(6.0)


def test_the_deviation_is_measured_from_two_trials_on() -> None:
    stays = [stay("slow", 11, 30.0), stay("quick", 11, 15.0), stay("slow", 11, 50.0)]
    assert correct_profile(history(*stays[:1]), 1e9, PROFILE, CLOUDS)[0].std == 0.0
    assert correct_profile(history(*stays[:2]), 1e9, PROFILE, CLOUDS)[0].std == pytest.approx(0.0)
    assert correct_profile(history(*stays), 1e9, PROFILE, CLOUDS)[0].variation > 0.2
    one = history(*stays[::2], each=False)  # the attempts of one trial do not count as a deviation between trials
    assert correct_profile(one, 1e9, PROFILE, CLOUDS)[0].std == 0.0


@pytest.mark.parametrize(
    ("first", "until", "seconds"),
    [(0, 7.0, 6.0), (3, 12.0, 6.0)],
    ids=["a new trial's start is part of its step", "a resumed trial has the known startup"],
)
def test_an_attempt_with_one_report_is_timed_from_its_start(first: int, until: float, seconds: float) -> None:
    one = PastAttempt(1, {"slow": 1}, 0.0, until, first, first + 1, first + 1)
    assert speeds(correct_profile(history(one), 1e9, PROFILE, CLOUDS))["slow"] == pytest.approx(seconds)


@pytest.mark.parametrize(
    "nothing",
    [
        PastAttempt(1, {"slow": 1}, 0.0, 99.0, 3, 4, 3),  # preempted after one report
        PastAttempt(1, {"slow": 1}, 0.0, 99.0, 3, 3, 3),
        PastAttempt(1, {"slow": 1}, 0.0, 0.5, 0, 1, 1),  # shorter than the time to save
        PastAttempt(1, {"elsewhere": 1}, 0.0, 99.0, 0, 9, 9, 8, 80.0),
        PastAttempt(1, {"slow": 3}, 0.0, 99.0, 0, 9, 9, 8, 80.0),  # more workers than were measured
    ],
)
def test_attempts_that_cannot_be_timed_are_left_out(nothing: PastAttempt) -> None:
    assert correct_profile(history(nothing), 1e9, PROFILE, CLOUDS) == (PROFILE, CLOUDS)
