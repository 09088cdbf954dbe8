"""SciSpot's policies: the machine at hand or a new one, by its age; spares for an hour."""

from __future__ import annotations

import pytest

from tests.market.known_lifetimes import Bathtub
from tests.provisioning.desk import HOUR, Desk
from tests.provisioning.studies import Where, a_spec, run
from thriftune.errors import SettingError
from thriftune.market.lifetime import Exponential
from thriftune.market.reuse import reuse
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.reuse import Reuse
from thriftune.provisioning.workload import Workload
from thriftune.replay.preemptions import LifetimePreemptions
from thriftune.replay.simulated_engine import Curve
from thriftune.state import events as ev
from thriftune.state.fleet import Machine

LIFE = Bathtub()


def desk(*kinds: MachineType, step: float = 216.0, at_a_time: int = 1, trials: int = 4) -> Desk:
    """Trials of 6 hours."""
    kinds = kinds or (MachineType("a", 0.3, survival=LIFE, init=60.0),)
    return Desk(Reuse(kinds, Workload(at_a_time, trials, seconds_per_step=step)), trials=trials)


@pytest.mark.parametrize("step", [36.0, 216.0, 432.0])
def test_a_machine_is_taken_by_its_age(step: float) -> None:
    where = desk(step=step)
    trial = where.one()
    policy = where.policy
    assert isinstance(policy, Reuse)
    told = []
    for age in (0.5, 3.0, 8.0, 13.0, 17.5, 21.0, 23.5):
        machine = Machine("m", "a", 0.3, where.now - age * HOUR, slots=1)
        taken = policy.takes(trial, machine, where.history, where.now)
        assert taken == reuse(LIFE, step / 36.0, age, restart_hours=60.0 / HOUR)
        told.append(taken)
    assert told == sorted(told, reverse=True)  # bathtubs: young ones are, old ones are not
    assert told[0]
    assert not told[-1]


def test_the_next_trial_is_on_the_same_machine_while_that_is_young() -> None:
    where = desk()
    assert where.begins() == ["rent a-1"]
    where.comes("a-1")
    where.later(6 * HOUR)
    where.report(0, 100, loss=0.1, saved=True)
    assert where.end(0) == ["create 1", "place 1/1 on a-1"]


def test_an_old_one_is_a_spare_for_an_hour() -> None:
    where = desk()
    where.begins()
    where.comes("a-1")
    where.later(20 * HOUR)
    where.report(0, 100, loss=0.1, saved=True)
    assert where.end(0) == ["create 1", "rent a-2"]
    assert where.comes("a-2") == ["place 1/1 on a-2"]
    assert where.passes(HOUR - 1.0) == []
    assert where.passes(600.0) == ["release a-1"]


def test_a_spare_is_not_kept_when_there_is_nothing_more_to_come() -> None:
    where = desk(trials=2, at_a_time=2)
    where.begins()
    where.comes("a-1")
    where.comes("a-2")
    where.later(6 * HOUR)
    where.report(0, 100, loss=0.1, saved=True)
    assert where.end(0) == ["release a-1"]


def test_a_machine_that_is_lost_is_replaced() -> None:
    where = desk()
    where.begins()
    where.comes("a-1")
    where.works(0, 1, 3, 216.0)
    assert where.is_lost("a-1") == ["rent a-2"]
    assert where.comes("a-2") == ["place 0/2 on a-2 from 3"]


@pytest.mark.parametrize("at_a_time", [1, 3])
def test_each_kind_is_tried(at_a_time: int) -> None:
    kinds = [MachineType(name, 0.3, survival=Exponential(50.0), init=60.0) for name in "abc"]
    ran = run(Reuse, Where(kinds), Workload(at_a_time, 6, seconds_per_step=300.0))
    assert set(ran.offers()) == set("abc")


@pytest.mark.parametrize("hours", [9, 23, 30])
def test_a_trial_may_take_longer_than_machines_live(hours: int) -> None:
    long = Curve(range(1, hours + 1), [{"loss": 1.0}] * hours, [HOUR] * hours)
    where = Where(
        [MachineType("a", 0.3, survival=LIFE, queue=60.0, init=60.0)], {"a": LifetimePreemptions(LIFE, 1)}
    )
    ran = run(Reuse, where, Workload(1, 2, seconds_per_step=HOUR), a_spec(2, steps=hours), curves=lambda _: long)
    assert len(ran.of(ev.Rent)) < 20


def test_a_machine_may_be_older_than_the_table() -> None:
    long = Curve(range(1, 61), [{"loss": 1.0}] * 60, [HOUR] * 60)
    where = Where([MachineType("a", 0.3, survival=Exponential(4000.0), init=60.0)])
    ran = run(Reuse, where, Workload(1, 2, seconds_per_step=HOUR), a_spec(2, steps=60), curves=lambda _: long)
    assert len(ran.of(ev.Rent)) == 1


def test_a_kind_that_was_not_tried_is_tried_first() -> None:
    dear, cheap = MachineType("dear", 3.0, survival=LIFE), MachineType("cheap", 0.1, survival=LIFE)
    where = desk(dear, cheap)
    assert where.begins() == ["rent dear-1"]
    where.comes("dear-1")
    assert where.is_lost("dear-1") == ["rent cheap-2"]


@pytest.mark.parametrize(
    ("kinds", "chosen"),
    [
        ([MachineType("a", 0.3, survival=LIFE), MachineType("b", 0.29, survival=LIFE)], "b"),
        ([MachineType("a", 0.3, survival=LIFE), MachineType("b", 0.5, 2, survival=LIFE)], "b"),
        (
            [MachineType("a", 0.3, survival=LIFE), MachineType("b", 0.5, speed=1.9, survival=LIFE)],
            "b",
        ),  # 3 h are lost less often
        # 4 and 6 hours of life for 6 of work: (e^1.5 - 1) 4 = 13.9 and (e - 1) 6 = 10.3 hours, expected
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
def test_of_those_that_were_tried_that_with_the_fewest_expected_dollars(
    kinds: list[MachineType], chosen: str
) -> None:
    where = desk(*kinds)
    where.begins()
    where.comes("a-1")
    where.now += 0.5 * HOUR
    where.is_lost("a-1")
    where.comes("b-2")
    where.now += 0.5 * HOUR
    assert where.is_lost("b-2") == [f"rent {chosen}-3"]


def test_where_there_is_none_of_one_kind_another_is_taken() -> None:
    where = desk(MachineType("a", 0.3, survival=LIFE), MachineType("b", 0.9, survival=LIFE))
    where.begins()
    assert where.refuses("a-1") == ["rent b-2"]
    assert where.refuses("b-2") == []
    assert where.later(300.0) == ["rent a-3"]


def test_it_goes_by_lives() -> None:
    with pytest.raises(SettingError, match="reuse: goes by how long machines live; give a kind with survival="):
        Reuse([MachineType("a", 1.0)], Workload())


def test_after_it_was_tried_a_dear_kind_is_used_no_more() -> None:
    life = Exponential(200.0)
    kinds = [
        MachineType(name, price, survival=life, queue=30.0, init=30.0)
        for name, price in (("cheap", 0.1), ("dear", 10.0))
    ]
    flat = Curve(range(1, 11), [{"loss": 1.0}] * 10, [60.0] * 10)
    terms = Workload(2, 60, seconds_per_step=60.0, restart_seconds=5.0)
    ran = run(Reuse, Where(kinds, {}), terms, a_spec(60, steps=10), curves=lambda _: flat)
    assert sum(entry.machine.startswith("dear") for entry in ran.of(ev.Place)) == 1


def test_a_spare_goes_after_an_hour_however_many_trials_others_do_meanwhile() -> None:
    policy = Reuse([MachineType("a", 1.0, survival=Exponential(200.0))], Workload(2, 400, seconds_per_step=40.0))
    where = Desk(policy, trials=400, max_steps=1)
    where.begins()
    where.comes("a-1")
    spare = Machine("a-9", "a", 1.0, where.now, slots=1)
    assert policy.keeps(spare, where.history, where.now + 0.9 * HOUR)
    assert not policy.keeps(spare, where.history, where.now + 1.1 * HOUR)
