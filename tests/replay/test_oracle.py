"""Tests of the lower bound on costs, against results by hand and against what policies pay."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.provisioning.studies import (
    HOUR,
    CloudSetup,
    PolicyFactory,
    curve,
    instant_machines,
    limited_availability,
    preempted_by_price,
    random_lifetimes,
    run,
)
from thriftune.market.billing import EC2_SPOT, EC2_SPOT_2016, EC2_SPOT_HELD, Billing
from thriftune.market.lifetime import Exponential
from thriftune.market.price_history import PriceSeries
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.baselines import CheapestSpot, OnDemand
from thriftune.provisioning.elastic import Elastic
from thriftune.provisioning.reuse import Reuse
from thriftune.provisioning.step_cost import StepCost
from thriftune.provisioning.thrifty import Thrifty
from thriftune.provisioning.uniform_progress import UniformProgress
from thriftune.provisioning.workload import StudyWorkload
from thriftune.replay.oracle import Oracle
from thriftune.replay.preemptions import AvailabilityPreemptions, LifetimePreemptions, PricePreemptions

TEN = 10 * HOUR


def test_one_machine_costs_its_price() -> None:
    oracle = Oracle([MachineType("a", 0.7)], {}, 0.0, TEN)
    assert oracle.dollars(30, {"a": 360.0}) == pytest.approx(0.7 * 3.0)
    assert oracle.dollars(0, {"a": 360.0}) == 0.0


def test_slots_share_a_machine() -> None:
    assert Oracle([MachineType("a", 0.8, 4)], {}, 0.0, TEN).dollars(10, {"a": 360.0}) == pytest.approx(0.2)


def test_infeasible_work_costs_inf() -> None:
    oracle = Oracle([MachineType("a", 0.7)], {}, 0.0, TEN)
    assert oracle.dollars(100, {"a": 360.0}) == pytest.approx(7.0)
    assert oracle.dollars(101, {"a": 360.0}) == math.inf


def test_kind_with_the_cheapest_step_is_used() -> None:
    oracle = Oracle([MachineType("a", 1.0), MachineType("b", 1.8)], {}, 0.0, TEN)
    assert oracle.dollars(10, {"a": 360.0, "b": 180.0}) == pytest.approx(0.9)
    assert oracle.dollars(10, {"a": 360.0, "b": 240.0}) == pytest.approx(1.0)


def test_tight_deadline_mixes_two_kinds() -> None:
    """15 steps in 10 hours: 5 h at one step an hour, and 5 h at two."""
    oracle = Oracle([MachineType("a", 1.0), MachineType("b", 2.5)], {}, 0.0, TEN)
    assert oracle.dollars(15, {"a": HOUR, "b": HOUR / 2}) == pytest.approx(5.0 * 1.0 + 5.0 * 2.5, rel=1e-6)


def test_tight_deadline_may_need_an_expensive_last_step() -> None:
    """5 h at one step an hour, and 5 h at 1.01 steps an hour."""
    oracle = Oracle([MachineType("a", 1.0), MachineType("b", 10.0)], {}, 0.0, TEN)
    assert oracle.dollars(10.05, {"a": HOUR, "b": HOUR / 1.01}) == pytest.approx(5.0 + 50.0, rel=1e-6)


@pytest.mark.parametrize(("billing", "until", "paid"), [(EC2_SPOT_HELD, HOUR, 0.1), (EC2_SPOT_2016, 3000.0, 0.0)])
def test_bound_is_not_above_the_bill(billing: Billing, until: float, paid: float) -> None:
    prices = PriceSeries("p", "a", [0.0, 600.0], [0.1, 5.0], end=1e6)
    kind, preemptions = (
        MachineType("p", prices, billing=billing),
        AvailabilityPreemptions([0.0, until], [1, 0], 1e6),
    )
    assert kind.billing.bill(0.0, until, prices, revoked=billing is EC2_SPOT_2016).dollars == pytest.approx(paid)
    assert Oracle([kind], {"p": preemptions}, 0.0, until).dollars(until / 300.0, {"p": 300.0}) <= paid + 1e-9


def test_the_cheapest_hours_are_used() -> None:
    series = PriceSeries("a", "z", [0.0, 4 * HOUR, 6 * HOUR], [1.0, 0.1, 2.0], end=TEN)
    oracle = Oracle([MachineType("a", series)], {}, 0.0, TEN)
    assert oracle.dollars(1, {"a": HOUR}) == pytest.approx(0.1)
    assert oracle.dollars(3, {"a": HOUR}) == pytest.approx(0.2 + 1.0)
    assert oracle.dollars(7, {"a": HOUR}) == pytest.approx(0.2 + 4.0 + 2.0)


def test_lowest_price_within_an_interval_counts() -> None:
    series = PriceSeries("a", "z", [0.0, 100.0, 200.0], [1.0, 0.1, 2.0], end=TEN)
    assert Oracle([MachineType("a", series)], {}, 0.0, 300.0).dollars(1, {"a": 300.0}) == pytest.approx(0.1 / 12.0)


def test_only_available_machines_are_used() -> None:
    preemptions = AvailabilityPreemptions([0.0, 2 * HOUR, 8 * HOUR], [1, 0, 1], 99 * HOUR)
    oracle = Oracle([MachineType("a", 0.1), MachineType("b", 1.0)], {"a": preemptions}, 0.0, TEN)
    seconds_per_step = {"a": HOUR, "b": HOUR}
    assert oracle.dollars(4, seconds_per_step) == pytest.approx(0.4)
    assert oracle.dollars(6, seconds_per_step) == pytest.approx(0.4 + 2.0)
    alone = Oracle([MachineType("a", 0.1)], {"a": preemptions}, 0.0, TEN)
    assert alone.dollars(4, {"a": HOUR}) == pytest.approx(0.4)
    assert alone.dollars(4.1, {"a": HOUR}) == math.inf


def test_refunded_machines_are_free() -> None:
    preemptions = AvailabilityPreemptions([0.0, 2 * HOUR], [1, 0], 99 * HOUR)
    oracle = Oracle([MachineType("a", 0.1, billing=EC2_SPOT)], {"a": preemptions}, 0.0, TEN)
    assert oracle.dollars(1, {"a": HOUR}) == pytest.approx(0.0, abs=1e-12)  # the second hour
    assert oracle.dollars(2, {"a": HOUR}) == pytest.approx(0.1)  # and the first hour, which is not refunded
    drawn = Oracle(
        [MachineType("a", 0.1, billing=EC2_SPOT)], {"a": LifetimePreemptions(Exponential(1.0))}, 0.0, TEN
    )
    assert drawn.dollars(9, {"a": HOUR}) == 0.0


def test_rising_price_gives_refunded_machines() -> None:
    series = PriceSeries("a", "z", [0.0, 3 * HOUR], [1.0, 2.0], end=TEN)
    oracle = Oracle([MachineType("a", series, billing=EC2_SPOT)], {"a": PricePreemptions(series)}, 0.0, 3 * HOUR)
    assert oracle.dollars(1, {"a": HOUR}) == pytest.approx(0.0, abs=1e-12)
    assert oracle.dollars(3, {"a": HOUR}) == pytest.approx(2.0, abs=0.2)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_mixture_of_kinds_and_intervals_is_cheaper(data: st.DataObject) -> None:
    """Compare with random divisions of the time among the kinds."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    intervals, end = 6, 1800.0
    kinds = [
        MachineType(
            name, PriceSeries(name, "z", 300.0 * np.arange(intervals), rng.uniform(0.1, 2.0, intervals), end=end)
        )
        for name in "abc"
    ]
    seconds = dict(zip("abc", rng.uniform(50.0, 200.0, 3).tolist(), strict=True))
    share = rng.dirichlet(np.ones(4), intervals)[:, :3]  # of each interval on each kind; the rest is idle
    steps = sum(300.0 * share[i, j] / seconds[k.name] for i in range(intervals) for j, k in enumerate(kinds))
    paid = sum(
        300.0 / HOUR * share[i, j] * k.price_at(300.0 * i) for i in range(intervals) for j, k in enumerate(kinds)
    )
    assert Oracle(kinds, {}, 0.0, end).dollars(steps, seconds) <= paid * (1.0 + 1e-9)


POLICIES: list[PolicyFactory] = [OnDemand, CheapestSpot, StepCost, Reuse, UniformProgress, Thrifty, Elastic]


@pytest.mark.parametrize("cloud", [preempted_by_price, random_lifetimes, limited_availability, instant_machines])
@pytest.mark.parametrize("make", POLICIES)
def test_no_policy_pays_less_than_the_bound(make: PolicyFactory, cloud: Callable[[int], CloudSetup]) -> None:
    if make is Reuse and cloud is preempted_by_price:
        return  # Reuse needs lifetimes
    for seed in range(4):
        where = cloud(seed)
        workload = StudyWorkload(2, 4, deadline_seconds=6.0 * HOUR, seconds_per_step=320.0, save_seconds=5.0)
        finished_run = run(make, where, workload)
        oracle = Oracle(where.kinds, where.preemptions, 0.0, finished_run.now)
        pace = {kind.name: 1.0 / kind.speed for kind in where.kinds}
        bounds = [oracle.dollars(sum(curve(trial.config).seconds), pace) for trial in finished_run.history.trials]
        assert math.fsum(bounds) <= finished_run.ledger.dollars
