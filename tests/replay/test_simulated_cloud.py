"""The cloud on a virtual clock: machines come when they would, cost what they would, and are taken away."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.clouds.conformance import RentingConformance
from thriftune.clouds.protocol import Cloud
from thriftune.errors import SettingError
from thriftune.market.billing import EC2_SPOT, Billing
from thriftune.market.lifetime import Exponential
from thriftune.market.prices import PriceSeries
from thriftune.planning import CloudProfile, Latency
from thriftune.planning.machine_types import MachineType
from thriftune.replay.preemptions import AbovePrice, Available, Drawn, Fate
from thriftune.replay.simulated_cloud import SimulatedCloud
from thriftune.state.events import (
    Event,
    MachineBilled,
    MachineLost,
    MachineNotice,
    MachineReady,
    MachineRefused,
    MachineReleased,
    MachineRented,
)

BIG = MachineType.of(
    CloudProfile(
        slots=4, price_per_hour=36.0, queue=10.0, init=20.0, minimum=60.0, data_gb=5.0, data_price=0.1, name="big"
    )
)
PRICES = PriceSeries("spot", "a", [0.0, 1000.0, 2000.0, 9000.0], [1.0, 3.0, 2.0, 8.0], end=50_000.0)
SPOT = MachineType("spot", PRICES, billing=EC2_SPOT, notice_seconds=120.0)


def made(*kinds: MachineType, **fates: Fate) -> SimulatedCloud:
    return SimulatedCloud(kinds or (BIG,), fates)


def kinds_of(events: list[Event]) -> list[tuple[str, float]]:
    return [(type(event).__name__, event.at) for event in events]


class TestConformance(RentingConformance):
    there, offer = 0, "big"

    @pytest.fixture(autouse=True)
    def clock(self) -> None:
        self.seconds = 0.0

    def make(self) -> Cloud:
        return made()

    def now(self) -> float:
        return self.seconds

    def wait(self) -> None:
        self.seconds += 1.0


def test_a_machine_is_handed_over_and_then_ready() -> None:
    cloud = made()
    assert cloud.open(0.0) == []
    assert cloud.next_event_at() is None
    assert cloud.rent("m1", "big", None, 100.0) == []
    assert cloud.next_event_at() == 110.0
    assert cloud.poll_events(109.9) == []
    assert cloud.poll_events(110.0) == [MachineRented(110.0, "m1", "big", 36.0)]
    assert cloud.poll_events(200.0) == [MachineReady(130.0, "m1", "big", 4, 36.0)]
    assert cloud.next_event_at() is None
    assert cloud.kind_of("m1") is BIG


@pytest.mark.parametrize(("until", "dollars"), [(140.0, 0.6), (170.0, 0.6), (1110.0, 10.0)])
def test_it_is_billed_from_there_on_for_the_minimum_at_least(until: float, dollars: float) -> None:
    cloud = made()
    cloud.rent("m1", "big", None, 100.0)
    cloud.poll_events(130.0)
    released, billed = cloud.release("m1", until)
    assert released == MachineReleased(until, "m1")
    assert isinstance(billed, MachineBilled)
    assert (billed.dollars, billed.data, billed.refunded) == pytest.approx((dollars + 0.5, 0.5, 0.0))
    assert cloud.release("m1", until + 50.0) == []
    assert cloud.bill.dollars == pytest.approx(dollars + 0.5)


def test_a_machine_that_is_let_go_before_it_comes_never_does() -> None:
    cloud = made()
    cloud.rent("m1", "big", None, 0.0)
    cloud.rent("m2", "big", None, 0.0)
    assert cloud.release("m1", 5.0) == [MachineReleased(5.0, "m1")]
    assert [event.machine for event in cloud.poll_events(100.0) if isinstance(event, MachineReady)] == ["m2"]
    assert cloud.bill.dollars == 0.0
    assert cloud.release("nobody", 5.0) == []


def test_machines_of_one_request_are_handed_over_together_and_get_ready_one_by_one() -> None:
    cloud = made(MachineType("slow", 1.0, queue=Latency(10, 5), init=Latency(20, 9)))
    for number in range(5):
        cloud.rent(f"m{number}", "slow", None, 0.0)
    cloud.rent("later", "slow", None, 1.0)
    told = cloud.poll_events(1e6)
    handed = {event.machine: event.at for event in told if isinstance(event, MachineRented)}
    ready = {event.machine: event.at for event in told if isinstance(event, MachineReady)}
    assert len({handed[f"m{number}"] for number in range(5)}) == 1
    assert handed["later"] != handed["m0"]
    assert len(set(ready.values())) == 6
    assert [event.at for event in told] == sorted(event.at for event in told)


def test_where_functions_are_billed_a_machine_costs_nothing_but_its_data() -> None:
    profile = CloudProfile(slots=4, price_per_hour=36.0, billing="per_function", data_gb=1.0, data_price=0.1)
    cloud = made(MachineType.of(profile))
    cloud.rent("m1", "machine", None, 0.0)
    cloud.release("m1", 1000.0)
    assert cloud.bill.dollars == pytest.approx(0.1)


def test_what_is_not_offered_is_said() -> None:
    cloud: Cloud = made()
    with pytest.raises(SettingError, match="small: no such machine can be rented; there are big"):
        cloud.rent("m1", "small", None, 0.0)
    assert cloud.close(0.0) == []
    with pytest.raises(SettingError, match="big, big: each needs a name of its own"):
        made(BIG, BIG)


# --- taken away


def test_the_price_takes_a_machine_away_after_a_notice_and_the_first_hour_is_free() -> None:
    cloud = made(SPOT, spot=AbovePrice(PRICES))
    assert kinds_of(cloud.rent("m1", "spot", 1.5, 100.0)) == [("MachineRented", 100.0), ("MachineReady", 100.0)]
    assert cloud.poll_events(900.0) == [MachineNotice(880.0, "m1", 1000.0)]
    lost, billed = cloud.poll_events(1e4)
    assert lost == MachineLost(1000.0, "m1", "taken away", revoked=True)
    assert isinstance(billed, MachineBilled)
    assert (billed.dollars, billed.refunded) == pytest.approx((0.0, 900.0 / 3600.0))
    assert cloud.release("m1", 1100.0) == []
    assert float(cloud.bill.refunded) == pytest.approx(0.25)


def test_a_machine_of_more_than_an_hour_is_paid_for_at_the_price_as_it_moves() -> None:
    cloud = made(SPOT, spot=AbovePrice(PRICES))
    cloud.rent("m1", "spot", 3.0, 500.0)
    cloud.poll_events(1e4)
    assert cloud.bill.dollars == pytest.approx((500 * 1.0 + 1000 * 3.0 + 7000 * 2.0) / 3600.0)
    assert cloud.bill.refunded == 0


def test_while_the_price_is_above_there_is_none() -> None:
    cloud = made(replace(SPOT, queue=100.0), spot=AbovePrice(PRICES))
    refused = cloud.rent("m1", "spot", 2.5, 1500.0)
    assert refused == [MachineRefused(1500.0, "m1", "spot", "there is none to be had")]
    assert cloud.rent("m2", "spot", 1.5, 950.0) == []
    assert kinds_of(cloud.poll_events(2000.0)) == [("MachineRefused", 1050.0)]  # it had risen by then
    assert cloud.next_event_at() is None
    assert cloud.bill.dollars == 0.0


def test_a_notice_is_never_before_the_machine() -> None:
    cloud = made(SPOT, spot=AbovePrice(PRICES))
    cloud.rent("m1", "spot", 1.5, 950.0)
    assert [e.at for e in cloud.poll_events(2000.0) if isinstance(e, MachineNotice)] == []
    late = made(SPOT, spot=AbovePrice(PRICES)).rent("m1", "spot", 1.5, 950.0)
    assert kinds_of(late) == [("MachineRented", 950.0), ("MachineReady", 950.0), ("MachineNotice", 950.0)]


def test_a_life_is_drawn_for_each_machine_and_is_the_same_again() -> None:
    kind = MachineType("gcp", 1.0)

    def ends(seed: int) -> list[float]:
        cloud = made(kind, gcp=Drawn(Exponential(2.0), seed))
        for number in range(300):
            cloud.rent(f"m{number}", "gcp", None, 0.0)
        return [event.at for event in cloud.poll_events(1e9) if isinstance(event, MachineLost)]

    assert ends(1) == ends(1) != ends(2)
    assert np.mean(ends(3)) / 3600.0 == pytest.approx(2.0, rel=0.2)


def test_only_so_many_are_to_be_had() -> None:
    fate = Available([0.0, 100.0, 200.0, 300.0], [2, 1, 3, 0], 1000.0)
    cloud = made(MachineType("gpu", 1.0), gpu=fate)
    for name in ("a", "b"):
        cloud.rent(name, "gpu", None, 0.0)
    assert kinds_of(cloud.rent("c", "gpu", None, 0.0)) == [("MachineRefused", 0.0)]
    assert [e.machine for e in cloud.poll_events(100.0) if isinstance(e, MachineLost)] == ["b"]  # the later one
    assert kinds_of(cloud.rent("d", "gpu", None, 150.0)) == [("MachineRefused", 150.0)]
    cloud.release("a", 160.0)
    assert kinds_of(cloud.rent("e", "gpu", None, 170.0))[0] == ("MachineRented", 170.0)
    for name in ("f", "g", "h"):
        cloud.rent(name, "gpu", None, 250.0)
    assert sorted(e.machine for e in cloud.poll_events(999.0) if isinstance(e, MachineLost)) == ["e", "f", "g"]
    assert fate.end(1, 1, 400.0, None) == 400.0
    assert Available([0.0], [1], 10.0).end(1, 1, 5.0, None) == math.inf


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([], [], 1.0), "a count for each time"),
        (([0.0, 1.0], [1], 2.0), "a count for each time"),
        (([0.0, 0.0], [1, 2], 2.0), "must rise"),
        (([0.0], [1], 0.0), "end after the last"),
        (([0.0], [-1], 1.0), "a count is -1"),
    ],
)
def test_availability_that_makes_no_sense(given: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Available(*given)
    with pytest.raises(SettingError, match="nothing is known at 11; the record goes from 0 to 10"):
        Available([0.0], [1], 10.0).room(11.0, None)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_happens_every_machine_that_came_is_billed_once(data: st.DataObject) -> None:
    billing = data.draw(
        st.sampled_from([EC2_SPOT, Billing(least_seconds=60.0), Billing(granularity_seconds=3600.0)])
    )
    kinds = [
        MachineType(
            "spot", PRICES, billing=billing, notice_seconds=data.draw(st.sampled_from([0.0, 30.0, 120.0])), queue=7
        ),
        MachineType("gpu", 0.9, billing=billing, init=11.0, data_gb=1.0),
    ]
    fates: dict[str, Fate] = {
        "spot": AbovePrice(PRICES),
        "gpu": Available([0.0, 900.0, 3000.0, 6000.0], [3, 1, 2, 0], 60_000.0),
    }
    cloud = SimulatedCloud(kinds, fates)
    events: list[Event] = []
    now, number = 0.0, 0
    for _ in range(data.draw(st.integers(1, 30))):
        now += data.draw(st.floats(0.0, 1500.0))
        events += cloud.poll_events(now)
        if data.draw(st.booleans()):
            number += 1
            offer = data.draw(st.sampled_from(["spot", "gpu"]))
            events += cloud.rent(f"m{number}", offer, data.draw(st.sampled_from([0.5, 1.5, 2.5, 9.0])), now)
        elif number:
            events += cloud.release(f"m{data.draw(st.integers(1, number))}", now)
    for each in range(1, number + 1):
        events += cloud.poll_events(now) + cloud.release(f"m{each}", now)
    came = {e.machine: e.at for e in events if isinstance(e, MachineRented)}
    gone = {e.machine: e for e in events if isinstance(e, (MachineLost, MachineReleased))}
    bills = [e for e in events if isinstance(e, MachineBilled)]
    assert sorted(e.machine for e in bills) == sorted(came)
    assert math.fsum(e.dollars for e in bills) == pytest.approx(cloud.bill.dollars, abs=1e-12)
    for bill in bills:
        kind = cloud.kind_of(bill.machine)
        end = gone[bill.machine]
        again = kind.billing.bill(
            came[bill.machine], end.at, kind.price, revoked=isinstance(end, MachineLost), gb_moved=kind.data_gb
        )
        assert (bill.dollars, bill.refunded) == (again.dollars, float(again.refunded))
