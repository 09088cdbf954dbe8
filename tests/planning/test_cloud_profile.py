"""Kinds of machines and fair shares of them: packings by brute force, the catalog's offers, what cannot be."""

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
from thriftune.planning.allocation import Allocation, fair

OFFER = Offer("aws", "p3.8xlarge", 32, 244.0, 12.24, "us-east-1", "2026-08", "V100", 4, 3.9)
CLOUD = CloudProfile(4, 12.24)


def fits(at_a_time: int, workers: int, free: tuple[int, ...], slots: int) -> bool:
    """Whether there is any way: a trial that fits is on one machine, a larger one has machines of its own."""
    if not at_a_time:
        return True
    if workers <= slots:
        ways = [
            (*free[:i], left - workers, *free[i + 1 :])
            for i, left in enumerate(free)
            if left >= workers and left not in free[:i]  # machines with as much room are all alike
        ]
    else:
        empty = [i for i, left in enumerate(free) if left == slots]
        own = empty[: math.ceil(workers / slots)]
        ways = [tuple(left for i, left in enumerate(free) if i not in own)] if len(own) * slots >= workers else []
    return any(fits(at_a_time - 1, workers, tuple(sorted(way)), slots) for way in ways)


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 5, 8])
def test_machines_are_as_few_as_any_packing_needs(slots: int) -> None:
    cloud = CloudProfile(slots, 1.0)
    for at_a_time in range(1, 7):
        for workers in range(1, 11):
            machines = next(n for n in range(1, 100) if fits(at_a_time, workers, (slots,) * n, slots))
            assert cloud.machines_for(at_a_time, workers) == machines, (at_a_time, workers)


# --- fair shares


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 200), st.integers(1, 64))
def test_all_fair_allocations_are_there_and_no_other(trials: int, most_workers: int) -> None:
    """RubberBand 4.3: what a stage has is a multiple of its trials, or a factor of their number."""
    slots = [slots for slots in range(1, trials * most_workers + 1) if not slots % trials or not trials % slots]
    told = fair(trials, most_workers)
    assert [each.slots for each in told] == slots
    for each in told:
        assert 1 <= each.workers <= most_workers
        assert trials % each.at_a_time == 0
        assert each.at_a_time == trials or each.workers == 1


def test_a_single_trial_never_waits() -> None:
    assert fair(1, 3) == [Allocation(1, 1), Allocation(1, 2), Allocation(1, 3)]


# --- from the catalog


def test_accelerators_are_the_slots_and_else_the_cores() -> None:
    told = CloudProfile.of(OFFER)
    assert (told.name, told.slots, told.price_per_hour, told.survival) == ("p3.8xlarge", 4, 12.24, None)
    assert CloudProfile.of(replace(OFFER, accelerator="", accelerators=0)).slots == 32
    assert told.dollars_per_second == pytest.approx(12.24 / 3600)


def test_a_providers_billing_is_taken_over() -> None:
    by_second = CloudProfile.of(OFFER, PER_SECOND)
    assert (by_second.billing, by_second.minimum, by_second.least_billed) == ("per_instance", 60.0, 60.0)
    by_use = CloudProfile.of(OFFER, replace(PER_FUNCTION, least_seconds=60.0))
    assert (by_use.billing, by_use.least_billed) == ("per_function", 0.0)
    assert CloudProfile.of(OFFER, Billing(dollars_per_gb=0.09)).data_price == 0.09
    with pytest.raises(SettingError, match=r"p3\.8xlarge.*bills by 3600 s; plans are made for machines that are"):
        CloudProfile.of(OFFER, HOURLY)


def test_a_spot_machine_has_its_own_price_and_a_lifetime() -> None:
    spot = CloudProfile.of(OFFER, spot=True, survival=Exponential())
    assert (spot.name, spot.price_per_hour, spot.survival) == ("p3.8xlarge spot", 3.9, Exponential())
    unknown = replace(OFFER, spot_price_per_hour=None)
    with pytest.raises(SettingError, match=r"p3\.8xlarge.*no spot price is known; give price_per_hour="):
        CloudProfile.of(unknown, spot=True, survival=Exponential())
    assert CloudProfile.of(unknown, spot=True, survival=Exponential(), price_per_hour=4.0).price_per_hour == 4.0
    with pytest.raises(SettingError, match="may be taken away; give its survival="):
        CloudProfile.of(OFFER, spot=True)


def test_what_is_given_goes_before_what_the_catalog_says() -> None:
    told = CloudProfile.of(OFFER, PER_SECOND, slots=8, minimum=0.0, init=[10.0, 20.0], max_machines=3, name="mine")
    assert (told.slots, told.minimum, told.max_machines, told.name) == (8, 0.0, 3, "mine")
    assert told.init_latency == Latency.fit([10.0, 20.0])


def test_waits_are_numbers_or_records_or_distributions() -> None:
    told = CloudProfile(1, 1.0, queue=30, init=Latency(15.0, 5.0))
    assert (told.queue_latency, told.init_latency) == (Latency(30.0), Latency(15.0, 5.0))
    assert replace(told, queue=[1.0, 1.0]).queue_latency.mean == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"slots": 0}, "slots: 0 must be a whole number, at least 1"),
        ({"slots": 2.0}, r"slots: 2\.0 must be a whole number"),
        ({"slots": None}, "slots: None must be a whole number"),
        ({"max_machines": 0}, "max_machines: 0 must be a whole number"),
        ({"max_machines": True}, "max_machines: True must be a whole number"),
        ({"price_per_hour": -1.0}, r"price_per_hour: -1\.0 must be a finite number, 0 or more"),
        ({"price_per_hour": math.nan}, "price_per_hour: nan"),
        ({"minimum": math.inf}, "minimum: inf"),
        ({"data_price": "1"}, "data_price: '1'"),
        ({"speed": 0.0}, r"speed: 0\.0 must be a finite number, above 0"),
        ({"billing": "hourly"}, "billing: 'hourly' must be one of per_instance, per_function"),
        ({"queue": -1.0}, r"latency: mean: -1\.0"),
        ({"init": [1.0]}, "needs two or more recorded seconds"),
        ({"init": "30s"}, "latency"),
    ],
)
def test_what_cannot_be_is_said(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        replace(CLOUD, **fields)
