"""SpotTune's policy: the fewest expected dollars a step, for an hour at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.provisioning.desk import HOUR, Desk
from tests.provisioning.studies import FOREVER, Where, by_chance, by_price, run
from tests.support.tables import START
from thriftune.errors import SettingError
from thriftune.market.billing import EC2_SPOT
from thriftune.market.lifetime import Exponential
from thriftune.market.prices import PriceSeries
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.step_cost import StepCost
from thriftune.provisioning.workload import Workload
from thriftune.replay.preemptions import PricePreemptions
from thriftune.replay.simulated_engine import Curve
from thriftune.state import events as ev

TERMS = Workload(seconds_per_step=60.0)


@dataclass
class Says:
    """A model that has one answer."""

    p: float

    def probability(self, series: Any, t: Any, max_price: Any) -> float:
        return self.p


def market(name: str, price: float, p: float, *, speed: float = 1.0, before: float | None = None) -> MachineType:
    """`before`: its price until half an hour ago."""
    times = [START - 9 * HOUR, START - 0.5 * HOUR]
    series = PriceSeries(name, "a", times, [before or price, price], end=START + 99 * HOUR)
    return MachineType(name, series, speed=speed, revocation=Says(p), billing=EC2_SPOT)


@pytest.mark.parametrize(
    ("kinds", "chosen"),
    [
        ([market("a", 1.0, 0.0), market("b", 1.5, 0.5)], "b"),  # 1 against 0.75
        ([market("a", 1.0, 0.0), market("b", 1.5, 0.3)], "a"),  # 1 against 1.05
        ([market("a", 1.0, 0.4), market("b", 1.5, 0.4, speed=2.0)], "b"),  # 0.6 against 0.45
        ([market("a", 1.0, 0.0, before=2.0), market("b", 1.4, 0.0)], "b"),  # the last hour's mean: 1.5 against 1.4
        (
            [market("a", 1.0, 0.5), MachineType("b", 0.9, survival=Exponential(1.0))],
            "b",
        ),  # 0.5 against 0.9 exp(-1)
        ([market("a", 1.0, 0.0), MachineType("b", 0.3)], "a"),  # of those that may be taken away
    ],
)
def test_it_takes_the_least_of_equation_2(kinds: list[MachineType], chosen: str) -> None:
    assert Desk(StepCost(kinds, TERMS)).begins() == [f"rent {chosen}-1"]


def test_slots_share_what_a_machine_costs() -> None:
    wide = MachineType("wide", 1.8, slots=2, survival=Exponential(1.0))
    assert Desk(StepCost([MachineType("one", 1.0, survival=Exponential(1.0)), wide], TERMS)).begins() == [
        "rent wide-1"
    ]


def test_the_maximum_price_is_a_random_bit_above_the_price_and_the_same_again() -> None:
    def asked(seed: int) -> float | None:
        where = Desk(StepCost([market("a", 1.0, 0.1)], Workload(seed=seed)))
        where.begins()
        return where.history.fleet.renting["a-1"].max_price

    limits = [asked(seed) or 0.0 for seed in range(30)]
    assert all(1.0 < limit <= 1.2 for limit in limits)
    assert len(set(limits)) == 30
    assert asked(3) == limits[3]


def test_where_a_price_takes_nothing_away_there_is_no_maximum() -> None:
    where = Desk(StepCost([MachineType("b", 0.9, survival=Exponential(1.0))], TERMS))
    where.begins()
    assert where.history.fleet.renting["b-1"].max_price is None


def test_after_an_hour_the_trial_moves_on_and_the_machine_goes_back() -> None:
    where = Desk(StepCost([market("a", 1.0, 0.1)], TERMS))
    where.begins()
    assert where.comes("a-1") == ["place 0/1 on a-1"]
    assert where.works(0, 1, 5, 700.0) == []
    assert where.later(99.0) == []
    assert where.later(1.0) == ["move 0/1"]
    where.report(0, 6, loss=0.4, saved=True)
    assert where.end(0, cut=True) == ["release a-1", "rent a-2"]
    where.goes("a-1")
    assert where.comes("a-2") == ["place 0/2 on a-2 from 6"]


def test_a_trial_that_ends_late_leaves_a_machine_that_nobody_takes() -> None:
    where = Desk(StepCost([market("a", 1.0, 0.1)], TERMS))
    where.begins()
    where.comes("a-1")
    where.later(HOUR)
    where.report(0, 100, loss=0.4, saved=True)
    assert where.end(0) == ["create 1", "rent a-2", "release a-1"]


@pytest.mark.parametrize("cloud", [by_price, by_chance])
def test_no_machine_is_kept_for_longer_than_an_hour_and_a_step(cloud: Any) -> None:
    ran = run(StepCost, cloud(2), Workload(2, 4, seconds_per_step=300.0, save_seconds=10.0))
    rows = ran.ledger.rows
    assert any(row.seconds >= HOUR for row in rows)
    assert max(row.seconds for row in rows) <= HOUR + 550.0 + 10.0
    assert ran.of(ev.Move)


def test_a_pace_that_was_seen_counts() -> None:
    kinds = [market("a", 1.0, 0.0), market("b", 1.9, 0.0, speed=2.0)]
    where = Desk(StepCost(kinds, TERMS))
    assert where.begins() == ["rent b-1"]
    where.comes("b-1")
    where.works(0, 1, 5, 60.0)  # not twice as fast as on a
    assert where.is_lost("b-1") == ["rent b-2"]  # nothing is known of a but what b tells
    where.comes("b-2")
    where.works(0, 6, 9, 60.0)
    assert where.wish() == "b"


def test_it_needs_a_spot_machine() -> None:
    with pytest.raises(SettingError, match="step_cost: no kind of machine may be taken away"):
        StepCost([MachineType("a", 1.0)], TERMS)


@pytest.mark.parametrize("seconds", [30.0, 200.0])
def test_a_machine_that_was_preempted_within_minutes_is_requested_again_in_the_next_round(seconds: float) -> None:
    where = Desk(StepCost([market("a", 1.0, 0.9), market("b", 1.0, 0.0)], TERMS))
    assert where.begins() == ["rent a-1"]
    where.comes("a-1")
    where.passes(seconds)
    assert where.is_lost("a-1") == []
    assert where.passes(10.0) == ["rent a-2"]


def test_a_machine_that_the_provider_refused_is_not_requested_for_five_minutes() -> None:
    where = Desk(StepCost([market("a", 1.0, 0.9), market("b", 1.0, 0.0)], TERMS))
    assert where.begins() == ["rent a-1"]
    assert where.refuses("a-1") == ["rent b-2"]
    assert where.wish() == "b"
    where.passes(300.0)
    assert where.wish() == "a"


def test_machines_that_are_preempted_within_minutes_are_not_paid() -> None:
    """In a market with a spike every four minutes, all machines of Algorithm 1 but the last are refunded."""
    times = [-9 * HOUR + 240.0 * i + spike for i in range(1000) for spike in (0.0, 235.0)]
    series = PriceSeries("spiky", "a", times, [0.3, 3.0] * 1000, end=FOREVER)
    spiky = MachineType("spiky", series, revocation=Says(0.99), billing=EC2_SPOT, init=10.0)
    calm = MachineType("calm", 0.5, survival=Exponential(1000.0), billing=EC2_SPOT, init=10.0)
    terms = Workload(1, 1, seconds_per_step=20.0)
    ran = run(StepCost, Where([spiky, calm], {"spiky": PricePreemptions(series)}), terms, curves=_quick_steps)
    assert {row.offer for row in ran.ledger.rows} == {"spiky"}
    assert ran.ledger.dollars <= 240.0 / HOUR * 0.3


def _quick_steps(config: ev.Config) -> Curve:
    return Curve(range(1, 101), [{"loss": config["x"]}] * 100, [20.0] * 100)
