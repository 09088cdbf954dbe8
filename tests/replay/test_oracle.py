"""The least that it could have cost: by hand, and never more than any policy paid."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.provisioning.studies import HOUR, Make, Where, at_once, by_chance, by_price, by_room, curve, run
from thriftune.market.billing import EC2_SPOT, EC2_SPOT_2016, EC2_SPOT_HELD, Billing
from thriftune.market.lifetime import Exponential
from thriftune.market.prices import PriceSeries
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.elastic import Elastic
from thriftune.provisioning.fixed import CheapestSpot, OnDemand
from thriftune.provisioning.reuse import Reuse
from thriftune.provisioning.step_cost import StepCost
from thriftune.provisioning.thrifty import Thrifty
from thriftune.provisioning.uniform_progress import UniformProgress
from thriftune.provisioning.workload import Workload
from thriftune.replay.oracle import Oracle
from thriftune.replay.preemptions import AbovePrice, Available, Drawn

TEN = 10 * HOUR


def test_one_machine_costs_its_price() -> None:
    oracle = Oracle([MachineType("a", 0.7)], {}, 0.0, TEN)
    assert oracle.dollars(30, {"a": 360.0}) == pytest.approx(0.7 * 3.0)
    assert oracle.dollars(0, {"a": 360.0}) == 0.0


def test_slots_share_a_machine() -> None:
    assert Oracle([MachineType("a", 0.8, 4)], {}, 0.0, TEN).dollars(10, {"a": 360.0}) == pytest.approx(0.2)


def test_what_could_not_be_done_costs_inf() -> None:
    oracle = Oracle([MachineType("a", 0.7)], {}, 0.0, TEN)
    assert oracle.dollars(100, {"a": 360.0}) == pytest.approx(7.0)
    assert oracle.dollars(101, {"a": 360.0}) == math.inf


def test_the_cheapest_by_the_step_is_used() -> None:
    oracle = Oracle([MachineType("a", 1.0), MachineType("b", 1.8)], {}, 0.0, TEN)
    assert oracle.dollars(10, {"a": 360.0, "b": 180.0}) == pytest.approx(0.9)
    assert oracle.dollars(10, {"a": 360.0, "b": 240.0}) == pytest.approx(1.0)


def test_in_a_hurry_two_kinds_are_mixed() -> None:
    """15 steps in 10 hours: 5 h of one a hour, 5 h of two."""
    oracle = Oracle([MachineType("a", 1.0), MachineType("b", 2.5)], {}, 0.0, TEN)
    assert oracle.dollars(15, {"a": HOUR, "b": HOUR / 2}) == pytest.approx(5.0 * 1.0 + 5.0 * 2.5, rel=1e-6)


def test_in_a_hurry_the_last_step_may_be_dear() -> None:
    """5 h of one a hour, 5 h of one and a hundredth."""
    oracle = Oracle([MachineType("a", 1.0), MachineType("b", 10.0)], {}, 0.0, TEN)
    assert oracle.dollars(10.05, {"a": HOUR, "b": HOUR / 1.01}) == pytest.approx(5.0 + 50.0, rel=1e-6)


@pytest.mark.parametrize(("billing", "until", "paid"), [(EC2_SPOT_HELD, HOUR, 0.1), (EC2_SPOT_2016, 3000.0, 0.0)])
def test_whatever_the_rules_it_is_no_more_than_the_bill(billing: Billing, until: float, paid: float) -> None:
    prices = PriceSeries("p", "a", [0.0, 600.0], [0.1, 5.0], end=1e6)
    kind, fate = MachineType("p", prices, billing=billing), Available([0.0, until], [1, 0], 1e6)
    assert kind.billing.bill(0.0, until, prices, revoked=billing is EC2_SPOT_2016).dollars == pytest.approx(paid)
    assert Oracle([kind], {"p": fate}, 0.0, until).dollars(until / 300.0, {"p": 300.0}) <= paid + 1e-9


def test_the_cheapest_hours_are_used() -> None:
    series = PriceSeries("a", "z", [0.0, 4 * HOUR, 6 * HOUR], [1.0, 0.1, 2.0], end=TEN)
    oracle = Oracle([MachineType("a", series)], {}, 0.0, TEN)
    assert oracle.dollars(1, {"a": HOUR}) == pytest.approx(0.1)
    assert oracle.dollars(3, {"a": HOUR}) == pytest.approx(0.2 + 1.0)
    assert oracle.dollars(7, {"a": HOUR}) == pytest.approx(0.2 + 4.0 + 2.0)


def test_within_a_piece_the_lowest_price_counts() -> None:
    series = PriceSeries("a", "z", [0.0, 100.0, 200.0], [1.0, 0.1, 2.0], end=TEN)
    assert Oracle([MachineType("a", series)], {}, 0.0, 300.0).dollars(1, {"a": 300.0}) == pytest.approx(0.1 / 12.0)


def test_only_what_was_there_is_used() -> None:
    fate = Available([0.0, 2 * HOUR, 8 * HOUR], [1, 0, 1], 99 * HOUR)
    oracle = Oracle([MachineType("a", 0.1), MachineType("b", 1.0)], {"a": fate}, 0.0, TEN)
    each = {"a": HOUR, "b": HOUR}
    assert oracle.dollars(4, each) == pytest.approx(0.4)
    assert oracle.dollars(6, each) == pytest.approx(0.4 + 2.0)
    alone = Oracle([MachineType("a", 0.1)], {"a": fate}, 0.0, TEN)
    assert alone.dollars(4, {"a": HOUR}) == pytest.approx(0.4)
    assert alone.dollars(4.1, {"a": HOUR}) == math.inf


def test_what_is_let_off_is_free() -> None:
    fate = Available([0.0, 2 * HOUR], [1, 0], 99 * HOUR)
    oracle = Oracle([MachineType("a", 0.1, billing=EC2_SPOT)], {"a": fate}, 0.0, TEN)
    assert oracle.dollars(1, {"a": HOUR}) == pytest.approx(0.0, abs=1e-12)  # the second hour
    assert oracle.dollars(2, {"a": HOUR}) == pytest.approx(0.1)  # and the first, paid for
    drawn = Oracle([MachineType("a", 0.1, billing=EC2_SPOT)], {"a": Drawn(Exponential(1.0))}, 0.0, TEN)
    assert drawn.dollars(9, {"a": HOUR}) == 0.0


def test_a_price_that_rises_takes_machines_for_nothing() -> None:
    series = PriceSeries("a", "z", [0.0, 3 * HOUR], [1.0, 2.0], end=TEN)
    oracle = Oracle([MachineType("a", series, billing=EC2_SPOT)], {"a": AbovePrice(series)}, 0.0, 3 * HOUR)
    assert oracle.dollars(1, {"a": HOUR}) == pytest.approx(0.0, abs=1e-12)
    assert oracle.dollars(3, {"a": HOUR}) == pytest.approx(2.0, abs=0.2)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_mixture_of_kinds_and_pieces_is_cheaper(data: st.DataObject) -> None:
    """Against any way to divide up the time that does the steps."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    pieces, end = 6, 1800.0
    kinds = [
        MachineType(
            name, PriceSeries(name, "z", 300.0 * np.arange(pieces), rng.uniform(0.1, 2.0, pieces), end=end)
        )
        for name in "abc"
    ]
    seconds = dict(zip("abc", rng.uniform(50.0, 200.0, 3).tolist(), strict=True))
    share = rng.dirichlet(np.ones(4), pieces)[:, :3]  # of each piece on each kind; the rest is idle
    steps = sum(300.0 * share[i, j] / seconds[k.name] for i in range(pieces) for j, k in enumerate(kinds))
    paid = sum(
        300.0 / HOUR * share[i, j] * k.price_at(300.0 * i) for i in range(pieces) for j, k in enumerate(kinds)
    )
    assert Oracle(kinds, {}, 0.0, end).dollars(steps, seconds) <= paid * (1.0 + 1e-9)


POLICIES: list[Make] = [OnDemand, CheapestSpot, StepCost, Reuse, UniformProgress, Thrifty, Elastic]


@pytest.mark.parametrize("cloud", [by_price, by_chance, by_room, at_once])
@pytest.mark.parametrize("make", POLICIES)
def test_no_policy_pays_less(make: Make, cloud: Callable[[int], Where]) -> None:
    if make is Reuse and cloud is by_price:
        return  # it goes by lives
    for seed in range(4):
        where = cloud(seed)
        terms = Workload(2, 4, deadline_seconds=6.0 * HOUR, seconds_per_step=320.0, save_seconds=5.0)
        ran = run(make, where, terms)
        oracle = Oracle(where.kinds, where.fates, 0.0, ran.now)
        pace = {kind.name: 1.0 / kind.speed for kind in where.kinds}
        least = [oracle.dollars(sum(curve(trial.config).seconds), pace) for trial in ran.history.trials]
        assert math.fsum(least) <= ran.ledger.dollars
