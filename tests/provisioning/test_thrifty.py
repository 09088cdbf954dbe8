"""The default policy: the cheapest useful step, and never late."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.market.known_lifetimes import Uniform
from tests.provisioning.desk import HOUR, Desk
from tests.provisioning.studies import STEPS, Where, a_spec, at_once, by_chance, by_price, by_room, run
from tests.provisioning.test_step_cost import Says
from tests.support.tables import START
from thriftune.market.billing import EC2_SPOT
from thriftune.market.lifetime import Exponential
from thriftune.market.prices import PriceSeries
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.renting_policy import PATIENCE_SECONDS
from thriftune.provisioning.thrifty import LOOK_SECONDS, Thrifty
from thriftune.provisioning.workload import Workload
from thriftune.replay.preemptions import LifetimePreemptions
from thriftune.replay.simulated_engine import Curve
from thriftune.state import events as ev
from thriftune.state.trial_record import State

SAFE = Exponential(1e9)
STEP = 720.0  # a fifth of an hour


def spot(name: str, price: float, hours: float = 1e9, **settings: object) -> MachineType:
    return MachineType(name, price, survival=Exponential(hours), **settings)  # type: ignore[arg-type]


def desk(*kinds: MachineType, hours: float | None = None, **settings: object) -> Desk:
    """Trials of 20 hours, of steps of 720 seconds."""
    terms = Workload(deadline_seconds=None if hours is None else hours * HOUR, seconds_per_step=STEP)
    return Desk(Thrifty(kinds, replace(terms, **settings)), trials=settings.get("trials", 4))  # type: ignore[arg-type]


def steady(name: str, changes: dict[float, float]) -> PriceSeries:
    """A price from some hours after the start on."""
    times = [START + hour * HOUR for hour in changes]
    return PriceSeries(name, "a", times, list(changes.values()), end=START + 999 * HOUR)


# --- the cheapest useful step


@pytest.mark.parametrize(("other", "chosen"), [(1.19, "safe"), (1.21, "risky")])
def test_what_is_lost_and_started_again_counts(other: float, chosen: str) -> None:
    """A loss an hour, each of which costs a start of 0.1 h and half a step of 0.2 h: 1.2 dollars."""
    where = desk(spot("risky", 1.0, 1.0, init=360.0), spot("safe", other))
    assert where.begins() == [f"rent {chosen}-1"]


@pytest.mark.parametrize(("other", "chosen"), [(1.09, "safe"), (1.11, "risky")])
def test_with_a_notice_that_is_long_enough_nothing_is_done_again(other: float, chosen: str) -> None:
    where = desk(spot("risky", 1.0, 1.0, init=360.0, notice_seconds=800.0), spot("safe", other))
    assert where.begins() == [f"rent {chosen}-1"]


@pytest.mark.parametrize(("other", "chosen"), [(1.09, "safe"), (1.11, "risky")])
def test_to_wait_for_a_machine_costs_no_dollars(other: float, chosen: str) -> None:
    where = desk(spot("risky", 1.0, 1.0, queue=360.0), spot("safe", other))
    assert where.begins() == [f"rent {chosen}-1"]


@pytest.mark.parametrize(("other", "chosen"), [(0.57, "safe"), (0.60, "risky")])
def test_what_is_let_off_counts(other: float, chosen: str) -> None:
    """A machine a turn of an hour; with p = 1 - 1/e lost: (1 - p) / p = 0.582 dollars."""
    risky = spot("risky", 1.0, 1.0, billing=EC2_SPOT, notice_seconds=800.0)
    assert desk(risky, spot("safe", other)).begins() == [f"rent {chosen}-1"]


@pytest.mark.parametrize(("price", "chosen"), [(1.9, "quick"), (2.1, "slow")])
def test_dollars_are_by_the_step(price: float, chosen: str) -> None:
    assert desk(spot("slow", 1.0), spot("quick", price, speed=2.0)).begins() == [f"rent {chosen}-1"]
    assert desk(spot("slow", 1.0), spot("quick", price, slots=2)).begins() == [f"rent {chosen}-1"]


def test_where_losses_are_let_off_the_maximum_price_is_near_the_price() -> None:
    class Margin:
        """The nearer, the more often it is passed."""

        def probability(self, series: PriceSeries, t: float, max_price: float) -> float:
            return 0.9 * math.exp(-10.0 * (max_price / series.price_at(t) - 1.0))

    def asked(free: bool) -> float | None:
        kind = MachineType(
            "m",
            steady("m", {-9.0: 1.0}),
            revocation=Margin(),
            notice_seconds=800.0,
            on_demand_price=3.0,
            init=360.0,
        )
        where = desk(replace(kind, billing=EC2_SPOT) if free else kind)
        where.begins()
        return where.history.fleet.renting["m-1"].max_price

    assert asked(free=True) == pytest.approx(1.001)
    assert asked(free=False) == pytest.approx(3.0)


def test_machines_that_are_rented_together_are_of_several_kinds() -> None:
    where = Desk(Thrifty([spot(name, 1.0) for name in "abc"], Workload(3, 3, seconds_per_step=STEP)), trials=3)
    assert where.begins() == ["rent a-1", "rent b-2", "rent c-3"]


def test_of_those_that_cost_nearly_as_much_the_one_with_fewest_machines() -> None:
    where = desk(spot("a", 1.0), spot("b", 1.02), spot("c", 1.1), trials=3)
    assert where.begins() == ["rent a-1"]
    where.comes("a-1")
    assert where.wish() == "b"
    where.comes("b-2")
    assert where.wish() == "a"
    where.comes("a-3")
    assert where.wish() == "b"


def test_where_there_was_none_just_now_there_is_none() -> None:
    where = desk(spot("a", 1.0), spot("b", 2.0))
    assert where.begins() == ["rent a-1"]
    assert where.refuses("a-1") == ["rent b-2"]
    where.now += PATIENCE_SECONDS
    assert where.wish() == "a"


# --- moving


def moved(price_after: float, steps: int = 100, step: float = STEP) -> list[str]:
    """What a trial does whose machine's price changes after an hour and a half, with another kind at 0.6."""
    mine = MachineType("mine", steady("mine", {-9.0: 0.5, 1.5: price_after}), survival=SAFE, init=120.0)
    where = desk(mine, spot("other", 0.6, init=120.0))
    where.spec = replace(where.spec, max_steps=steps)
    where.kill_driver()
    where.begins()
    where.comes("mine-1")
    return where.works(0, 1, 15, step)


def test_it_moves_when_that_pays() -> None:
    assert moved(2.0) == ["rent other-2"]


def test_it_does_not_move_for_a_little() -> None:
    assert moved(0.61) == []


def test_it_does_not_move_for_the_last_step() -> None:
    assert moved(0.75, steps=100) == ["rent other-2"]
    assert moved(0.75, steps=15) == []


def test_it_does_not_move_when_all_is_as_it_was() -> None:
    assert moved(0.5) == []


def test_it_stays_until_the_other_machine_is_there_and_its_own_goes_back() -> None:
    mine = MachineType("mine", steady("mine", {-9.0: 0.5, 1.0: 3.0}), survival=SAFE)
    where = desk(mine, spot("other", 0.6))
    where.begins()
    where.comes("mine-1")
    assert where.works(0, 1, 8, STEP) == ["rent other-2"]
    assert where.comes("other-2") == ["move 0/1"]
    assert where.works(0, 9, 9, STEP) == []
    assert where.end(0, cut=True) == ["release mine-1", "place 0/2 on other-2 from 9"]


def test_where_losses_are_let_off_machines_are_used_in_turns() -> None:
    life, seconds = Exponential(1.0), 100.0
    kind = MachineType("free", 1.0, survival=life, billing=EC2_SPOT, notice_seconds=120.0, init=30.0)
    flat = Curve(range(1, 201), [{"loss": 1.0}] * 200, [seconds] * 200)
    dollars, hours = 0.0, 0.0
    for seed in range(8):
        where = Where([kind], {"free": LifetimePreemptions(life, seed)}, seed)
        ran = run(
            Thrifty,
            where,
            Workload(1, 1, seconds_per_step=seconds),
            a_spec(1, steps=200),
            curves=lambda _: flat,
        )
        assert max(row.seconds for row in ran.ledger.rows) <= HOUR + seconds
        assert ran.of(ev.Move)
        dollars, hours = dollars + ran.ledger.dollars, hours + 200 * seconds / HOUR
    assert 0.45 < dollars / hours < 0.75  # (1 - p) / p = 0.58, and its starts


def test_where_nothing_is_let_off_a_machine_is_kept() -> None:
    flat = Curve(range(1, 201), [{"loss": 1.0}] * 200, [100.0] * 200)
    where = Where([spot("a", 1.0, init=30.0), spot("b", 1.0, init=30.0)])
    ran = run(Thrifty, where, Workload(1, 1, seconds_per_step=100.0), a_spec(1, steps=200), curves=lambda _: flat)
    assert len(ran.of(ev.Rent)) == 1


# --- deadlines

STAYS = MachineType("stays", 2.0, init=60.0)


def test_with_time_to_spare_it_is_on_spot_machines() -> None:
    assert desk(spot("spot", 1.0), STAYS, hours=40.0).begins() == ["rent spot-1"]


def test_spot_machines_that_cost_more_are_not_taken() -> None:
    where = desk(spot("spot", 2.5), STAYS, hours=40.0)
    where.begins()
    where.now += 14.8 * HOUR
    assert where.wish() == "stays"


def test_when_it_must_it_takes_one_that_stays() -> None:
    where = desk(spot("spot", 1.0), STAYS, hours=20.5)
    assert where.begins() == ["rent stays-1"]


def test_when_the_time_comes_it_moves_to_one_that_stays() -> None:
    """27 hours for 20, and a quarter more as no step was timed: after 1.6 h without a step it is time to."""
    where = desk(spot("spot", 1.0), STAYS, hours=27.0)
    where.begins()
    where.comes("spot-1")
    assert where.passes(1.2 * HOUR) == []
    assert where.passes(HOUR) == ["rent stays-2"]
    assert where.comes("stays-2") == ["move 0/1"]
    assert where.end(0, cut=True) == ["release spot-1", "place 0/2 on stays-2"]


@pytest.mark.parametrize(("init", "told"), [(0.0, ["rent stays-2"]), (0.9 * HOUR, [])])
def test_what_is_done_before_it_could_move_stays(init: float, told: list[str]) -> None:
    """With five steps to go, an hour of work, it hangs for so long that there is hardly more left."""
    where = desk(spot("spot", 1.0), MachineType("stays", 2.0, init=init), hours=27.0)
    where.begins()
    where.comes("spot-1")
    assert where.works(0, 1, 95, STEP) == []
    assert where.passes(6.6 * HOUR) == told


def test_where_it_finds_none_it_waits_if_there_will_be_some_in_time() -> None:
    where = desk(spot("spot", 1.0), STAYS, hours=40.0)
    where.begins()
    assert where.refuses("spot-1") == []
    assert where.passes(PATIENCE_SECONDS) == ["rent spot-2"]


def test_where_it_finds_none_and_there_is_no_time_to_spare_it_does_not_wait() -> None:
    where = desk(spot("spot", 1.0), STAYS, hours=27.0)
    where.begins()
    where.now += 1.7 * HOUR
    assert where.refuses("spot-1") == ["rent stays-2"]


def test_no_trial_is_lost_to_machines_that_live_no_longer_than_a_step() -> None:
    life, seconds = Exponential(0.5), 1500.0
    flat = Curve(range(1, STEPS + 1), [{"loss": 1.0}] * STEPS, [seconds] * STEPS)
    kinds = [
        MachineType("k", 0.477, survival=life, billing=EC2_SPOT, init=50.0),
        MachineType("stays", 1.0, init=30.0),
    ]
    terms = Workload(2, 4, 100_000.0, seconds_per_step=seconds, save_seconds=60.0)
    for seed in range(4):
        ran = run(
            Thrifty, Where(kinds, {"k": LifetimePreemptions(life, seed)}, seed), terms, curves=lambda _: flat
        )
        assert ran.history.counts[State.COMPLETED] == 4


def test_machines_that_live_for_minutes_are_not_rented_in_vain() -> None:
    life = Exponential(0.1)
    flat = Curve(range(1, STEPS + 1), [{"loss": 1.0}] * STEPS, [1500.0] * STEPS)
    short = MachineType(
        "short", 0.675, speed=1.3, survival=life, billing=EC2_SPOT, notice_seconds=120.0, queue=200.0
    )
    terms = Workload(1, 1, 41_200.0, seconds_per_step=1500.0, restart_seconds=20.0, save_seconds=10.0)
    where = Where(
        [short, MachineType("stays", 1.0, queue=200.0, init=60.0)], {"short": LifetimePreemptions(life, 1)}
    )
    ran = run(Thrifty, where, terms, curves=lambda _: flat)
    came = {entry.machine for entry in ran.of(ev.MachineReady)}
    assert len(came - {entry.machine for entry in ran.of(ev.Place)}) <= 3
    assert ran.now <= 41_200.0


def test_a_machine_that_comes_for_another_is_not_counted_for_a_trial_that_does_not_take_it() -> None:
    terms = Workload(2, 2, 30.0 * HOUR, seconds_per_step=STEP)
    where = Desk(Thrifty([spot("spot", 1.0, 50.0), MachineType("stays", 2.0)], terms), trials=2)
    where.begins()
    where.comes("spot-1")
    where.comes("spot-2")
    where.now += 600.0
    where.report(0, 90, loss=0.1, saved=True)
    assert where.is_lost("spot-2") == ["rent spot-3"]  # trial 1's, with all its 20 hours to do
    assert where.is_lost("spot-1") == ["rent spot-4"]
    where.now += 4.7 * HOUR
    assert where.refuses("spot-3") == ["rent stays-5"]


def test_of_those_that_stay_the_cheapest_that_is_in_time() -> None:
    quick = MachineType("quick", 5.0, speed=2.0)
    dear = spot("dear", 9.0)
    assert desk(STAYS, dear, hours=21.0).begins() == ["rent stays-1"]
    assert desk(STAYS, quick, dear, hours=12.7).begins() == ["rent quick-1"]
    assert desk(STAYS, quick, dear, hours=5.0).begins() == ["rent quick-1"]  # too late anyway


@pytest.mark.parametrize(("hours", "chosen"), [(40.0, "slow"), (16.0, "quick")])
def test_where_the_cheap_one_is_too_slow_the_quick_one_of_two_comes_first(hours: float, chosen: str) -> None:
    kinds = spot("slow", 0.2), spot("quick", 0.6, speed=2.0), MachineType("stays", 4.0, speed=2.0)
    assert desk(*kinds, hours=hours).begins() == [f"rent {chosen}-1"]


def test_a_slow_spot_machine_comes_before_a_quick_one_that_stays() -> None:
    kinds = spot("slow", 0.2), MachineType("stays", 4.0, speed=2.0)
    assert desk(*kinds, hours=16.0).begins() == ["rent slow-1"]


def test_trials_that_are_yet_to_come_count() -> None:
    assert desk(spot("spot", 1.0), STAYS, hours=32.0, trials=1).begins() == ["rent spot-1"]
    assert desk(spot("spot", 1.0), STAYS, hours=32.0, trials=2).begins() == ["rent stays-1"]


def test_it_looks_often() -> None:
    where = desk(spot("spot", 1.0), STAYS, hours=40.0)
    where.begins()
    where.comes("spot-1")
    where.passes(PATIENCE_SECONDS)
    assert where.conductor.wake_at(where.now) == where.now + LOOK_SECONDS


@pytest.mark.parametrize("cloud", [by_price, by_chance, by_room, at_once])
@pytest.mark.parametrize("spare", [1.1, 1.5, 2.5])
def test_it_is_never_late(cloud: Callable[[int], Where], spare: float) -> None:
    flat = Curve(range(1, STEPS + 1), [{"loss": 1.0}] * STEPS, [300.0] * STEPS)
    late = []
    for seed in range(12):
        rng = np.random.default_rng((seed, 3))
        at_a_time = int(rng.integers(1, 4))
        trials = int(rng.integers(1, 8))
        rounds = math.ceil(trials / at_a_time)
        deadline = rounds * (STEPS * 300.0 * spare + 1600.0)
        terms = Workload(
            at_a_time, trials, deadline, seconds_per_step=300.0, restart_seconds=20.0, save_seconds=10.0
        )
        ran = run(Thrifty, cloud(seed), terms, a_spec(trials), curves=lambda _: flat)
        late += [seed] if ran.history.driven_seconds(ran.now) > deadline else []
    assert late == []


def test_a_trial_slower_than_thought_does_not_move_to_a_like_machine() -> None:
    where = Where([spot("a", 1.0, 5.0, init=30.0), spot("b", 1.0, 5.0, init=30.0)])
    flat = Curve(range(1, STEPS + 1), [{"loss": 1.0}] * STEPS, [400.0] * STEPS)
    ran = run(Thrifty, where, Workload(1, 1, seconds_per_step=300.0), curves=lambda _: flat)
    assert ran.of(ev.Move) == []


def test_a_trial_is_looked_at_however_much_happens_beside_it() -> None:
    """Ten times the price from an hour on; a trial beside it ends every 500 seconds."""
    price = PriceSeries("p", "a", [-8.0 * HOUR, HOUR], [0.3, 3.0], end=1e7)
    kinds = [MachineType("p", price, survival=SAFE, queue=10.0, init=10.0), spot("q", 0.6, queue=10.0, init=10.0)]
    long = Curve(range(1, 101), [{"loss": 1.0}] * 100, [300.0] * 100)
    curves = iter([long] + [Curve([100], [{"loss": 1.0}], [500.0])] * 50)
    terms = Workload(2, 51, seconds_per_step=300.0)
    ran = run(Thrifty, Where(kinds), terms, a_spec(51, steps=100), curves=lambda _: next(curves))
    assert min(move.at for move in ran.of(ev.Move) if move.trial == 0) < 2.0 * HOUR


def test_spot_that_costs_more_a_step_than_one_that_stays_is_not_taken_without_a_deadline_either() -> None:
    assert desk(spot("risky", 0.9, 0.3, init=360.0), MachineType("stays", 1.0)).begins() == ["rent stays-1"]


def test_a_price_that_moves_is_met_with_a_maximum_that_is_high_enough() -> None:
    kind = MachineType("m", steady("m", {-9.0: 1.0}), revocation=Says(0.1), on_demand_price=1.5)
    where = desk(kind)
    where.begins()
    assert where.history.fleet.renting["m-1"].max_price == 2.0  # at least twice the price


def test_with_a_deadline_and_nothing_that_stays_it_does_what_it_can() -> None:
    where = desk(spot("a", 1.0, 5.0), spot("b", 1.1, 5.0), hours=21.0)
    where.begins()
    where.comes("a-1")
    assert where.works(0, 1, 5, STEP) == []


def test_a_step_that_no_spot_machine_outlives_is_done_on_one_that_stays() -> None:
    short = MachineType("short", 0.1, survival=Uniform(24.0))
    for deadline in (None, 5000.0):
        where = desk(short, STAYS, hours=deadline, seconds_per_step=30.0 * HOUR)
        assert where.begins() == ["rent stays-1"]


def test_a_trial_that_no_spot_machine_lives_long_enough_for_gets_one_that_stays() -> None:
    """Its first step takes longer than others, which nobody knows before."""
    where = desk(spot("spot", 1.0, 5.0), STAYS)
    rented = where.begins()
    for number in range(1, 10):
        if rented != [f"rent spot-{number}"]:
            break
        where.comes(f"spot-{number}")
        where.now += 1.0 * HOUR  # five steps should have been done
        rented = where.is_lost(f"spot-{number}")
    assert rented == ["rent stays-4"]
