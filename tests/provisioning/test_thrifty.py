"""Tests of the default policy: the cheapest useful step within the deadline."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.market.known_lifetimes import Uniform
from tests.provisioning.renting_study import HOUR, RentingStudy
from tests.provisioning.studies import (
    STEPS,
    CloudSetup,
    instant_machines,
    limited_availability,
    make_spec,
    preempted_by_price,
    random_lifetimes,
    run,
)
from tests.provisioning.test_step_cost import ConstantProbability
from tests.support.tables import START
from thriftune.market.billing import EC2_SPOT
from thriftune.market.lifetime import Exponential
from thriftune.market.price_history import PriceSeries
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.renting_policy import RETRY_SECONDS
from thriftune.provisioning.thrifty import CHECK_SECONDS, Thrifty
from thriftune.provisioning.workload import StudyWorkload
from thriftune.replay.preemptions import LifetimePreemptions
from thriftune.replay.simulated_engine import Curve
from thriftune.state import events as ev
from thriftune.state.trial_record import State

SAFE = Exponential(1e9)
STEP = 720.0  # seconds; a fifth of an hour


def spot(name: str, price: float, hours: float = 1e9, **settings: object) -> MachineType:
    return MachineType(name, price, survival=Exponential(hours), **settings)  # type: ignore[arg-type]


def make_study(*machine_types: MachineType, hours: float | None = None, **settings: object) -> RentingStudy:
    """Return a study of trials of 20 hours, with steps of 720 seconds."""
    workload = StudyWorkload(deadline_seconds=None if hours is None else hours * HOUR, seconds_per_step=STEP)
    return RentingStudy(Thrifty(machine_types, replace(workload, **settings)), trials=settings.get("trials", 4))  # type: ignore[arg-type]


def steady(name: str, changes: dict[float, float]) -> PriceSeries:
    """Return a price series from (hours after the start -> price)."""
    times = [START + hour * HOUR for hour in changes]
    return PriceSeries(name, "a", times, list(changes.values()), end=START + 999 * HOUR)


# --- the cheapest useful step


@pytest.mark.parametrize(("other", "chosen"), [(1.19, "safe"), (1.21, "risky")])
def test_lost_work_and_restarts_count(other: float, chosen: str) -> None:
    """One preemption per hour costs a start of 0.1 h and half a step of 0.2 h: 1.2 dollars in all."""
    study = make_study(spot("risky", 1.0, 1.0, init=360.0), spot("safe", other))
    assert study.begin() == [f"rent {chosen}-1"]


@pytest.mark.parametrize(("other", "chosen"), [(1.09, "safe"), (1.11, "risky")])
def test_a_long_notice_avoids_lost_work(other: float, chosen: str) -> None:
    study = make_study(spot("risky", 1.0, 1.0, init=360.0, notice_seconds=800.0), spot("safe", other))
    assert study.begin() == [f"rent {chosen}-1"]


@pytest.mark.parametrize(("other", "chosen"), [(1.09, "safe"), (1.11, "risky")])
def test_the_queue_time_costs_no_dollars(other: float, chosen: str) -> None:
    study = make_study(spot("risky", 1.0, 1.0, queue=360.0), spot("safe", other))
    assert study.begin() == [f"rent {chosen}-1"]


@pytest.mark.parametrize(("other", "chosen"), [(0.57, "safe"), (0.60, "risky")])
def test_refunds_count(other: float, chosen: str) -> None:
    """Machines are rotated every hour; a share p = 1 - 1/e is preempted: (1 - p) / p = 0.582 dollars."""
    risky = spot("risky", 1.0, 1.0, billing=EC2_SPOT, notice_seconds=800.0)
    assert make_study(risky, spot("safe", other)).begin() == [f"rent {chosen}-1"]


@pytest.mark.parametrize(("price", "chosen"), [(1.9, "quick"), (2.1, "slow")])
def test_cost_is_compared_per_step(price: float, chosen: str) -> None:
    assert make_study(spot("slow", 1.0), spot("quick", price, speed=2.0)).begin() == [f"rent {chosen}-1"]
    assert make_study(spot("slow", 1.0), spot("quick", price, slots=2)).begin() == [f"rent {chosen}-1"]


def test_with_refunds_the_maximum_price_is_near_the_price() -> None:
    class Margin:
        """Return a probability that is higher, the nearer the maximum is to the price."""

        def probability(self, series: PriceSeries, t: float, max_price: float) -> float:
            return 0.9 * math.exp(-10.0 * (max_price / series.price_at(t) - 1.0))

    def max_price_of(free: bool) -> float | None:
        machine_type = MachineType(
            "m",
            steady("m", {-9.0: 1.0}),
            revocation=Margin(),
            notice_seconds=800.0,
            on_demand_price=3.0,
            init=360.0,
        )
        study = make_study(replace(machine_type, billing=EC2_SPOT) if free else machine_type)
        study.begin()
        return study.history.fleet.renting["m-1"].max_price

    assert max_price_of(free=True) == pytest.approx(1.001)
    assert max_price_of(free=False) == pytest.approx(3.0)


def test_machines_rented_together_are_of_several_types() -> None:
    study = RentingStudy(
        Thrifty([spot(name, 1.0) for name in "abc"], StudyWorkload(3, 3, seconds_per_step=STEP)), trials=3
    )
    assert study.begin() == ["rent a-1", "rent b-2", "rent c-3"]


def test_at_nearly_equal_cost_the_rarest_type_is_rented() -> None:
    study = make_study(spot("a", 1.0), spot("b", 1.02), spot("c", 1.1), trials=3)
    assert study.begin() == ["rent a-1"]
    study.machine_arrives("a-1")
    assert study.requested_type() == "b"
    study.machine_arrives("b-2")
    assert study.requested_type() == "a"
    study.machine_arrives("a-3")
    assert study.requested_type() == "b"


def test_a_refused_type_is_not_requested_again_at_once() -> None:
    study = make_study(spot("a", 1.0), spot("b", 2.0))
    assert study.begin() == ["rent a-1"]
    assert study.refuse_machines("a-1") == ["rent b-2"]
    study.now += RETRY_SECONDS
    assert study.requested_type() == "a"


# --- moves


def moved(price_after: float, steps: int = 100, step: float = STEP) -> list[str]:
    """Return the decisions after the price of the trial's machine changes; another type costs 0.6."""
    mine = MachineType("mine", steady("mine", {-9.0: 0.5, 1.5: price_after}), survival=SAFE, init=120.0)
    study = make_study(mine, spot("other", 0.6, init=120.0))
    study.spec = replace(study.spec, max_steps=steps)
    study.kill_driver()
    study.begin()
    study.machine_arrives("mine-1")
    return study.train_steps(0, 1, 15, step)


def test_a_trial_moves_when_that_pays() -> None:
    assert moved(2.0) == ["rent other-2"]


def test_a_trial_does_not_move_for_a_small_gain() -> None:
    assert moved(0.61) == []


def test_a_trial_does_not_move_for_its_last_step() -> None:
    assert moved(0.75, steps=100) == ["rent other-2"]
    assert moved(0.75, steps=15) == []


def test_a_trial_does_not_move_without_a_change() -> None:
    assert moved(0.5) == []


def test_a_trial_stays_until_its_new_machine_is_ready() -> None:
    mine = MachineType("mine", steady("mine", {-9.0: 0.5, 1.0: 3.0}), survival=SAFE)
    study = make_study(mine, spot("other", 0.6))
    study.begin()
    study.machine_arrives("mine-1")
    assert study.train_steps(0, 1, 8, STEP) == ["rent other-2"]
    assert study.machine_arrives("other-2") == ["move 0/1"]
    assert study.train_steps(0, 9, 9, STEP) == []
    assert study.end(0, cut=True) == ["release mine-1", "place 0/2 on other-2 from 9"]


def test_with_refunds_machines_are_rotated() -> None:
    life, seconds = Exponential(1.0), 100.0
    machine_type = MachineType("free", 1.0, survival=life, billing=EC2_SPOT, notice_seconds=120.0, init=30.0)
    flat = Curve(range(1, 201), [{"loss": 1.0}] * 200, [seconds] * 200)
    dollars, hours = 0.0, 0.0
    for seed in range(8):
        setup = CloudSetup([machine_type], {"free": LifetimePreemptions(life, seed)}, seed)
        outcome = run(
            Thrifty,
            setup,
            StudyWorkload(1, 1, seconds_per_step=seconds),
            make_spec(1, steps=200),
            curves=lambda _: flat,
        )
        assert max(row.seconds for row in outcome.ledger.rows) <= HOUR + seconds
        assert outcome.of(ev.Move)
        dollars, hours = dollars + outcome.ledger.dollars, hours + 200 * seconds / HOUR
    assert 0.45 < dollars / hours < 0.75  # (1 - p) / p = 0.58, and the starts


def test_without_refunds_a_machine_is_kept() -> None:
    flat = Curve(range(1, 201), [{"loss": 1.0}] * 200, [100.0] * 200)
    setup = CloudSetup([spot("a", 1.0, init=30.0), spot("b", 1.0, init=30.0)])
    outcome = run(
        Thrifty, setup, StudyWorkload(1, 1, seconds_per_step=100.0), make_spec(1, steps=200), curves=lambda _: flat
    )
    assert len(outcome.of(ev.Rent)) == 1


# --- deadlines

ON_DEMAND = MachineType("stays", 2.0, init=60.0)


def test_with_time_to_spare_a_spot_machine_is_rented() -> None:
    assert make_study(spot("spot", 1.0), ON_DEMAND, hours=40.0).begin() == ["rent spot-1"]


def test_spot_machines_that_cost_more_than_on_demand_are_not_rented() -> None:
    study = make_study(spot("spot", 2.5), ON_DEMAND, hours=40.0)
    study.begin()
    study.now += 14.8 * HOUR
    assert study.requested_type() == "stays"


def test_without_time_to_spare_an_on_demand_machine_is_rented() -> None:
    study = make_study(spot("spot", 1.0), ON_DEMAND, hours=20.5)
    assert study.begin() == ["rent stays-1"]


def test_a_trial_moves_to_on_demand_when_time_runs_out() -> None:
    """20 h of work, a quarter more without timed steps, and a changeover leave 1.6 of 27 h to spare."""
    study = make_study(spot("spot", 1.0), ON_DEMAND, hours=27.0)
    study.begin()
    study.machine_arrives("spot-1")
    assert study.pass_time(1.2 * HOUR) == []
    assert study.pass_time(HOUR) == ["rent stays-2"]
    assert study.machine_arrives("stays-2") == ["move 0/1"]
    assert study.end(0, cut=True) == ["release spot-1", "place 0/2 on stays-2"]


@pytest.mark.parametrize(("init", "result"), [(0.0, ["rent stays-2"]), (0.9 * HOUR, [])])
def test_a_trial_that_is_nearly_done_does_not_move(init: float, result: list[str]) -> None:
    """With five steps of 0.2 h to go, the trial stops reporting until little more time is left."""
    study = make_study(spot("spot", 1.0), MachineType("stays", 2.0, init=init), hours=27.0)
    study.begin()
    study.machine_arrives("spot-1")
    assert study.train_steps(0, 1, 95, STEP) == []
    assert study.pass_time(6.6 * HOUR) == result


def test_with_time_to_spare_a_trial_waits_for_a_spot_machine() -> None:
    study = make_study(spot("spot", 1.0), ON_DEMAND, hours=40.0)
    study.begin()
    assert study.refuse_machines("spot-1") == []
    assert study.pass_time(RETRY_SECONDS) == ["rent spot-2"]


def test_without_time_to_spare_a_trial_does_not_wait() -> None:
    study = make_study(spot("spot", 1.0), ON_DEMAND, hours=27.0)
    study.begin()
    study.now += 1.7 * HOUR
    assert study.refuse_machines("spot-1") == ["rent stays-2"]


def test_machines_that_live_no_longer_than_a_step_are_avoided() -> None:
    life, seconds = Exponential(0.5), 1500.0
    flat = Curve(range(1, STEPS + 1), [{"loss": 1.0}] * STEPS, [seconds] * STEPS)
    machine_types = [
        MachineType("k", 0.477, survival=life, billing=EC2_SPOT, init=50.0),
        MachineType("stays", 1.0, init=30.0),
    ]
    workload = StudyWorkload(2, 4, 100_000.0, seconds_per_step=seconds, save_seconds=60.0)
    for seed in range(4):
        outcome = run(
            Thrifty,
            CloudSetup(machine_types, {"k": LifetimePreemptions(life, seed)}, seed),
            workload,
            curves=lambda _: flat,
        )
        assert outcome.history.counts[State.COMPLETED] == 4


def test_machines_that_live_for_minutes_are_not_rented() -> None:
    life = Exponential(0.1)
    flat = Curve(range(1, STEPS + 1), [{"loss": 1.0}] * STEPS, [1500.0] * STEPS)
    short = MachineType(
        "short", 0.675, speed=1.3, survival=life, billing=EC2_SPOT, notice_seconds=120.0, queue=200.0
    )
    workload = StudyWorkload(1, 1, 41_200.0, seconds_per_step=1500.0, restart_seconds=20.0, save_seconds=10.0)
    setup = CloudSetup(
        [short, MachineType("stays", 1.0, queue=200.0, init=60.0)], {"short": LifetimePreemptions(life, 1)}
    )
    outcome = run(Thrifty, setup, workload, curves=lambda _: flat)
    came = {entry.machine for entry in outcome.of(ev.MachineReady)}
    assert len(came - {entry.machine for entry in outcome.of(ev.Place)}) <= 3
    assert outcome.now <= 41_200.0


def test_a_trial_does_not_count_on_a_coming_machine_that_it_would_not_accept() -> None:
    workload = StudyWorkload(2, 2, 30.0 * HOUR, seconds_per_step=STEP)
    study = RentingStudy(Thrifty([spot("spot", 1.0, 50.0), MachineType("stays", 2.0)], workload), trials=2)
    study.begin()
    study.machine_arrives("spot-1")
    study.machine_arrives("spot-2")
    study.now += 600.0
    study.report(0, 90, loss=0.1, saved=True)
    assert study.machine_preempted("spot-2") == ["rent spot-3"]  # for trial 1, which has all its 20 hours to do
    assert study.machine_preempted("spot-1") == ["rent spot-4"]
    study.now += 4.7 * HOUR
    assert study.refuse_machines("spot-3") == ["rent stays-5"]


def test_the_cheapest_on_demand_type_in_time_is_rented() -> None:
    quick = MachineType("quick", 5.0, speed=2.0)
    dear = spot("dear", 9.0)
    assert make_study(ON_DEMAND, dear, hours=21.0).begin() == ["rent stays-1"]
    assert make_study(ON_DEMAND, quick, dear, hours=12.7).begin() == ["rent quick-1"]
    assert make_study(ON_DEMAND, quick, dear, hours=5.0).begin() == ["rent quick-1"]  # no type meets the deadline


@pytest.mark.parametrize(("hours", "chosen"), [(40.0, "slow"), (16.0, "quick")])
def test_in_a_mixture_of_spot_types_the_faster_is_first(hours: float, chosen: str) -> None:
    machine_types = spot("slow", 0.2), spot("quick", 0.6, speed=2.0), MachineType("stays", 4.0, speed=2.0)
    assert make_study(*machine_types, hours=hours).begin() == [f"rent {chosen}-1"]


def test_in_a_mixture_a_slow_spot_machine_precedes_a_fast_on_demand_one() -> None:
    machine_types = spot("slow", 0.2), MachineType("stays", 4.0, speed=2.0)
    assert make_study(*machine_types, hours=16.0).begin() == ["rent slow-1"]


def test_trials_to_come_count_for_the_deadline() -> None:
    assert make_study(spot("spot", 1.0), ON_DEMAND, hours=32.0, trials=1).begin() == ["rent spot-1"]
    assert make_study(spot("spot", 1.0), ON_DEMAND, hours=32.0, trials=2).begin() == ["rent stays-1"]


def test_machines_are_checked_often() -> None:
    study = make_study(spot("spot", 1.0), ON_DEMAND, hours=40.0)
    study.begin()
    study.machine_arrives("spot-1")
    study.pass_time(RETRY_SECONDS)
    assert study.conductor.wake_at(study.now) == study.now + CHECK_SECONDS


@pytest.mark.parametrize("cloud", [preempted_by_price, random_lifetimes, limited_availability, instant_machines])
@pytest.mark.parametrize("spare", [1.1, 1.5, 2.5])
def test_the_deadline_is_always_met(cloud: Callable[[int], CloudSetup], spare: float) -> None:
    flat = Curve(range(1, STEPS + 1), [{"loss": 1.0}] * STEPS, [300.0] * STEPS)
    late = []
    for seed in range(12):
        rng = np.random.default_rng((seed, 3))
        at_a_time = int(rng.integers(1, 4))
        trials = int(rng.integers(1, 8))
        rounds = math.ceil(trials / at_a_time)
        deadline = rounds * (STEPS * 300.0 * spare + 1600.0)
        workload = StudyWorkload(
            at_a_time, trials, deadline, seconds_per_step=300.0, restart_seconds=20.0, save_seconds=10.0
        )
        outcome = run(Thrifty, cloud(seed), workload, make_spec(trials), curves=lambda _: flat)
        late += [seed] if outcome.history.driven_seconds(outcome.now) > deadline else []
    assert late == []


def test_a_slow_trial_does_not_move_to_an_equal_machine() -> None:
    setup = CloudSetup([spot("a", 1.0, 5.0, init=30.0), spot("b", 1.0, 5.0, init=30.0)])
    flat = Curve(range(1, STEPS + 1), [{"loss": 1.0}] * STEPS, [400.0] * STEPS)
    outcome = run(Thrifty, setup, StudyWorkload(1, 1, seconds_per_step=300.0), curves=lambda _: flat)
    assert outcome.of(ev.Move) == []


def test_frequent_events_do_not_postpone_checks() -> None:
    """The price rises tenfold after an hour, while another trial ends every 500 seconds."""
    price = PriceSeries("p", "a", [-8.0 * HOUR, HOUR], [0.3, 3.0], end=1e7)
    machine_types = [
        MachineType("p", price, survival=SAFE, queue=10.0, init=10.0),
        spot("q", 0.6, queue=10.0, init=10.0),
    ]
    long = Curve(range(1, 101), [{"loss": 1.0}] * 100, [300.0] * 100)
    curves = iter([long] + [Curve([100], [{"loss": 1.0}], [500.0])] * 50)
    workload = StudyWorkload(2, 51, seconds_per_step=300.0)
    outcome = run(
        Thrifty, CloudSetup(machine_types), workload, make_spec(51, steps=100), curves=lambda _: next(curves)
    )
    assert min(move.at for move in outcome.of(ev.Move) if move.trial == 0) < 2.0 * HOUR


def test_expensive_spot_machines_are_not_rented_without_a_deadline_either() -> None:
    assert make_study(spot("risky", 0.9, 0.3, init=360.0), MachineType("stays", 1.0)).begin() == ["rent stays-1"]


def test_the_maximum_price_is_at_least_twice_the_price() -> None:
    machine_type = MachineType(
        "m", steady("m", {-9.0: 1.0}), revocation=ConstantProbability(0.1), on_demand_price=1.5
    )
    study = make_study(machine_type)
    study.begin()
    assert study.history.fleet.renting["m-1"].max_price == 2.0  # at least twice the price


def test_a_deadline_without_on_demand_types() -> None:
    study = make_study(spot("a", 1.0, 5.0), spot("b", 1.1, 5.0), hours=21.0)
    study.begin()
    study.machine_arrives("a-1")
    assert study.train_steps(0, 1, 5, STEP) == []


def test_a_step_longer_than_spot_lifetimes_runs_on_demand() -> None:
    short = MachineType("short", 0.1, survival=Uniform(24.0))
    for deadline in (None, 5000.0):
        study = make_study(short, ON_DEMAND, hours=deadline, seconds_per_step=30.0 * HOUR)
        assert study.begin() == ["rent stays-1"]


def test_a_stuck_trial_moves_to_on_demand() -> None:
    """Its first step takes much longer than expected."""
    study = make_study(spot("spot", 1.0, 5.0), ON_DEMAND)
    rented = study.begin()
    for number in range(1, 10):
        if rented != [f"rent spot-{number}"]:
            break
        study.machine_arrives(f"spot-{number}")
        study.now += 1.0 * HOUR  # the time of five steps
        rented = study.machine_preempted(f"spot-{number}")
    assert rented == ["rent stays-4"]
