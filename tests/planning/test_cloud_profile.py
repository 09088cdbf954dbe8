"""Tests of cloud profiles and fair allocations: packings by brute force, catalog offers, invalid values."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.market.known_lifetimes import Exponential
from thriftune.errors import SettingError
from thriftune.market.billing import HOURLY, PER_FUNCTION, PER_SECOND, Billing
from thriftune.market.catalog import Offer
from thriftune.planning import CloudProfile, Latency
from thriftune.planning.allocation import Allocation, fair_allocations

OFFER = Offer("aws", "p3.8xlarge", 32, 244.0, 12.24, "us-east-1", "2026-08", "V100", 4, 3.9)
CLOUD = CloudProfile(4, 12.24)


def fits(at_a_time: int, workers: int, free: tuple[int, ...], slots: int) -> bool:
    """Tell by brute force whether the trials fit; `free` is the free slots of each machine."""
    if not at_a_time:
        return True
    if workers <= slots:
        ways = [
            (*free[:i], left - workers, *free[i + 1 :])
            for i, left in enumerate(free)
            if left >= workers and left not in free[:i]  # machines with equal room are equivalent
        ]
    else:
        empty = [i for i, left in enumerate(free) if left == slots]
        own = empty[: math.ceil(workers / slots)]
        ways = [tuple(left for i, left in enumerate(free) if i not in own)] if len(own) * slots >= workers else []
    return any(fits(at_a_time - 1, workers, tuple(sorted(planner)), slots) for planner in ways)


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 5, 8])
def test_machines_needed_is_the_minimum_of_all_packings(slots: int) -> None:
    cloud = CloudProfile(slots, 1.0)
    for at_a_time in range(1, 7):
        for workers in range(1, 11):
            machines = next(n for n in range(1, 100) if fits(at_a_time, workers, (slots,) * n, slots))
            assert cloud.machines_needed(at_a_time, workers) == machines, (at_a_time, workers)


# --- fair allocations


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 200), st.integers(1, 64))
def test_fair_allocations_are_complete(trials: int, most_workers: int) -> None:
    """The slots of a stage are a multiple or a divisor of its trials (RubberBand 4.3)."""
    slots = [slots for slots in range(1, trials * most_workers + 1) if not slots % trials or not trials % slots]
    result = fair_allocations(trials, most_workers)
    assert [each.slots for each in result] == slots
    for each in result:
        assert 1 <= each.workers <= most_workers
        assert trials % each.at_a_time == 0
        assert each.at_a_time == trials or each.workers == 1


def test_a_single_trial_never_waits() -> None:
    assert fair_allocations(1, 3) == [Allocation(1, 1), Allocation(1, 2), Allocation(1, 3)]


# --- profiles of catalog offers


def test_accelerators_are_the_slots_and_else_the_cores() -> None:
    result = CloudProfile.of(OFFER)
    assert (result.name, result.slots, result.price_per_hour, result.survival) == ("p3.8xlarge", 4, 12.24, None)
    assert CloudProfile.of(replace(OFFER, accelerator="", accelerators=0)).slots == 32
    assert result.dollars_per_second == pytest.approx(12.24 / 3600)


def test_the_providers_billing_is_used() -> None:
    by_second = CloudProfile.of(OFFER, PER_SECOND)
    assert (by_second.billing, by_second.minimum, by_second.minimum_billed_seconds) == ("per_instance", 60.0, 60.0)
    by_use = CloudProfile.of(OFFER, replace(PER_FUNCTION, least_seconds=60.0))
    assert (by_use.billing, by_use.minimum_billed_seconds) == ("per_function", 0.0)
    assert CloudProfile.of(OFFER, Billing(dollars_per_gb=0.09)).data_price == 0.09
    with pytest.raises(
        SettingError, match=r"p3\.8xlarge.*is billed in units of 3600 s; plans need machines that are"
    ):
        CloudProfile.of(OFFER, HOURLY)


def test_a_spot_machine_has_its_own_price_and_a_lifetime() -> None:
    spot = CloudProfile.of(OFFER, spot=True, survival=Exponential())
    assert (spot.name, spot.price_per_hour, spot.survival) == ("p3.8xlarge spot", 3.9, Exponential())
    unknown = replace(OFFER, spot_price_per_hour=None)
    with pytest.raises(SettingError, match=r"p3\.8xlarge.*no spot price is known; give price_per_hour="):
        CloudProfile.of(unknown, spot=True, survival=Exponential())
    assert CloudProfile.of(unknown, spot=True, survival=Exponential(), price_per_hour=4.0).price_per_hour == 4.0
    with pytest.raises(SettingError, match="a spot machine can be preempted; give survival="):
        CloudProfile.of(OFFER, spot=True)


def test_given_fields_override_the_catalog() -> None:
    result = CloudProfile.of(
        OFFER, PER_SECOND, slots=8, minimum=0.0, init=[10.0, 20.0], max_machines=3, name="mine"
    )
    assert (result.slots, result.minimum, result.max_machines, result.name) == (8, 0.0, 3, "mine")
    assert result.init_latency == Latency.fit([10.0, 20.0])


def test_waits_can_be_numbers_records_or_latencies() -> None:
    result = CloudProfile(1, 1.0, queue=30, init=Latency(15.0, 5.0))
    assert (result.queue_latency, result.init_latency) == (Latency(30.0), Latency(15.0, 5.0))
    assert replace(result, queue=[1.0, 1.0]).queue_latency.mean == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"slots": 0}, "slots: 0 is too small; use 1 or more"),
        ({"slots": 2.0}, r"slots: 2\.0 must be a whole number"),
        ({"slots": None}, "slots: None must be a whole number"),
        ({"max_machines": 0}, "max_machines: 0 is too small"),
        ({"max_machines": True}, "max_machines: True must be a whole number"),
        ({"price_per_hour": -1.0}, r"price_per_hour: -1\.0 must be a finite number, 0 or more"),
        ({"price_per_hour": math.nan}, "price_per_hour: nan"),
        ({"minimum": math.inf}, "minimum: inf"),
        ({"data_price": "1"}, "data_price: '1'"),
        ({"speed": 0.0}, r"speed: 0\.0 must be a finite number, above 0"),
        ({"billing": "hourly"}, "billing: 'hourly' must be one of per_instance, per_function"),
        ({"queue": -1.0}, r"latency: mean: -1\.0"),
        ({"init": [1.0]}, "give at least two recorded times"),
        ({"init": "30s"}, "latency"),
    ],
)
def test_invalid_values_are_rejected(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        replace(CLOUD, **fields)
