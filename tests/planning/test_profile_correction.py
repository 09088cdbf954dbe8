"""What trials show of how long steps take."""

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
    """One that told of each step, and kept the last."""
    last = first + steps
    return PastAttempt(
        1, {machine: workers}, 0.0, until, first, last, last, steps - 1, seconds + PROFILE.checkpoint
    )


def history(*stays: PastAttempt, each: bool = True) -> History:
    """Of as many trials; machines are named by their kinds."""
    where = Table(slots=0)
    for cloud in CLOUDS:
        where(ev.MachineReady(where.now, cloud.name, cloud.name, 4, 1.0))
    groups = [[one] for one in stays] if each else [list(stays)]
    where.history.trials += [TrialRecord(i, {}, 0.0, past_attempts=group) for i, group in enumerate(groups)]
    return where.history


def speeds(found: tuple[Profile, list[CloudProfile]]) -> dict[str, float]:
    """Seconds of a step with one worker."""
    profile, clouds = found
    return {cloud.name: profile.seconds(1) / cloud.speed for cloud in clouds}


def test_where_nothing_was_seen_what_was_promised_stays() -> None:
    assert correct_profile(history(), 1e9, PROFILE, CLOUDS) == (PROFILE, CLOUDS)


def test_what_is_as_promised_stays_as_promised() -> None:
    found = correct_profile(history(stay("slow", 11, 40.0), stay("quick", 11, 20.0)), 1e9, PROFILE, CLOUDS)
    assert speeds(found) == pytest.approx({"slow": 4.0, "quick": 2.0})
    assert found[0].std == pytest.approx(0.0, abs=1e-12)


def test_what_is_slow_on_one_kind_is_taken_to_be_as_slow_on_others() -> None:
    assert speeds(correct_profile(history(stay("slow", 11, 60.0)), 1e9, PROFILE, CLOUDS)) == pytest.approx(
        {"slow": 6.0, "quick": 3.0}
    )


def test_a_kind_that_was_tried_is_as_fast_as_it_was() -> None:
    found = correct_profile(history(stay("slow", 11, 40.0), stay("quick", 11, 50.0)), 1e9, PROFILE, CLOUDS)
    assert speeds(found) == pytest.approx({"slow": 4.0, "quick": 5.0})


def test_each_number_of_workers_is_as_fast_as_it_was_and_others_as_much_slower_as_all() -> None:
    found, _ = correct_profile(history(stay("slow", 11, 60.0, workers=2)), 1e9, PROFILE, CLOUDS)
    assert found.seconds_per_step == pytest.approx({1: 8.0, 2: 6.0})


def test_what_came_later_is_not_known_yet() -> None:
    both = history(stay("slow", 11, 60.0, until=50.0), stay("slow", 11, 400.0, until=51.0))
    assert speeds(correct_profile(both, 50.0, PROFILE, CLOUDS))["slow"] == pytest.approx(6.0)


def test_how_much_trials_differ_is_learnt_once_there_are_two() -> None:
    stays = [stay("slow", 11, 30.0), stay("quick", 11, 15.0), stay("slow", 11, 50.0)]
    assert correct_profile(history(*stays[:1]), 1e9, PROFILE, CLOUDS)[0].std == 0.0
    assert correct_profile(history(*stays[:2]), 1e9, PROFILE, CLOUDS)[0].std == pytest.approx(0.0)
    assert correct_profile(history(*stays), 1e9, PROFILE, CLOUDS)[0].variation > 0.2
    one = history(*stays[::2], each=False)  # by its steps, a trial may differ from itself
    assert correct_profile(one, 1e9, PROFILE, CLOUDS)[0].std == 0.0


@pytest.mark.parametrize(
    ("first", "until", "seconds"),
    [(0, 7.0, 6.0), (3, 12.0, 6.0)],
    ids=["a new one's start is part of it", "to be taken up again takes the time that is known"],
)
def test_of_one_report_the_start_tells(first: int, until: float, seconds: float) -> None:
    one = PastAttempt(1, {"slow": 1}, 0.0, until, first, first + 1, first + 1)
    assert speeds(correct_profile(history(one), 1e9, PROFILE, CLOUDS))["slow"] == pytest.approx(seconds)


@pytest.mark.parametrize(
    "nothing",
    [
        PastAttempt(1, {"slow": 1}, 0.0, 99.0, 3, 4, 3),  # it was lost after one report
        PastAttempt(1, {"slow": 1}, 0.0, 99.0, 3, 3, 3),
        PastAttempt(1, {"slow": 1}, 0.0, 0.5, 0, 1, 1),  # in less time than it takes to save
        PastAttempt(1, {"elsewhere": 1}, 0.0, 99.0, 0, 9, 9, 8, 80.0),
        PastAttempt(1, {"slow": 3}, 0.0, 99.0, 0, 9, 9, 8, 80.0),  # more workers than were measured
    ],
)
def test_what_tells_nothing_is_left_out(nothing: PastAttempt) -> None:
    assert correct_profile(history(nothing), 1e9, PROFILE, CLOUDS) == (PROFILE, CLOUDS)
