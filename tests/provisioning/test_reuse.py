"""Tests of SciSpot's policy: reuse by age, choice of a type, and idle machines kept for an hour."""

from __future__ import annotations

import pytest

from tests.market.known_lifetimes import Bathtub
from tests.provisioning.renting_study import HOUR, RentingStudy
from tests.provisioning.studies import CloudSetup, make_spec, run
from thriftune.errors import SettingError
from thriftune.market.lifetime import Exponential
from thriftune.market.reuse import reuse
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.reuse import Reuse
from thriftune.provisioning.workload import StudyWorkload
from thriftune.replay.preemptions import LifetimePreemptions
from thriftune.replay.simulated_engine import Curve
from thriftune.state import events as ev
from thriftune.state.fleet import Machine

LIFE = Bathtub()


def make_study(
    *machine_types: MachineType, step: float = 216.0, at_a_time: int = 1, trials: int = 4
) -> RentingStudy:
    """Return a study of trials of 6 hours."""
    machine_types = machine_types or (MachineType("a", 0.3, survival=LIFE, init=60.0),)
    return RentingStudy(
        Reuse(machine_types, StudyWorkload(at_a_time, trials, seconds_per_step=step)), trials=trials
    )


@pytest.mark.parametrize("step", [36.0, 216.0, 432.0])
def test_a_machine_is_accepted_by_its_age(step: float) -> None:
    study = make_study(step=step)
    trial = study.waiting_trial()
    policy = study.policy
    assert isinstance(policy, Reuse)
    result = []
    for age in (0.5, 3.0, 8.0, 13.0, 17.5, 21.0, 23.5):
        machine = Machine("m", "a", 0.3, study.now - age * HOUR, slots=1)
        taken = policy.accepts(trial, machine, study.history, study.now)
        assert taken == reuse(LIFE, step / 36.0, age, restart_hours=60.0 / HOUR)
        result.append(taken)
    assert result == sorted(
        result, reverse=True
    )  # with bathtub lifetimes, young machines are reused and old ones are not
    assert result[0]
    assert not result[-1]


def test_the_next_trial_reuses_a_young_machine() -> None:
    study = make_study()
    assert study.begin() == ["rent a-1"]
    study.machine_arrives("a-1")
    study.later(6 * HOUR)
    study.report(0, 100, loss=0.1, saved=True)
    assert study.end(0) == ["create 1", "place 1/1 on a-1"]


def test_an_old_machine_is_kept_for_an_hour() -> None:
    study = make_study()
    study.begin()
    study.machine_arrives("a-1")
    study.later(20 * HOUR)
    study.report(0, 100, loss=0.1, saved=True)
    assert study.end(0) == ["create 1", "rent a-2"]
    assert study.machine_arrives("a-2") == ["place 1/1 on a-2"]
    assert study.pass_time(HOUR - 1.0) == []
    assert study.pass_time(600.0) == ["release a-1"]


def test_an_idle_machine_is_released_after_the_last_trial() -> None:
    study = make_study(trials=2, at_a_time=2)
    study.begin()
    study.machine_arrives("a-1")
    study.machine_arrives("a-2")
    study.later(6 * HOUR)
    study.report(0, 100, loss=0.1, saved=True)
    assert study.end(0) == ["release a-1"]


def test_a_preempted_machine_is_replaced() -> None:
    study = make_study()
    study.begin()
    study.machine_arrives("a-1")
    study.train_steps(0, 1, 3, 216.0)
    assert study.machine_preempted("a-1") == ["rent a-2"]
    assert study.machine_arrives("a-2") == ["place 0/2 on a-2 from 3"]


@pytest.mark.parametrize("at_a_time", [1, 3])
def test_each_type_is_tried(at_a_time: int) -> None:
    machine_types = [MachineType(name, 0.3, survival=Exponential(50.0), init=60.0) for name in "abc"]
    outcome = run(Reuse, CloudSetup(machine_types), StudyWorkload(at_a_time, 6, seconds_per_step=300.0))
    assert set(outcome.offers()) == set("abc")


@pytest.mark.parametrize("hours", [9, 23, 30])
def test_a_trial_may_take_longer_than_machines_live(hours: int) -> None:
    long = Curve(range(1, hours + 1), [{"loss": 1.0}] * hours, [HOUR] * hours)
    setup = CloudSetup(
        [MachineType("a", 0.3, survival=LIFE, queue=60.0, init=60.0)], {"a": LifetimePreemptions(LIFE, 1)}
    )
    outcome = run(
        Reuse, setup, StudyWorkload(1, 2, seconds_per_step=HOUR), make_spec(2, steps=hours), curves=lambda _: long
    )
    assert len(outcome.of(ev.Rent)) < 20


def test_a_machine_may_be_older_than_the_table() -> None:
    long = Curve(range(1, 61), [{"loss": 1.0}] * 60, [HOUR] * 60)
    setup = CloudSetup([MachineType("a", 0.3, survival=Exponential(4000.0), init=60.0)])
    outcome = run(
        Reuse, setup, StudyWorkload(1, 2, seconds_per_step=HOUR), make_spec(2, steps=60), curves=lambda _: long
    )
    assert len(outcome.of(ev.Rent)) == 1


def test_an_untried_type_is_tried_first() -> None:
    dear, cheap = MachineType("dear", 3.0, survival=LIFE), MachineType("cheap", 0.1, survival=LIFE)
    study = make_study(dear, cheap)
    assert study.begin() == ["rent dear-1"]
    study.machine_arrives("dear-1")
    assert study.machine_preempted("dear-1") == ["rent cheap-2"]


@pytest.mark.parametrize(
    ("machine_types", "chosen"),
    [
        ([MachineType("a", 0.3, survival=LIFE), MachineType("b", 0.29, survival=LIFE)], "b"),
        ([MachineType("a", 0.3, survival=LIFE), MachineType("b", 0.5, 2, survival=LIFE)], "b"),
        (
            [MachineType("a", 0.3, survival=LIFE), MachineType("b", 0.5, speed=1.9, survival=LIFE)],
            "b",
        ),  # shorter work is preempted less often
        # 6 h of work at mean lifetimes of 4 and 6 h take (e^1.5 - 1) 4 = 13.9 and (e - 1) 6 = 10.3 h
        (
            [MachineType("a", 0.3, survival=Exponential(4.0)), MachineType("b", 0.4, survival=Exponential(6.0))],
            "b",
        ),
        (
            [MachineType("a", 0.3, survival=Exponential(4.0)), MachineType("b", 0.41, survival=Exponential(6.0))],
            "a",
        ),
    ],
)
def test_the_tried_type_with_the_fewest_expected_dollars_is_rented(
    machine_types: list[MachineType], chosen: str
) -> None:
    study = make_study(*machine_types)
    study.begin()
    study.machine_arrives("a-1")
    study.now += 0.5 * HOUR
    study.machine_preempted("a-1")
    study.machine_arrives("b-2")
    study.now += 0.5 * HOUR
    assert study.machine_preempted("b-2") == [f"rent {chosen}-3"]


def test_another_type_is_rented_after_a_refusal() -> None:
    study = make_study(MachineType("a", 0.3, survival=LIFE), MachineType("b", 0.9, survival=LIFE))
    study.begin()
    assert study.refuse_machines("a-1") == ["rent b-2"]
    assert study.refuse_machines("b-2") == []
    assert study.later(300.0) == ["rent a-3"]


def test_a_type_with_known_lifetimes_is_required() -> None:
    with pytest.raises(SettingError, match="needs a machine type with known lifetimes; give one with survival="):
        Reuse([MachineType("a", 1.0)], StudyWorkload())


def test_an_expensive_type_is_not_used_after_its_trial() -> None:
    life = Exponential(200.0)
    machine_types = [
        MachineType(name, price, survival=life, queue=30.0, init=30.0)
        for name, price in (("cheap", 0.1), ("dear", 10.0))
    ]
    flat = Curve(range(1, 11), [{"loss": 1.0}] * 10, [60.0] * 10)
    workload = StudyWorkload(2, 60, seconds_per_step=60.0, restart_seconds=5.0)
    outcome = run(Reuse, CloudSetup(machine_types, {}), workload, make_spec(60, steps=10), curves=lambda _: flat)
    assert sum(entry.machine.startswith("dear") for entry in outcome.of(ev.Place)) == 1


def test_an_idle_machine_is_released_after_an_hour_despite_other_trials() -> None:
    policy = Reuse(
        [MachineType("a", 1.0, survival=Exponential(200.0))], StudyWorkload(2, 400, seconds_per_step=40.0)
    )
    study = RentingStudy(policy, trials=400, max_steps=1)
    study.begin()
    study.machine_arrives("a-1")
    spare = Machine("a-9", "a", 1.0, study.now, slots=1)
    assert policy.keeps_idle(spare, study.history, study.now + 0.9 * HOUR)
    assert not policy.keeps_idle(spare, study.history, study.now + 1.1 * HOUR)
