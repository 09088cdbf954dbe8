"""Tests of the policies that use one kind of machine for all trials."""

from __future__ import annotations

import pytest

from tests.provisioning.renting_study import HOUR, RentingStudy
from tests.support.tables import START
from thriftune.errors import SettingError
from thriftune.market.lifetime import Exponential
from thriftune.market.price_history import PriceSeries
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.baselines import CheapestSpot, FastestSpot, OnDemand
from thriftune.provisioning.renting_policy import RETRY_SECONDS
from thriftune.provisioning.workload import StudyWorkload

LIFE = Exponential(5.0)
SLOW, QUICK = MachineType("slow", 1.0), MachineType("quick", 2.5, speed=2.0)
SPOT = MachineType("spot", 0.1, survival=LIFE)


def terms(hours: float | None = None) -> StudyWorkload:
    return StudyWorkload(
        deadline_seconds=None if hours is None else hours * HOUR, seconds_per_step=72.0
    )  # 2 h per trial


def test_on_demand_rents_the_fewest_dollars_per_step() -> None:
    assert RentingStudy(OnDemand([SLOW, QUICK, SPOT], terms())).begin() == ["rent slow-1"]
    assert RentingStudy(OnDemand([SLOW, MachineType("quick", 1.9, speed=2.0)], terms())).begin() == [
        "rent quick-1"
    ]
    assert RentingStudy(OnDemand([SLOW, MachineType("wide", 3.9, slots=4)], terms())).begin() == ["rent wide-1"]


@pytest.mark.parametrize(("hours", "machine_type"), [(2.1, "slow"), (1.9, "quick"), (0.5, "quick")])
def test_on_demand_rents_a_faster_type_for_a_deadline(hours: float, machine_type: str) -> None:
    assert RentingStudy(OnDemand([SLOW, QUICK], terms(hours))).begin() == [f"rent {machine_type}-1"]


def test_on_demand_includes_the_start_time() -> None:
    lazy = MachineType("lazy", 1.0, queue=200.0, init=300.0)
    assert RentingStudy(OnDemand([lazy, QUICK], terms(2.1))).begin() == ["rent quick-1"]


def test_on_demand_reuses_its_machine_and_then_releases_it() -> None:
    study = RentingStudy(OnDemand([SLOW], terms()), trials=2)
    study.begin()
    assert study.machine_arrives("slow-1") == ["place 0/1 on slow-1"]
    study.report(0, 100, loss=0.1, saved=True)
    assert study.end(0) == ["create 1", "place 1/1 on slow-1"]
    study.report(1, 100, loss=0.1, saved=True)
    assert study.end(1) == ["release slow-1", "finish: all 2 trials done"]


def test_cheapest_spot_uses_the_prices_at_the_start() -> None:
    low = PriceSeries("low", "a", [START - HOUR, START + HOUR], [0.2, 2.0], end=START + 9 * HOUR)
    machine_types = [
        MachineType("low", low, survival=LIFE),
        MachineType("high", 0.3, speed=4.0, survival=LIFE),
        SLOW,
    ]
    study = RentingStudy(CheapestSpot(machine_types, terms()))
    assert study.begin() == ["rent low-1"]
    study.machine_arrives("low-1")
    study.later(2 * HOUR)
    assert study.machine_preempted("low-1") == ["rent low-2"]
    assert study.history.fleet.renting["low-2"].max_price is None  # no maximum price


def test_fastest_spot_rents_the_cheapest_of_the_fastest() -> None:
    machine_types = [
        MachineType("a", 0.1, survival=LIFE),
        MachineType("b", 0.5, speed=2.0, survival=LIFE),
        MachineType("c", 0.4, speed=2.0, survival=LIFE),
        MachineType("d", 0.4, speed=9.0),
    ]
    assert RentingStudy(FastestSpot(machine_types, terms())).begin() == ["rent c-1"]


def test_a_refused_machine_is_requested_again_after_a_while() -> None:
    study = RentingStudy(CheapestSpot([SPOT], terms()))
    study.begin()
    assert study.refuse_machines("spot-1") == []
    assert study.conductor.wake_at(study.now) == study.now + RETRY_SECONDS
    assert study.later(RETRY_SECONDS - 1.0) == []
    assert study.later(1.0) == ["rent spot-2"]


@pytest.mark.parametrize(
    ("policy", "machine_types", "message"),
    [
        (OnDemand, [SPOT], "all machine types can be preempted; give an on-demand type"),
        (CheapestSpot, [SLOW], "cheapest_spot: all machine types are on-demand; give a spot machine"),
        (FastestSpot, [SLOW], "fastest_spot: all machine types are on-demand; give a spot machine"),
        (OnDemand, [], "machine types: none are given; give at least one to rent"),
    ],
)
def test_invalid_values_are_rejected(
    policy: type[OnDemand], machine_types: list[MachineType], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        policy(machine_types, terms())


def test_on_demand_meets_the_deadline_with_all_trials_to_come() -> None:
    machine_types = [MachineType("slow", 1.0), MachineType("fast", 3.0, speed=2.0)]
    study = RentingStudy(
        OnDemand(machine_types, StudyWorkload(1, 4, 40.0 * HOUR, seconds_per_step=600.0)), trials=4
    )
    assert study.begin() == ["rent fast-1"]  # 16.7 hours per trial, one trial after the other
