"""Tests of the simulated cloud: latencies, bills and preemptions on a virtual clock."""

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
from thriftune.market.price_history import PriceSeries
from thriftune.planning import CloudProfile, Latency
from thriftune.planning.machine_types import MachineType
from thriftune.replay.preemptions import (
    AvailabilityPreemptions,
    LifetimePreemptions,
    Preemptions,
    PricePreemptions,
)
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


def cloud_of(*kinds: MachineType, **preemptions: Preemptions) -> SimulatedCloud:
    return SimulatedCloud(kinds or (BIG,), preemptions)


def kinds_of(events: list[Event]) -> list[tuple[str, float]]:
    return [(type(event).__name__, event.at) for event in events]


class TestConformance(RentingConformance):
    unrented, offer = 0, "big"

    @pytest.fixture(autouse=True)
    def clock(self) -> None:
        self.seconds = 0.0

    def make(self) -> Cloud:
        return cloud_of()

    def now(self) -> float:
        return self.seconds

    def wait(self) -> None:
        self.seconds += 1.0


def test_machine_is_rented_then_ready() -> None:
    cloud = cloud_of()
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
def test_machine_is_billed_for_the_minimum_time_at_least(until: float, dollars: float) -> None:
    cloud = cloud_of()
    cloud.rent("m1", "big", None, 100.0)
    cloud.poll_events(130.0)
    released, billed = cloud.release("m1", until)
    assert released == MachineReleased(until, "m1")
    assert isinstance(billed, MachineBilled)
    assert (billed.dollars, billed.data, billed.refunded) == pytest.approx((dollars + 0.5, 0.5, 0.0))
    assert cloud.release("m1", until + 50.0) == []
    assert cloud.bill.dollars == pytest.approx(dollars + 0.5)


def test_machine_released_in_the_queue_is_never_rented() -> None:
    cloud = cloud_of()
    cloud.rent("m1", "big", None, 0.0)
    cloud.rent("m2", "big", None, 0.0)
    assert cloud.release("m1", 5.0) == [MachineReleased(5.0, "m1")]
    assert [event.machine for event in cloud.poll_events(100.0) if isinstance(event, MachineReady)] == ["m2"]
    assert cloud.bill.dollars == 0.0
    assert cloud.release("nobody", 5.0) == []


def test_machines_of_one_request_are_rented_together_and_ready_separately() -> None:
    cloud = cloud_of(MachineType("slow", 1.0, queue=Latency(10, 5), init=Latency(20, 9)))
    for number in range(5):
        cloud.rent(f"m{number}", "slow", None, 0.0)
    cloud.rent("later", "slow", None, 1.0)
    events = cloud.poll_events(1e6)
    rented_at = {event.machine: event.at for event in events if isinstance(event, MachineRented)}
    ready = {event.machine: event.at for event in events if isinstance(event, MachineReady)}
    assert len({rented_at[f"m{number}"] for number in range(5)}) == 1
    assert rented_at["later"] != rented_at["m0"]
    assert len(set(ready.values())) == 6
    assert [event.at for event in events] == sorted(event.at for event in events)


def test_billing_per_function_charges_only_data() -> None:
    profile = CloudProfile(slots=4, price_per_hour=36.0, billing="per_function", data_gb=1.0, data_price=0.1)
    cloud = cloud_of(MachineType.of(profile))
    cloud.rent("m1", "machine", None, 0.0)
    cloud.release("m1", 1000.0)
    assert cloud.bill.dollars == pytest.approx(0.1)


def test_unknown_offer_and_duplicate_kinds_are_refused() -> None:
    cloud: Cloud = cloud_of()
    with pytest.raises(SettingError, match="small: no such machine can be rented; choose one of big"):
        cloud.rent("m1", "small", None, 0.0)
    assert cloud.close(0.0) == []
    with pytest.raises(SettingError, match="two kinds of machines have the same name: big, big"):
        cloud_of(BIG, BIG)


# --- preemptions


def test_price_preempts_after_a_notice_and_first_hour_is_refunded() -> None:
    cloud = cloud_of(SPOT, spot=PricePreemptions(PRICES))
    assert kinds_of(cloud.rent("m1", "spot", 1.5, 100.0)) == [("MachineRented", 100.0), ("MachineReady", 100.0)]
    assert cloud.poll_events(900.0) == [MachineNotice(880.0, "m1", 1000.0)]
    lost, billed = cloud.poll_events(1e4)
    assert lost == MachineLost(1000.0, "m1", "preempted", revoked=True)
    assert isinstance(billed, MachineBilled)
    assert (billed.dollars, billed.refunded) == pytest.approx((0.0, 900.0 / 3600.0))
    assert cloud.release("m1", 1100.0) == []
    assert float(cloud.bill.refunded) == pytest.approx(0.25)


def test_machine_is_billed_at_the_market_price_over_time() -> None:
    cloud = cloud_of(SPOT, spot=PricePreemptions(PRICES))
    cloud.rent("m1", "spot", 3.0, 500.0)
    cloud.poll_events(1e4)
    assert cloud.bill.dollars == pytest.approx((500 * 1.0 + 1000 * 3.0 + 7000 * 2.0) / 3600.0)
    assert cloud.bill.refunded == 0


def test_request_below_the_market_price_is_refused() -> None:
    cloud = cloud_of(replace(SPOT, queue=100.0), spot=PricePreemptions(PRICES))
    refused = cloud.rent("m1", "spot", 2.5, 1500.0)
    assert refused == [MachineRefused(1500.0, "m1", "spot", "no capacity")]
    assert cloud.rent("m2", "spot", 1.5, 950.0) == []
    assert kinds_of(cloud.poll_events(2000.0)) == [
        ("MachineRefused", 1050.0)
    ]  # the price rose while the request was in the queue
    assert cloud.next_event_at() is None
    assert cloud.bill.dollars == 0.0


def test_notice_does_not_come_before_the_machine() -> None:
    cloud = cloud_of(SPOT, spot=PricePreemptions(PRICES))
    cloud.rent("m1", "spot", 1.5, 950.0)
    assert [e.at for e in cloud.poll_events(2000.0) if isinstance(e, MachineNotice)] == []
    late = cloud_of(SPOT, spot=PricePreemptions(PRICES)).rent("m1", "spot", 1.5, 950.0)
    assert kinds_of(late) == [("MachineRented", 950.0), ("MachineReady", 950.0), ("MachineNotice", 950.0)]


def test_lifetimes_are_drawn_by_machine_and_reproducible() -> None:
    kind = MachineType("gcp", 1.0)

    def ends(seed: int) -> list[float]:
        cloud = cloud_of(kind, gcp=LifetimePreemptions(Exponential(2.0), seed))
        for number in range(300):
            cloud.rent(f"m{number}", "gcp", None, 0.0)
        return [event.at for event in cloud.poll_events(1e9) if isinstance(event, MachineLost)]

    assert ends(1) == ends(1) != ends(2)
    assert np.mean(ends(3)) / 3600.0 == pytest.approx(2.0, rel=0.2)


def test_availability_limits_the_machines_that_are_held() -> None:
    preemptions = AvailabilityPreemptions([0.0, 100.0, 200.0, 300.0], [2, 1, 3, 0], 1000.0)
    cloud = cloud_of(MachineType("gpu", 1.0), gpu=preemptions)
    for name in ("a", "b"):
        cloud.rent(name, "gpu", None, 0.0)
    assert kinds_of(cloud.rent("c", "gpu", None, 0.0)) == [("MachineRefused", 0.0)]
    assert [e.machine for e in cloud.poll_events(100.0) if isinstance(e, MachineLost)] == [
        "b"
    ]  # the one rented last
    assert kinds_of(cloud.rent("d", "gpu", None, 150.0)) == [("MachineRefused", 150.0)]
    cloud.release("a", 160.0)
    assert kinds_of(cloud.rent("e", "gpu", None, 170.0))[0] == ("MachineRented", 170.0)
    for name in ("f", "g", "h"):
        cloud.rent(name, "gpu", None, 250.0)
    assert sorted(e.machine for e in cloud.poll_events(999.0) if isinstance(e, MachineLost)) == ["e", "f", "g"]
    assert preemptions.preempted_at(1, 1, 400.0, None) == 400.0
    assert AvailabilityPreemptions([0.0], [1], 10.0).preempted_at(1, 1, 5.0, None) == math.inf


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([], [], 1.0), "a count for each time"),
        (([0.0, 1.0], [1], 2.0), "a count for each time"),
        (([0.0, 0.0], [1, 2], 2.0), "must increase"),
        (([0.0], [1], 0.0), "must come after the last"),
        (([0.0], [-1], 1.0), "a count is -1"),
    ],
)
def test_invalid_availability_is_refused(given: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        AvailabilityPreemptions(*given)
    with pytest.raises(SettingError, match="unknown at 11; the record goes from 0 to 10"):
        AvailabilityPreemptions([0.0], [1], 10.0).available(11.0, None)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_rented_machine_is_billed_once(data: st.DataObject) -> None:
    billing = data.draw(
        st.sampled_from([EC2_SPOT, Billing(least_seconds=60.0), Billing(granularity_seconds=3600.0)])
    )
    kinds = [
        MachineType(
            "spot", PRICES, billing=billing, notice_seconds=data.draw(st.sampled_from([0.0, 30.0, 120.0])), queue=7
        ),
        MachineType("gpu", 0.9, billing=billing, init=11.0, data_gb=1.0),
    ]
    preemptions: dict[str, Preemptions] = {
        "spot": PricePreemptions(PRICES),
        "gpu": AvailabilityPreemptions([0.0, 900.0, 3000.0, 6000.0], [3, 1, 2, 0], 60_000.0),
    }
    cloud = SimulatedCloud(kinds, preemptions)
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
    rented_at = {e.machine: e.at for e in events if isinstance(e, MachineRented)}
    end_events = {e.machine: e for e in events if isinstance(e, (MachineLost, MachineReleased))}
    bills = [e for e in events if isinstance(e, MachineBilled)]
    assert sorted(e.machine for e in bills) == sorted(rented_at)
    assert math.fsum(e.dollars for e in bills) == pytest.approx(cloud.bill.dollars, abs=1e-12)
    for bill in bills:
        kind = cloud.kind_of(bill.machine)
        end = end_events[bill.machine]
        again = kind.billing.bill(
            rented_at[bill.machine],
            end.at,
            kind.price,
            revoked=isinstance(end, MachineLost),
            gb_moved=kind.data_gb,
        )
        assert (bill.dollars, bill.refunded) == (again.dollars, float(again.refunded))
