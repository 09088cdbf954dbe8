"""Tests of machine types: checks, prices, and conversion to cloud profiles and back."""

from __future__ import annotations

import math
from typing import Any

import pytest

from thriftune.errors import SettingError
from thriftune.market.billing import EC2_SPOT, HOURLY, PER_FUNCTION
from thriftune.market.lifetime import Exponential
from thriftune.market.price_history import PriceSeries
from thriftune.planning import CloudProfile, Latency
from thriftune.planning.machine_types import MachineType

PRICES = PriceSeries("m", "a", [0.0, 3600.0, 7200.0], [1.0, 3.0, 2.0], end=9000.0)


class Half:
    def probability(self, series: Any, t: Any, max_price: Any) -> float:
        return 0.5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"slots": 0}, "m: slots: 0"),
        ({"slots": 1.5}, "m: slots: 1.5"),
        ({"speed": 0.0}, "m: speed: 0.0 must be a finite number, above 0"),
        ({"notice_seconds": -1.0}, "m: notice_seconds: -1.0 must be"),
        ({"data_gb": math.inf}, "m: data_gb: inf must be"),
        ({"price": -1.0}, "m: price: -1.0 must be a finite number, 0 or more"),
        ({"price": math.nan}, "m: price: nan must be"),
        ({"revocation": Half()}, "revocation= needs a varying price; give a price series as price="),
        (
            {"price": PRICES, "revocation": Half(), "survival": Exponential(1.0)},
            "give survival= or revocation=, not both",
        ),
    ],
)
def test_invalid_fields_are_rejected(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        MachineType(**{"name": "m", "price": 1.0, **given})


def test_a_type_without_preemptions_is_on_demand() -> None:
    assert MachineType("m", 1.0).is_on_demand
    assert MachineType("m", PRICES).is_on_demand
    assert not MachineType("m", 1.0, survival=Exponential(1.0)).is_on_demand
    assert not MachineType("m", PRICES, revocation=Half()).is_on_demand


def test_price_and_mean_price() -> None:
    machine_type = MachineType("m", PRICES)
    assert [machine_type.price_at(t) for t in (0.0, 3599.0, 3600.0, 8000.0)] == [1.0, 1.0, 3.0, 2.0]
    assert machine_type.mean_price(5400.0) == pytest.approx(2.0)
    assert machine_type.mean_price(1800.0) == 1.0  # the price is known for half an hour
    assert machine_type.mean_price(7200.0, 7200.0) == pytest.approx(2.0)
    fixed = MachineType("m", 0.4)
    assert (fixed.price_at(7.0), fixed.mean_price(7.0)) == (0.4, 0.4)


def test_loss_probability_within_an_hour() -> None:
    assert MachineType("m", 1.0).loss_probability(0.0, None) == 0.0
    assert MachineType("m", 1.0, survival=Exponential(2.0)).loss_probability(0.0, None) == pytest.approx(
        1.0 - math.exp(-0.5)
    )
    market = MachineType("m", PRICES, revocation=Half())
    assert market.loss_probability(0.0, 1.5) == 0.5
    with pytest.raises(SettingError, match="m: is preempted by price; give a maximum price"):
        market.loss_probability(0.0, None)


def test_ready_seconds_are_queue_and_init() -> None:
    machine_type = MachineType("m", 1.0, queue=Latency(20.0, 5.0), init=40.0)
    assert machine_type.ready_seconds == pytest.approx(60.0)
    assert (machine_type.queue_latency.mean, machine_type.init_latency.mean) == pytest.approx((20.0, 40.0))


def test_of_cloud_profile() -> None:
    profile = CloudProfile(
        slots=4, price_per_hour=3.0, queue=10.0, init=20.0, minimum=60.0, data_gb=5.0, data_price=0.1, name="big"
    )
    machine_type = MachineType.of(profile)
    assert (
        machine_type.name,
        machine_type.price,
        machine_type.slots,
        machine_type.ready_seconds,
        machine_type.data_gb,
    ) == ("big", 3.0, 4, 30.0, 5.0)
    assert (machine_type.billing.least_seconds, machine_type.billing.dollars_per_gb) == (60.0, 0.1)
    assert machine_type.is_on_demand


def test_cloud_profile_round_trip() -> None:
    cloud = CloudProfile(
        4, 2.0, Latency(9.0, 2.0), 15.0, minimum=60.0, data_gb=3.0, data_price=0.1, name="m", speed=1.5,
        survival=Exponential(2.0), max_machines=7,
    )  # fmt: skip
    again = MachineType.of(cloud).cloud_profile_at(0.0)
    assert (again.slots, again.price_per_hour, again.minimum, again.speed) == (4, 2.0, 60.0, 1.5)
    assert again.max_machines == 7
    assert (again.queue_latency, again.init_latency) == (cloud.queue_latency, cloud.init_latency)
    assert (again.data_gb, again.data_price, again.survival, again.name) == (3.0, 0.1, cloud.survival, "m")


def test_the_cloud_profile_has_the_current_price() -> None:
    assert [MachineType("m", PRICES).cloud_profile_at(now).price_per_hour for now in (0.0, 4000.0)] == [1.0, 3.0]


def test_hourly_billing_gives_a_minimum_of_an_hour() -> None:
    assert MachineType("m", 1.0, billing=HOURLY).cloud_profile_at(0.0).minimum == 3600.0
    assert MachineType("m", 1.0, billing=EC2_SPOT).cloud_profile_at(0.0).minimum == 60.0
    with pytest.raises(SettingError, match="billed by use"):
        MachineType("m", 1.0, billing=PER_FUNCTION)
