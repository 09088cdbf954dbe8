"""Tests of estimated step times: measured, fitted from other trials, and stated."""

from __future__ import annotations

import math

import pytest

from tests.provisioning.renting_study import RentingStudy
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.present_machines import PresentMachines
from thriftune.provisioning.step_time_estimator import StepTimeEstimator
from thriftune.state import events as ev

KINDS = [MachineType("a", 1.0), MachineType("b", 1.0, speed=2.0), MachineType("c", 1.0, speed=4.0)]


def begun(trials: int = 3) -> RentingStudy:
    study = RentingStudy(PresentMachines(), trials=trials)
    study.begin()
    return study


def stays(study: RentingStudy, trial: int, machine: str, first: int, last: int, seconds: float) -> None:
    """Let the trial do these steps on a machine, which is then preempted."""
    study.machine_arrives(machine)
    assert study.trial(trial).machine == machine
    study.train_steps(trial, first, last, seconds)
    study.machine_preempted(machine)


def test_untimed_steps_have_the_stated_time() -> None:
    study, paces = begun(), StepTimeEstimator(KINDS, 60.0)
    assert paces.seconds(None, "a", study.history) == pytest.approx(60.0)
    assert paces.seconds(None, "b", study.history) == pytest.approx(30.0)
    stays(study, 0, "a-1", 1, 1, 90.0)  # a single report gives no time, as the start of its step is unknown
    assert paces.seconds(study.trial(0), "c", study.history) == pytest.approx(15.0)


def test_a_trial_has_its_measured_time_on_a_type_that_it_used() -> None:
    study, paces = begun(), StepTimeEstimator(KINDS, 60.0)
    stays(study, 0, "a-1", 1, 5, 90.0)
    assert paces.seconds(study.trial(0), "a", study.history) == pytest.approx(90.0)
    stays(study, 0, "a-2", 6, 10, 180.0)
    assert paces.seconds(study.trial(0), "a", study.history) == pytest.approx(135.0)


def test_the_time_on_another_type_is_scaled_by_its_speed() -> None:
    study, paces = begun(), StepTimeEstimator(KINDS, 60.0)
    stays(study, 0, "a-1", 1, 5, 90.0)
    assert paces.seconds(study.trial(0), "b", study.history) == pytest.approx(45.0)
    assert paces.seconds(study.trial(0), "c", study.history) == pytest.approx(22.5)


def test_the_time_of_one_trial_is_the_estimate_for_others() -> None:
    study, paces = begun(), StepTimeEstimator(KINDS, 60.0)
    stays(study, 0, "a-1", 1, 5, 90.0)
    assert paces.seconds(None, "a", study.history) == pytest.approx(90.0)
    assert paces.seconds(None, "b", study.history) == pytest.approx(45.0)


def test_speeds_are_fitted_from_trials_on_several_types() -> None:
    """The true speed of b is 1, its stated speed is 2 and counts as one more trial."""
    study, paces = begun(), StepTimeEstimator(KINDS, 60.0)
    for number, (first, machine_type) in enumerate([(1, "a"), (6, "b")], 1):
        stays(study, 0, f"{machine_type}-{number}", first, first + 4, 90.0)
    result = paces.seconds(study.trial(0), "a", study.history), paces.seconds(study.trial(0), "b", study.history)
    assert result == pytest.approx((90.0, 90.0))
    a, b = paces.seconds(None, "a", study.history), paces.seconds(None, "b", study.history)
    assert 1.0 < a / b < 2.0  # between the stated factor of 2 and the measured factor of 1
    assert math.sqrt(a * b) == pytest.approx(90.0, rel=0.05)


def test_reports_of_the_running_attempt_count() -> None:
    study, paces = begun(), StepTimeEstimator(KINDS, 60.0)
    study.machine_arrives("a-1")
    trial = study.trial(0)
    assert paces.seconds(trial, "a", study.history) == pytest.approx(60.0)
    study.train_steps(0, 1, 1, 100.0)
    assert paces.seconds(trial, "a", study.history) == pytest.approx(60.0)
    assert not paces.is_timed(trial, study.history)
    study.train_steps(0, 2, 4, 100.0)
    assert paces.seconds(trial, "a", study.history) == pytest.approx(100.0)
    assert paces.seconds(trial, "b", study.history) == pytest.approx(50.0)
    assert paces.is_timed(trial, study.history)


def test_repeated_steps_count_on_the_type_where_they_were_done() -> None:
    study, paces = begun(), StepTimeEstimator(KINDS, 60.0)
    study.machine_arrives("a-1")
    study.train_steps(0, 1, 3, 80.0)
    study.train_steps(0, 4, 6, 80.0, saved=False)
    study.machine_preempted("a-1")
    assert paces.seconds(study.trial(0), "a", study.history) == pytest.approx(80.0)
    stays(study, 0, "b-2", 4, 8, 50.0)
    assert paces.seconds(study.trial(0), "b", study.history) == pytest.approx(50.0)


def test_ended_trials_count_for_a_new_driver() -> None:
    study = begun()
    study.machine_arrives("a-1")
    study.train_steps(0, 1, 100, 90.0)
    study.end(0)
    for _ in range(2):
        paces = StepTimeEstimator(KINDS, 60.0)
        assert paces.seconds(study.trial(1), "a", study.history) == pytest.approx(90.0)
        assert paces.seconds(None, "b", study.history) == pytest.approx(45.0)
        study.kill_driver()
        study.begin()


def test_another_history_resets_the_estimates() -> None:
    study, paces = begun(), StepTimeEstimator(KINDS, 60.0)
    stays(study, 0, "a-1", 1, 5, 90.0)
    assert paces.seconds(study.trial(0), "a", study.history) == pytest.approx(90.0)
    assert paces.seconds(None, "a", begun().history) == pytest.approx(60.0)


def test_machines_of_unknown_types_are_ignored() -> None:
    study, paces = begun(), StepTimeEstimator(KINDS, 60.0)
    stays(study, 0, "desk-1", 1, 5, 90.0)
    assert paces.seconds(study.trial(0), "a", study.history) == pytest.approx(60.0)


def test_machines_that_end_together_are_counted_in_any_order() -> None:
    machine_types = [MachineType("a", 1.0), MachineType("b", 1.0)]
    study, result = RentingStudy(PresentMachines(), trials=6), StepTimeEstimator(machine_types, 100.0)
    study.begin()
    for number, offer in enumerate("ab"):
        study.machine_arrives(f"{offer}-1")
        study.train_steps(number, 1, 5, 100.0 * (1 + 3 * number))
        result.seconds(None, "a", study.history)
    study(ev.MachineLost(study.now, "b-1", "x"), ev.MachineLost(study.now, "a-1", "x"))
    for number in range(2):
        trial = study.trial(number)
        for machine_type in "ab":
            fresh = StepTimeEstimator(machine_types, 100.0).seconds(trial, machine_type, study.history)
            assert result.seconds(trial, machine_type, study.history) == pytest.approx(fresh)
