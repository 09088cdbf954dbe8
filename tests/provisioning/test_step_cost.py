"""Tests of SpotTune's policy: the fewest expected dollars per step, for an hour at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.provisioning.renting_study import HOUR, RentingStudy
from tests.provisioning.studies import FOREVER, CloudSetup, preempted_by_price, random_lifetimes, run
from tests.support.tables import START
from thriftune.errors import SettingError
from thriftune.market.billing import EC2_SPOT
from thriftune.market.lifetime import Exponential
from thriftune.market.price_history import PriceSeries
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.step_cost import StepCost
from thriftune.provisioning.workload import StudyWorkload
from thriftune.replay.preemptions import PricePreemptions
from thriftune.replay.simulated_engine import Curve
from thriftune.state import events as ev

TERMS = StudyWorkload(seconds_per_step=60.0)


@dataclass
class ConstantProbability:
    """A revocation model with a constant probability."""

    p: float

    def probability(self, series: Any, t: Any, max_price: Any) -> float:
        return self.p


def market(name: str, price: float, p: float, *, speed: float = 1.0, before: float | None = None) -> MachineType:
    """Return a spot type; `before` is its price until half an hour ago."""
    times = [START - 9 * HOUR, START - 0.5 * HOUR]
    series = PriceSeries(name, "a", times, [before or price, price], end=START + 99 * HOUR)
    return MachineType(name, series, speed=speed, revocation=ConstantProbability(p), billing=EC2_SPOT)


@pytest.mark.parametrize(
    ("machine_types", "chosen"),
    [
        ([market("a", 1.0, 0.0), market("b", 1.5, 0.5)], "b"),  # 1 against 0.75
        ([market("a", 1.0, 0.0), market("b", 1.5, 0.3)], "a"),  # 1 against 1.05
        ([market("a", 1.0, 0.4), market("b", 1.5, 0.4, speed=2.0)], "b"),  # 0.6 against 0.45
        ([market("a", 1.0, 0.0, before=2.0), market("b", 1.4, 0.0)], "b"),  # the last hour's mean: 1.5 against 1.4
        (
            [market("a", 1.0, 0.5), MachineType("b", 0.9, survival=Exponential(1.0))],
            "b",
        ),  # 0.5 against 0.9 exp(-1)
        ([market("a", 1.0, 0.0), MachineType("b", 0.3)], "a"),  # on-demand types are not considered
    ],
)
def test_the_type_with_the_lowest_equation_2_is_rented(machine_types: list[MachineType], chosen: str) -> None:
    assert RentingStudy(StepCost(machine_types, TERMS)).begin() == [f"rent {chosen}-1"]


def test_slots_share_the_cost_of_a_machine() -> None:
    wide = MachineType("wide", 1.8, slots=2, survival=Exponential(1.0))
    assert RentingStudy(StepCost([MachineType("one", 1.0, survival=Exponential(1.0)), wide], TERMS)).begin() == [
        "rent wide-1"
    ]


def test_the_maximum_price_is_above_the_price_by_a_seeded_delta() -> None:
    def max_price(seed: int) -> float | None:
        study = RentingStudy(StepCost([market("a", 1.0, 0.1)], StudyWorkload(seed=seed)))
        study.begin()
        return study.history.fleet.renting["a-1"].max_price

    limits = [max_price(seed) or 0.0 for seed in range(30)]
    assert all(1.0 < limit <= 1.2 for limit in limits)
    assert len(set(limits)) == 30
    assert max_price(3) == limits[3]


def test_without_revocation_there_is_no_maximum_price() -> None:
    study = RentingStudy(StepCost([MachineType("b", 0.9, survival=Exponential(1.0))], TERMS))
    study.begin()
    assert study.history.fleet.renting["b-1"].max_price is None


def test_after_an_hour_the_trial_moves_and_the_machine_is_released() -> None:
    study = RentingStudy(StepCost([market("a", 1.0, 0.1)], TERMS))
    study.begin()
    assert study.machine_arrives("a-1") == ["place 0/1 on a-1"]
    assert study.train_steps(0, 1, 5, 700.0) == []
    assert study.later(99.0) == []
    assert study.later(1.0) == ["move 0/1"]
    study.report(0, 6, loss=0.4, saved=True)
    assert study.end(0, cut=True) == ["release a-1", "rent a-2"]
    study.machine_released("a-1")
    assert study.machine_arrives("a-2") == ["place 0/2 on a-2 from 6"]


def test_a_machine_older_than_an_hour_is_released() -> None:
    study = RentingStudy(StepCost([market("a", 1.0, 0.1)], TERMS))
    study.begin()
    study.machine_arrives("a-1")
    study.later(HOUR)
    study.report(0, 100, loss=0.4, saved=True)
    assert study.end(0) == ["create 1", "rent a-2", "release a-1"]


@pytest.mark.parametrize("cloud", [preempted_by_price, random_lifetimes])
def test_no_machine_lives_longer_than_an_hour_and_a_step(cloud: Any) -> None:
    outcome = run(StepCost, cloud(2), StudyWorkload(2, 4, seconds_per_step=300.0, save_seconds=10.0))
    rows = outcome.ledger.rows
    assert any(row.seconds >= HOUR for row in rows)
    assert max(row.seconds for row in rows) <= HOUR + 550.0 + 10.0
    assert outcome.of(ev.Move)


def test_measured_step_times_are_used() -> None:
    machine_types = [market("a", 1.0, 0.0), market("b", 1.9, 0.0, speed=2.0)]
    study = RentingStudy(StepCost(machine_types, TERMS))
    assert study.begin() == ["rent b-1"]
    study.machine_arrives("b-1")
    study.train_steps(0, 1, 5, 60.0)  # measured on b, which was stated to be twice as fast
    assert study.machine_preempted("b-1") == ["rent b-2"]  # a is untried, so its time follows from that on b
    study.machine_arrives("b-2")
    study.train_steps(0, 6, 9, 60.0)
    assert study.requested_type() == "b"


def test_it_needs_a_spot_machine() -> None:
    with pytest.raises(SettingError, match="step_cost: all machine types are on-demand"):
        StepCost([MachineType("a", 1.0)], TERMS)


@pytest.mark.parametrize("seconds", [30.0, 200.0])
def test_a_machine_that_was_preempted_within_minutes_is_requested_again_in_the_next_round(seconds: float) -> None:
    study = RentingStudy(StepCost([market("a", 1.0, 0.9), market("b", 1.0, 0.0)], TERMS))
    assert study.begin() == ["rent a-1"]
    study.machine_arrives("a-1")
    study.pass_time(seconds)
    assert study.machine_preempted("a-1") == []
    assert study.pass_time(10.0) == ["rent a-2"]


def test_a_machine_that_the_provider_refused_is_not_requested_for_five_minutes() -> None:
    study = RentingStudy(StepCost([market("a", 1.0, 0.9), market("b", 1.0, 0.0)], TERMS))
    assert study.begin() == ["rent a-1"]
    assert study.refuse_machines("a-1") == ["rent b-2"]
    assert study.requested_type() == "b"
    study.pass_time(300.0)
    assert study.requested_type() == "a"


def test_machines_preempted_within_minutes_are_refunded() -> None:
    """In a market with a spike every four minutes, all machines of Algorithm 1 but the last are refunded."""
    times = [-9 * HOUR + 240.0 * i + spike for i in range(1000) for spike in (0.0, 235.0)]
    series = PriceSeries("spiky", "a", times, [0.3, 3.0] * 1000, end=FOREVER)
    spiky = MachineType("spiky", series, revocation=ConstantProbability(0.99), billing=EC2_SPOT, init=10.0)
    calm = MachineType("calm", 0.5, survival=Exponential(1000.0), billing=EC2_SPOT, init=10.0)
    workload = StudyWorkload(1, 1, seconds_per_step=20.0)
    outcome = run(
        StepCost, CloudSetup([spiky, calm], {"spiky": PricePreemptions(series)}), workload, curves=_quick_steps
    )
    assert {row.offer for row in outcome.ledger.rows} == {"spiky"}
    assert outcome.ledger.dollars <= 240.0 / HOUR * 0.3


def _quick_steps(config: ev.Config) -> Curve:
    return Curve(range(1, 101), [{"loss": config["x"]}] * 100, [20.0] * 100)
