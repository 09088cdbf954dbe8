"""Tests of the four rules of uniform progress."""

from __future__ import annotations

from typing import Any

import pytest

from tests.provisioning.renting_study import HOUR, RentingStudy
from tests.provisioning.studies import CloudSetup, limited_availability, make_spec, run
from thriftune.errors import SettingError
from thriftune.market.lifetime import Exponential
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.renting_policy import RETRY_SECONDS
from thriftune.provisioning.uniform_progress import UniformProgress
from thriftune.provisioning.workload import StudyWorkload
from thriftune.replay.preemptions import AvailabilityPreemptions
from thriftune.replay.simulated_engine import Curve

SPOT = MachineType("spot", 0.3, survival=Exponential(3.0), queue=60.0, init=60.0)
ON_DEMAND = MachineType("stays", 1.0, queue=60.0, init=60.0)


def make_study(hours: float = 20.0, machine_types: tuple[MachineType, ...] = (SPOT, ON_DEMAND)) -> RentingStudy:
    """Return a study with 10 hours of work and a changeover of 120 seconds."""
    workload = StudyWorkload(deadline_seconds=hours * HOUR, seconds_per_step=360.0)
    return RentingStudy(UniformProgress(machine_types, workload), trials=1)


def test_spot_is_used_whenever_it_is_available() -> None:
    study = make_study()
    assert study.begin() == ["rent spot-1"]
    study.machine_arrives("spot-1")
    study.later(5 * HOUR)  # the trial continues although it is far behind
    assert study.machine_preempted("spot-1") == ["rent spot-2"]


def test_the_spot_type_with_the_lowest_cost_per_step_is_rented() -> None:
    quick = MachineType("quick", 0.5, speed=2.0, survival=Exponential(3.0))
    assert make_study(machine_types=(SPOT, quick, ON_DEMAND)).begin() == ["rent quick-1"]


def test_a_trial_that_is_not_behind_waits() -> None:
    study = make_study()
    study.begin()
    assert study.refuse_machines("spot-1") == []


def test_a_trial_that_is_behind_uses_on_demand() -> None:
    study = make_study()
    study.begin()
    study.refuse_machines("spot-1")
    assert study.later(RETRY_SECONDS) == ["rent spot-2"]
    assert study.refuse_machines("spot-2") == ["rent stays-3"]


def test_a_trial_leaves_on_demand_when_it_is_ahead_by_two_changeovers() -> None:
    study = make_study()
    study.begin()
    study.later(HOUR)
    study.refuse_machines("spot-1")
    study.machine_arrives("stays-2")
    # 100 steps in 20 h: 0.05 of the work is expected per hour.
    assert study.train_steps(0, 1, 5, 360.0) == []  # 0.05 after 1.5 h, where 0.075 is expected
    assert study.train_steps(0, 6, 10, 360.0) == []  # 0.10 after 2 h, but 0.103 is expected two changeovers later
    assert study.train_steps(0, 11, 13, 360.0) == ["move 0/1"]  # 0.12 after 2.25 h, where 0.116 is
    assert study.end(0, cut=True) == ["release stays-2", "rent spot-3"]


def test_without_time_left_a_trial_stays_on_demand() -> None:
    study = make_study(hours=10.0)
    assert study.begin() == ["rent stays-1"]
    study.machine_arrives("stays-1")
    assert study.train_steps(0, 1, 99, 360.0) == []


def test_without_time_left_a_spot_machine_is_not_used() -> None:
    study = make_study(hours=11.0)
    assert study.begin() == ["rent spot-1"]
    study.later(HOUR)
    assert study.machine_arrives("spot-1") == ["rent stays-2", "release spot-1"]


def test_a_trial_stays_on_a_spot_machine_until_it_is_preempted() -> None:
    study = make_study(hours=10.5)
    study.begin()
    study.machine_arrives("spot-1")
    assert study.train_steps(0, 1, 3, 3000.0) == []
    assert study.machine_preempted("spot-1") == ["rent stays-2"]


@pytest.mark.parametrize("seed", range(6))
def test_a_single_trial_always_meets_the_deadline(seed: int) -> None:
    flat = Curve(range(1, 21), [{"loss": 1.0}] * 20, [300.0] * 20)
    workload = StudyWorkload(1, 1, deadline_seconds=2.6 * HOUR, seconds_per_step=300.0)
    outcome = run(UniformProgress, limited_availability(seed), workload, make_spec(1), curves=lambda _: flat)
    assert outcome.now <= 2.6 * HOUR


@pytest.mark.parametrize(
    ("machine_types", "hours", "message"),
    [
        ([SPOT, ON_DEMAND], None, "needs a deadline; give deadline="),
        ([SPOT], 1.0, "needs a spot type and an on-demand type; give both"),
        ([ON_DEMAND], 1.0, "needs a spot type and an on-demand type; give both"),
    ],
)
def test_missing_requirements_are_named(machine_types: list[MachineType], hours: Any, message: str) -> None:
    with pytest.raises(SettingError, match=f"uniform_progress: {message}"):
        UniformProgress(machine_types, StudyWorkload(deadline_seconds=hours and hours * HOUR))


def test_trials_to_come_count() -> None:
    machine_types = [MachineType("spot", 0.9, survival=Exponential(500.0)), MachineType("stays", 1.0)]
    flat = Curve(range(1, 11), [{"loss": 1.0}] * 10, [600.0] * 10)
    workload = StudyWorkload(1, 4, deadline_seconds=10 * HOUR, seconds_per_step=600.0)
    nowhere = CloudSetup(machine_types, {"spot": AvailabilityPreemptions([0.0], [0], 1e9)})
    outcome = run(UniformProgress, nowhere, workload, make_spec(4, steps=10), curves=lambda _: flat)
    assert outcome.now <= 10 * HOUR
