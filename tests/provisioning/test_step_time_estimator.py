"""How long a step takes: what was seen, what others tell, and guesses."""

from __future__ import annotations

import math

import pytest

from tests.provisioning.desk import Desk
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.present_machines import PresentMachines
from thriftune.provisioning.step_time_estimator import StepTimeEstimator
from thriftune.state import events as ev

KINDS = [MachineType("a", 1.0), MachineType("b", 1.0, speed=2.0), MachineType("c", 1.0, speed=4.0)]


def begun(trials: int = 3) -> Desk:
    where = Desk(PresentMachines(), trials=trials)
    where.begins()
    return where


def stays(where: Desk, trial: int, machine: str, first: int, last: int, seconds: float) -> None:
    """The trial does these steps on a machine, which then is lost."""
    where.comes(machine)
    assert where.trial(trial).machine == machine
    where.works(trial, first, last, seconds)
    where.is_lost(machine)


def test_what_nobody_has_seen_goes_by_the_guess() -> None:
    where, paces = begun(), StepTimeEstimator(KINDS, 60.0)
    assert paces.seconds(None, "a", where.history) == pytest.approx(60.0)
    assert paces.seconds(None, "b", where.history) == pytest.approx(30.0)
    stays(where, 0, "a-1", 1, 1, 90.0)  # one report tells nothing: nobody knows when the step began
    assert paces.seconds(where.trial(0), "c", where.history) == pytest.approx(15.0)


def test_a_trial_that_ran_on_a_kind_is_known_there() -> None:
    where, paces = begun(), StepTimeEstimator(KINDS, 60.0)
    stays(where, 0, "a-1", 1, 5, 90.0)
    assert paces.seconds(where.trial(0), "a", where.history) == pytest.approx(90.0)
    stays(where, 0, "a-2", 6, 10, 180.0)
    assert paces.seconds(where.trial(0), "a", where.history) == pytest.approx(135.0)


def test_elsewhere_its_step_takes_as_long_but_for_the_kinds_speed() -> None:
    where, paces = begun(), StepTimeEstimator(KINDS, 60.0)
    stays(where, 0, "a-1", 1, 5, 90.0)
    assert paces.seconds(where.trial(0), "b", where.history) == pytest.approx(45.0)
    assert paces.seconds(where.trial(0), "c", where.history) == pytest.approx(22.5)


def test_what_one_trial_did_is_the_guess_for_others() -> None:
    where, paces = begun(), StepTimeEstimator(KINDS, 60.0)
    stays(where, 0, "a-1", 1, 5, 90.0)
    assert paces.seconds(None, "a", where.history) == pytest.approx(90.0)
    assert paces.seconds(None, "b", where.history) == pytest.approx(45.0)


def test_a_kind_is_as_fast_as_it_was_for_those_who_were_on_several() -> None:
    """The true speed of b is 1 and not 2; the guess counts as one trial more."""
    where, paces = begun(), StepTimeEstimator(KINDS, 60.0)
    for number, (first, kind) in enumerate([(1, "a"), (6, "b")], 1):
        stays(where, 0, f"{kind}-{number}", first, first + 4, 90.0)
    told = paces.seconds(where.trial(0), "a", where.history), paces.seconds(where.trial(0), "b", where.history)
    assert told == pytest.approx((90.0, 90.0))
    a, b = paces.seconds(None, "a", where.history), paces.seconds(None, "b", where.history)
    assert 1.0 < a / b < 2.0  # halfway, as the guess says twice and the trial says alike
    assert math.sqrt(a * b) == pytest.approx(90.0, rel=0.05)


def test_while_it_runs_its_own_reports_tell() -> None:
    where, paces = begun(), StepTimeEstimator(KINDS, 60.0)
    where.comes("a-1")
    trial = where.trial(0)
    assert paces.seconds(trial, "a", where.history) == pytest.approx(60.0)
    where.works(0, 1, 1, 100.0)
    assert paces.seconds(trial, "a", where.history) == pytest.approx(60.0)
    assert not paces.known(trial, where.history)
    where.works(0, 2, 4, 100.0)
    assert paces.seconds(trial, "a", where.history) == pytest.approx(100.0)
    assert paces.seconds(trial, "b", where.history) == pytest.approx(50.0)
    assert paces.known(trial, where.history)


def test_steps_that_were_done_again_count_where_they_were_done() -> None:
    where, paces = begun(), StepTimeEstimator(KINDS, 60.0)
    where.comes("a-1")
    where.works(0, 1, 3, 80.0)
    where.works(0, 4, 6, 80.0, saved=False)
    where.is_lost("a-1")
    assert paces.seconds(where.trial(0), "a", where.history) == pytest.approx(80.0)
    stays(where, 0, "b-2", 4, 8, 50.0)
    assert paces.seconds(where.trial(0), "b", where.history) == pytest.approx(50.0)


def test_trials_that_have_ended_are_remembered_also_by_a_new_driver() -> None:
    where = begun()
    where.comes("a-1")
    where.works(0, 1, 100, 90.0)
    where.end(0)
    for _ in range(2):
        paces = StepTimeEstimator(KINDS, 60.0)
        assert paces.seconds(where.trial(1), "a", where.history) == pytest.approx(90.0)
        assert paces.seconds(None, "b", where.history) == pytest.approx(45.0)
        where.kill_driver()
        where.begins()


def test_of_another_history_it_knows_nothing() -> None:
    where, paces = begun(), StepTimeEstimator(KINDS, 60.0)
    stays(where, 0, "a-1", 1, 5, 90.0)
    assert paces.seconds(where.trial(0), "a", where.history) == pytest.approx(90.0)
    assert paces.seconds(None, "a", begun().history) == pytest.approx(60.0)


def test_machines_of_other_kinds_tell_nothing() -> None:
    where, paces = begun(), StepTimeEstimator(KINDS, 60.0)
    stays(where, 0, "desk-1", 1, 5, 90.0)
    assert paces.seconds(where.trial(0), "a", where.history) == pytest.approx(60.0)


def test_machines_that_go_in_one_turn_are_remembered_in_any_order() -> None:
    kinds = [MachineType("a", 1.0), MachineType("b", 1.0)]
    where, told = Desk(PresentMachines(), trials=6), StepTimeEstimator(kinds, 100.0)
    where.begins()
    for number, offer in enumerate("ab"):
        where.comes(f"{offer}-1")
        where.works(number, 1, 5, 100.0 * (1 + 3 * number))
        told.seconds(None, "a", where.history)
    where(ev.MachineLost(where.now, "b-1", "x"), ev.MachineLost(where.now, "a-1", "x"))
    for number in range(2):
        trial = where.trial(number)
        for kind in "ab":
            fresh = StepTimeEstimator(kinds, 100.0).seconds(trial, kind, where.history)
            assert told.seconds(trial, kind, where.history) == pytest.approx(fresh)
