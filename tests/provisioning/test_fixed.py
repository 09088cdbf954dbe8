"""One kind of machine for all trials."""

from __future__ import annotations

import pytest

from tests.provisioning.desk import HOUR, Desk
from tests.support.tables import START
from thriftune.errors import SettingError
from thriftune.market.lifetime import Exponential
from thriftune.market.prices import PriceSeries
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.fixed import CheapestSpot, FastestSpot, OnDemand
from thriftune.provisioning.renting_policy import PATIENCE_SECONDS
from thriftune.provisioning.workload import Workload

LIFE = Exponential(5.0)
SLOW, QUICK = MachineType("slow", 1.0), MachineType("quick", 2.5, speed=2.0)
SPOT = MachineType("spot", 0.1, survival=LIFE)


def terms(hours: float | None = None) -> Workload:
    return Workload(deadline_seconds=None if hours is None else hours * HOUR, seconds_per_step=72.0)  # 2 h in all


def test_on_demand_takes_the_fewest_dollars_a_step() -> None:
    assert Desk(OnDemand([SLOW, QUICK, SPOT], terms())).begins() == ["rent slow-1"]
    assert Desk(OnDemand([SLOW, MachineType("quick", 1.9, speed=2.0)], terms())).begins() == ["rent quick-1"]
    assert Desk(OnDemand([SLOW, MachineType("wide", 3.9, slots=4)], terms())).begins() == ["rent wide-1"]


@pytest.mark.parametrize(("hours", "kind"), [(2.1, "slow"), (1.9, "quick"), (0.5, "quick")])
def test_on_demand_takes_a_quicker_one_for_a_deadline(hours: float, kind: str) -> None:
    assert Desk(OnDemand([SLOW, QUICK], terms(hours))).begins() == [f"rent {kind}-1"]


def test_on_demand_counts_the_start_for_the_deadline() -> None:
    lazy = MachineType("lazy", 1.0, queue=200.0, init=300.0)
    assert Desk(OnDemand([lazy, QUICK], terms(2.1))).begins() == ["rent quick-1"]


def test_on_demand_gives_its_machine_to_one_trial_after_the_other_and_then_back() -> None:
    where = Desk(OnDemand([SLOW], terms()), trials=2)
    where.begins()
    assert where.comes("slow-1") == ["place 0/1 on slow-1"]
    where.report(0, 100, loss=0.1, saved=True)
    assert where.end(0) == ["create 1", "place 1/1 on slow-1"]
    where.report(1, 100, loss=0.1, saved=True)
    assert where.end(1) == ["release slow-1", "finish: all 2 trials done"]


def test_the_cheapest_spot_machine_is_that_of_the_start() -> None:
    low = PriceSeries("low", "a", [START - HOUR, START + HOUR], [0.2, 2.0], end=START + 9 * HOUR)
    kinds = [MachineType("low", low, survival=LIFE), MachineType("high", 0.3, speed=4.0, survival=LIFE), SLOW]
    where = Desk(CheapestSpot(kinds, terms()))
    assert where.begins() == ["rent low-1"]
    where.comes("low-1")
    where.later(2 * HOUR)
    assert where.is_lost("low-1") == ["rent low-2"]
    assert where.history.fleet.renting["low-2"].max_price is None  # it is never outbid


def test_the_fastest_spot_machine_is_the_cheapest_of_the_fastest() -> None:
    kinds = [
        MachineType("a", 0.1, survival=LIFE),
        MachineType("b", 0.5, speed=2.0, survival=LIFE),
        MachineType("c", 0.4, speed=2.0, survival=LIFE),
        MachineType("d", 0.4, speed=9.0),
    ]
    assert Desk(FastestSpot(kinds, terms())).begins() == ["rent c-1"]


def test_one_that_is_refused_is_asked_for_again_after_some_time() -> None:
    where = Desk(CheapestSpot([SPOT], terms()))
    where.begins()
    assert where.refuses("spot-1") == []
    assert where.conductor.wake_at(where.now) == where.now + PATIENCE_SECONDS
    assert where.later(PATIENCE_SECONDS - 1.0) == []
    assert where.later(1.0) == ["rent spot-2"]


@pytest.mark.parametrize(
    ("policy", "kinds", "message"),
    [
        (OnDemand, [SPOT], "all kinds of machines may be taken away; give one that is not"),
        (CheapestSpot, [SLOW], "no kind of machine may be taken away; give a spot machine"),
        (FastestSpot, [SLOW], "no kind of machine may be taken away; give a spot machine"),
        (OnDemand, [], "there is nothing to rent; give at least one kind"),
    ],
)
def test_what_cannot_be_is_said(policy: type[OnDemand], kinds: list[MachineType], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        policy(kinds, terms())


def test_on_demand_is_in_time_with_all_trials_that_come_after() -> None:
    kinds = [MachineType("slow", 1.0), MachineType("fast", 3.0, speed=2.0)]
    where = Desk(OnDemand(kinds, Workload(1, 4, 40.0 * HOUR, seconds_per_step=600.0)), trials=4)
    assert where.begins() == ["rent fast-1"]  # 16.7 hours each, one after the other
