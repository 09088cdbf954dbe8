"""Tests of what all renting policies share: renting, placing and releasing."""

from __future__ import annotations

import math

import pytest

from tests.provisioning.renting_study import HOUR, RentingStudy
from tests.provisioning.studies import CloudSetup, make_spec, run
from tests.support.tables import START
from thriftune.errors import SettingError
from thriftune.market.billing import EC2_SPOT, EC2_SPOT_2016
from thriftune.market.lifetime import Exponential
from thriftune.market.price_history import PriceSeries
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.baselines import CheapestSpot, OnDemand
from thriftune.provisioning.policies import make_policy
from thriftune.provisioning.renting_policy import RentingPolicy
from thriftune.provisioning.workload import StudyWorkload
from thriftune.replay.simulated_engine import Curve
from thriftune.state import events as ev

LIFE = Exponential(2.0)


def spot(workload: StudyWorkload | None = None, **settings: object) -> RentingStudy:
    machine_type = MachineType("spot", 0.3, survival=LIFE, **settings)  # type: ignore[arg-type]
    return RentingStudy(CheapestSpot([machine_type], workload or StudyWorkload(seconds_per_step=60.0)))


def policy_of(study: RentingStudy) -> RentingPolicy:
    assert isinstance(study.policy, RentingPolicy)
    return study.policy


def test_steps_left_count_from_the_last_checkpoint_on_a_spot_machine() -> None:
    study = spot()
    study.begin()
    study.machine_arrives("spot-1")
    assert policy_of(study).steps_left(study.trial(0), study.history) == 100
    study.train_steps(0, 1, 7, 10.0)
    study.train_steps(0, 8, 9, 10.0, saved=False)
    assert policy_of(study).steps_left(study.trial(0), study.history) == 93


def test_steps_left_count_from_the_last_step_on_an_on_demand_machine() -> None:
    study = RentingStudy(OnDemand([MachineType("stays", 1.0)], StudyWorkload()))
    study.begin()
    study.machine_arrives("stays-1")
    study.train_steps(0, 1, 9, 10.0, saved=False)
    assert policy_of(study).steps_left(study.trial(0), study.history) == 91


def test_one_machine_is_rented_for_each_parallel_trial() -> None:
    study = spot(StudyWorkload(3))
    assert study.begin() == ["rent spot-1", "rent spot-2", "rent spot-3"]


def test_a_machine_with_several_slots_is_rented_once() -> None:
    study = spot(StudyWorkload(3), slots=2)
    assert study.begin() == ["rent spot-1", "rent spot-2"]
    assert len(study.machine_arrives("spot-1", slots=2)) == 2


def test_at_a_time_limits_trials_even_with_free_slots() -> None:
    study = spot(StudyWorkload(1), slots=4)
    study.begin()
    assert study.machine_arrives("spot-1", slots=4) == ["place 0/1 on spot-1"]


def test_an_unneeded_machine_is_released() -> None:
    study = spot(StudyWorkload(2))
    study.begin()
    study.machine_arrives("spot-1")
    study.machine_arrives("spot-2")
    for trial in (0, 1):
        study.report(trial, 100, loss=0.1, saved=True)
    study.end(0)
    study.report(2, 100, loss=0.1, saved=True)
    study.end(2)  # only trial 3 is left
    assert study.end(1) == ["release spot-2"]


def test_a_machine_that_will_be_preempted_for_free_is_not_released() -> None:
    for billing, result in ((EC2_SPOT, []), (MachineType("x", 1.0).billing, ["release spot-1"])):
        study = spot(billing=billing, notice_seconds=120.0)
        study.begin()
        study.machine_arrives("spot-1")
        study.now += 900.0
        study(ev.MachineNotice(study.now, "spot-1", study.now + 120.0))
        study.report(0, 5, loss=0.1, saved=True)
        ended = study.end(0, cut=True)
        assert [each for each in ended if each.startswith("release")] == result


def test_save_interval() -> None:
    """Young and Daly's interval is the square root of twice the save time times the mean lifetime."""
    workload = StudyWorkload(seconds_per_step=60.0, save_seconds=10.0)
    study = spot(workload)
    study.begin()
    study.machine_arrives("spot-1")
    every = policy_of(study).save_every(study.trial(0), "spot-1", study.history)
    assert every == pytest.approx(math.sqrt(2.0 * 10.0 * 2.0 * HOUR), rel=0.02)
    assert study.trial(0).save_every == every
    noticed = spot(workload, notice_seconds=70.0)
    noticed.begin()
    noticed.machine_arrives("spot-1")
    assert noticed.trial(0).save_every is None  # only when requested
    free = spot(StudyWorkload(seconds_per_step=60.0))
    free.begin()
    free.machine_arrives("spot-1")
    assert free.trial(0).save_every == 0.0  # after every step, because saves cost nothing


def test_a_new_driver_makes_the_same_decisions() -> None:
    study = spot(StudyWorkload(2))
    study.begin()
    study.machine_arrives("spot-1")
    study.train_steps(0, 1, 5, 60.0)
    study.kill_driver()
    study._provisioner = CheapestSpot([MachineType("spot", 0.3, survival=LIFE)], StudyWorkload(2))
    study.policy = study._provisioner
    study.conductor = study._conductor()
    result = study(ev.DriverStarted(study.now, 2, "host"))
    assert [each for each in result if each.startswith("place")] != []


def test_machines_of_other_types_are_ignored() -> None:
    study = spot()
    study.start()
    assert list(study.history.fleet.renting) == ["spot-1"]


def test_machine_types_need_distinct_names() -> None:
    with pytest.raises(SettingError, match="machine types: a, a: each needs a name of its own"):
        OnDemand([MachineType("a", 1.0), MachineType("a", 2.0)], StudyWorkload())


def test_a_machine_preempted_at_once_counts_as_refused() -> None:
    study = spot()
    study.begin()
    study.machine_arrives("spot-1")
    study.pass_time(30.0)
    assert study.machine_preempted("spot-1") == []
    assert study.pass_time(301.0) == ["rent spot-2"]


def test_a_machine_preempted_soon_counts_as_refused_unless_others_live_on() -> None:
    for others in (0, 1):
        study = spot(StudyWorkload(2, seconds_per_step=60.0))
        study.begin()
        study.machine_arrives("spot-1")
        if others:
            study.machine_arrives("spot-2")
        study.pass_time(200.0)
        lost = study.machine_preempted("spot-1")
        assert ("rent spot-3" in lost) == bool(others)


def test_was_last_available_follows_refusals_and_arrivals() -> None:
    study = spot(StudyWorkload(2, seconds_per_step=60.0))
    policy = policy_of(study)
    machine_type = policy.machine_types["spot"]
    study.begin()
    assert policy.was_last_available(machine_type, study.history)
    study.refuse_machines("spot-1")
    assert not policy.was_last_available(machine_type, study.history)
    study.pass_time(1.0)
    study.machine_arrives("spot-2")
    assert policy.was_last_available(machine_type, study.history)


@pytest.mark.parametrize("name", ["thrifty", "cheapest_spot", "step_cost", "reuse", "elastic", "uniform_progress"])
def test_trials_without_checkpoints_get_no_spot_machine(name: str) -> None:
    machine_types = [MachineType("stays", 1.0), MachineType("spot", 0.3, survival=LIFE)]
    workload = StudyWorkload(trials=4, deadline_seconds=9 * HOUR, saves=False)
    with pytest.raises(SettingError, match="whenever spot is preempted; let trials save"):
        make_policy(name, machine_types, workload)
    if name in ("thrifty", "elastic"):
        make_policy(name, machine_types[:1], workload)
    make_policy("on_demand", machine_types, workload)


@pytest.mark.parametrize("name", ["on_demand", "thrifty", "elastic"])
def test_a_coming_machine_with_several_slots_is_not_rented_again(name: str) -> None:
    machine_types = [MachineType("big", 16.0, 16, queue=10.0, init=600.0)]
    flat = Curve(range(1, 6), [{"loss": 1.0}] * 5, [300.0] * 5)
    workload = StudyWorkload(16, 16, seconds_per_step=300.0)
    outcome = run(
        lambda k, t: make_policy(name, k, t),
        CloudSetup(machine_types, {}),
        workload,
        make_spec(16, steps=5),
        curves=lambda _: flat,
    )
    assert len(outcome.of(ev.MachineRented)) == 1


def test_unsaved_steps_of_a_lost_attempt_are_left() -> None:
    study = RentingStudy(OnDemand([MachineType("stays", 1.0)], StudyWorkload()))
    study.begin()
    study.machine_arrives("stays-1")
    study.train_steps(0, 1, 9, 10.0, saved=False)
    study.machine_preempted("stays-1")
    study.machine_arrives("stays-2")
    assert policy_of(study).steps_left(study.trial(0), study.history) == 100
    study.train_steps(0, 1, 2, 10.0, saved=False)
    assert policy_of(study).steps_left(study.trial(0), study.history) == 98


def test_on_a_machine_without_hazard_a_trial_saves_only_at_the_end() -> None:
    """The machine has no maximum price and no known lifetime."""
    workload = StudyWorkload(seconds_per_step=60.0, save_seconds=10.0)
    prices = PriceSeries("m", "a", [START - HOUR], [1.0], end=START + 99 * HOUR)

    class Never:
        def probability(self, series: object, t: float, max_price: float) -> float:
            return 0.0

    study = RentingStudy(CheapestSpot([MachineType("m", prices, revocation=Never())], workload))
    study.begin()
    study.machine_arrives("m-1")
    assert study.trial(0).save_every is None


def test_an_unbilled_last_hour_of_a_preempted_machine_is_used() -> None:
    machine_type = MachineType("m", 0.3, survival=LIFE, billing=EC2_SPOT_2016, notice_seconds=120.0)
    study = RentingStudy(CheapestSpot([machine_type], StudyWorkload(seconds_per_step=60.0)))
    study.begin()
    study.machine_arrives("m-1")
    study.now += 5000.0
    study(ev.MachineNotice(study.now, "m-1", study.now + 120.0))
    assert "release m-1" not in study.end(0, cut=True)
