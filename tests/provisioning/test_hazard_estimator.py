"""How soon machines are lost: by what is known, and by what became of those that were rented."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.provisioning.desk import HOUR, Desk
from tests.support.tables import START
from thriftune.market.lifetime import Exponential
from thriftune.market.prices import PriceSeries
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.fixed import CheapestSpot
from thriftune.provisioning.hazard_estimator import HazardEstimator
from thriftune.provisioning.workload import Workload
from thriftune.state import events as ev

SPOT = MachineType("spot", 0.3, survival=Exponential(2.0))


def desk(at_a_time: int = 1, trials: int = 40) -> Desk:
    return Desk(CheapestSpot([SPOT], Workload(at_a_time, seconds_per_step=60.0)), trials=trials, retries=0)


def rate(where: Desk) -> float:
    """As one sees it who reads the history for the first time."""
    return HazardEstimator([SPOT]).rate(SPOT, where.history, where.now)


def lives(where: Desk, hours: float, number: int) -> None:
    """A machine comes, and is lost after so many hours."""
    where.comes(f"spot-{number}")
    where.passes(hours * HOUR)
    where.is_lost(f"spot-{number}")


def test_losses_an_hour() -> None:
    history = desk().history
    for hours in (0.05, 0.5, 20.0):
        kind = MachineType("k", 1.0, survival=Exponential(hours))
        told = HazardEstimator([kind])
        assert told.hazard(kind, history, START, None) == pytest.approx(1.0 / hours)
        assert told.hazard(kind, history, START, None, 3.0, 0.1) == pytest.approx(1.0 / hours)
        within = told.lived(kind, history, START, 0.0, 1.0)
        assert within == pytest.approx(hours * -math.expm1(-1.0 / hours), rel=1e-3)
    stays = MachineType("stays", 1.0)
    assert HazardEstimator([stays]).hazard(stays, history, START, None) == 0.0
    assert HazardEstimator([stays]).lived(stays, history, START, 0.0, 1.0) is None


def test_losses_by_the_price_are_those_of_its_market() -> None:
    class Half:
        def probability(self, series: object, t: float, max_price: float) -> float:
            return 0.5

    prices = PriceSeries("m", "a", [START - HOUR], [1.0], end=START + HOUR)
    market = MachineType("m", prices, revocation=Half())
    told = HazardEstimator([market])
    assert told.hazard(market, desk().history, START, 2.0) == pytest.approx(math.log(2.0))
    assert told.rate(market, desk().history, START) == 1.0


def test_before_anything_was_seen_it_is_as_was_known() -> None:
    where = desk()
    where.begins()
    assert rate(where) == 1.0


def test_machines_that_are_lost_sooner_than_was_known_make_it_higher() -> None:
    where = desk()
    where.begins()
    for number in range(1, 7):
        lives(where, 0.2, number)
        where.passes(400.0)
    # Six losses, where 6 * 0.2 / 2 were to be expected; what was known weighs as much as four.
    assert rate(where) == pytest.approx((4.0 + 6.0) / (4.0 + 0.6), rel=0.01)
    told = HazardEstimator([SPOT])
    assert told.hazard(SPOT, where.history, where.now, None) == pytest.approx(0.5 * rate(where))
    lived = told.lived(SPOT, where.history, where.now, 0.0, 1.0)
    before = HazardEstimator([SPOT]).lived(SPOT, desk().history, START, 0.0, 1.0)
    assert lived is not None
    assert before is not None
    assert lived < before


def test_a_machine_that_stays_makes_it_lower() -> None:
    where = desk()
    where.begins()
    where.comes("spot-1")
    seen = [rate(where)]
    for _ in range(3):
        where.passes(HOUR)
        seen.append(rate(where))
    assert seen == pytest.approx([4.0 / (4.0 + 0.5 * hours) for hours in range(4)])
    where.passes(1000 * HOUR)
    assert rate(where) == pytest.approx(4.0 / 7.0)  # one machine proves only so much


def test_losses_of_one_moment_count_as_one() -> None:
    together, apart = desk(4), desk(4)
    for where in (together, apart):
        where.begins()
        for number in range(1, 5):
            where.comes(f"spot-{number}")
        where.passes(0.2 * HOUR)
    for number in range(1, 5):
        together.is_lost(f"spot-{number}")
        apart.is_lost(f"spot-{number}")
        apart.passes(120.0)
    assert 1.0 < rate(together) < 1.3
    assert rate(apart) > 1.5


def test_it_is_told_the_same_by_one_who_saw_all_of_it_come() -> None:
    where, told = desk(), HazardEstimator([SPOT])
    where.begins()
    for number in range(1, 5):
        told.rate(SPOT, where.history, where.now)
        lives(where, 0.3 * number, number)
        where.passes(400.0)
    assert told.rate(SPOT, where.history, where.now) == pytest.approx(rate(where))
    other = desk()
    other.begins()
    assert told.rate(SPOT, other.history, other.now) == 1.0  # another study


@given(st.lists(st.floats(0.01, 20.0), min_size=1, max_size=8))
def test_it_is_never_carried_away(hours: list[float]) -> None:
    where = desk()
    where.begins()
    for number, each in enumerate(hours, 1):
        if not any(machine == f"spot-{number}" for machine in where.history.fleet.renting):
            break
        lives(where, each, number)
        where.passes(400.0)
    most = (4.0 + len(hours)) / 4.0
    assert 4.0 / (4.0 + 3.0 * len(hours)) <= rate(where) <= most


def test_a_machine_that_was_given_back_after_its_notice_was_lost() -> None:
    where = desk()
    where.begins()
    for number in range(1, 7):
        where.comes(f"spot-{number}")
        where.passes(0.2 * HOUR)
        where(ev.MachineNotice(where.now, f"spot-{number}", where.now + 120.0))
        where.end(0, cut=True)
        where.goes(f"spot-{number}")
        where.passes(400.0)
    assert rate(where) > 2.0
