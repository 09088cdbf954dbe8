"""Tests of billing: bills computed by hand, and invariants of all rules."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, replace
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thriftune.errors import SettingError
from thriftune.market.billing import (
    EC2_SPOT,
    EC2_SPOT_2016,
    EC2_SPOT_HELD,
    GCP_PREEMPTIBLE,
    HOURLY,
    PER_FUNCTION,
    PER_SECOND,
    Bill,
    Billing,
)

NAMED = [PER_SECOND, HOURLY, EC2_SPOT_2016, EC2_SPOT, EC2_SPOT_HELD, GCP_PREEMPTIBLE, PER_FUNCTION]
NO_MINIMUM = Billing()


class Steps:
    """A price that holds from each time to the next; a query after `end` fails."""

    def __init__(self, times: list[float], prices: list[float], end: float = math.inf) -> None:
        self.times, self.prices, self.end = np.asarray(times, float), np.asarray(prices, float), end

    def price_at(self, t: Any) -> Any:
        assert np.all(np.asarray(t) >= self.times[0])
        assert np.all(np.asarray(t) <= self.end)
        return self.prices[np.searchsorted(self.times, t, side="right") - 1]

    def mean(self, t0: float, t1: float) -> float:
        assert self.times[0] <= t0 < t1 <= self.end
        edges = np.clip(np.append(self.times, math.inf), t0, t1)
        return float(np.diff(edges) @ self.prices / (t1 - t0))


SPIKY = Steps([0, 1800, 5400], [0.10, 0.50, 0.20])

# --- computed by hand -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("billing", "seconds", "price", "revoked", "dollars", "cents"),
    [
        # 24.48 / 3600 = 0.0068 a second
        (PER_SECOND, 3600, 24.48, False, 24.48, "24.48"),
        (PER_SECOND, 90, 24.48, False, 0.612, "0.61"),
        (PER_SECOND, 89.2, 24.48, False, 0.612, "0.61"),  # rounded up to a whole second
        (PER_SECOND, 20, 24.48, False, 0.408, "0.41"),  # the minimum of a minute
        (PER_SECOND, 0, 24.48, False, 0.408, "0.41"),
        (PER_SECOND, 1000, 24.48, True, 6.8, "6.80"),  # no refund
        (PER_SECOND, 86400, 0, False, 0.0, "0.00"),
        (HOURLY, 1, 0.133, False, 0.133, "0.13"),
        (HOURLY, 3600, 0.133, False, 0.133, "0.13"),
        (HOURLY, 3600.5, 0.133, False, 0.266, "0.27"),
        (HOURLY, 9000, 0.133, True, 0.399, "0.40"),
        (HOURLY, 0, 0.133, False, 0.0, "0.00"),
        # the hours start at 0.10, 0.50 and 0.20
        (EC2_SPOT_2016, 9000, SPIKY, False, 0.80, "0.80"),
        (EC2_SPOT_2016, 9000, SPIKY, True, 0.60, "0.60"),
        (EC2_SPOT_2016, 7200, SPIKY, False, 0.60, "0.60"),
        (EC2_SPOT_2016, 7200, SPIKY, True, 0.60, "0.60"),  # the second hour was complete
        (EC2_SPOT_2016, 7201, SPIKY, False, 0.80, "0.80"),
        (EC2_SPOT_2016, 3599, SPIKY, False, 0.10, "0.10"),
        (EC2_SPOT_2016, 3599, SPIKY, True, 0.0, "0.00"),
        (EC2_SPOT_2016, 9000, 0.2, True, 0.40, "0.40"),
        # 1800 s at 0.10, 3600 s at 0.50, 3600 s at 0.20
        (EC2_SPOT, 9000, SPIKY, False, 0.75, "0.75"),
        (EC2_SPOT, 9000, SPIKY, True, 0.75, "0.75"),
        (EC2_SPOT, 3600, SPIKY, True, 0.30, "0.30"),  # a full hour is past the first hour
        (EC2_SPOT, 3599, SPIKY, True, 0.0, "0.00"),
        (EC2_SPOT, 3599, SPIKY, False, 1079.5 / 3600, "0.30"),
        (EC2_SPOT, 1800.4, SPIKY, False, 180.5 / 3600, "0.05"),  # rounded up to a second, at its price
        (EC2_SPOT, 6, SPIKY, False, 6 / 3600, "0.00"),
        # 3600 s at 0.10, 3600 s at 0.50, 1800 s at 0.20
        (EC2_SPOT_HELD, 9000, SPIKY, False, 0.70, "0.70"),
        (EC2_SPOT_HELD, 9000, SPIKY, True, 0.70, "0.70"),
        (EC2_SPOT_HELD, 3000, SPIKY, True, 0.0, "0.00"),
        (EC2_SPOT_HELD, 0, SPIKY, False, 6 / 3600, "0.00"),
        (GCP_PREEMPTIBLE, 86400, 0.26607, True, 6.38568, "6.39"),
        (GCP_PREEMPTIBLE, 59, 26.607, True, 0.0, "0.00"),
        (GCP_PREEMPTIBLE, 59, 26.607, False, 0.44345, "0.44"),
        (GCP_PREEMPTIBLE, 60, 26.607, True, 0.44345, "0.44"),
    ],
)
def test_bills_computed_by_hand(
    billing: Billing, seconds: float, price: Any, revoked: bool, dollars: float, cents: str
) -> None:
    bill = billing.bill(0, seconds, price, revoked=revoked)
    assert bill.dollars == pytest.approx(dollars, rel=1e-12)
    assert bill.rounded == Decimal(cents)
    assert str(bill.rounded) == cents


def test_the_bill_has_the_refund() -> None:
    assert EC2_SPOT_2016.bill(0, 9000, SPIKY, revoked=True).refunded == Fraction("0.2")
    assert float(EC2_SPOT.bill(0, 3599, SPIKY, revoked=True).refunded) == pytest.approx(1079.5 / 3600)
    assert EC2_SPOT.bill(0, 3599, SPIKY).refunded == 0
    assert PER_SECOND.bill(0, 3599, SPIKY, revoked=True).refunded == 0


def test_functions_are_billed_by_use() -> None:
    assert PER_FUNCTION.bill(0, 3600, 3.06, busy_seconds=1200).dollars == 1.02
    assert PER_FUNCTION.bill(0, 3600, 3.6, busy_seconds=0.0273).dollars == 0.000028  # 28 of its milliseconds
    assert PER_FUNCTION.bill(0, 3600, 3.06, busy_seconds=0).dollars == 0
    assert PER_FUNCTION.bill(0, 9000, SPIKY, busy_seconds=3600).rounded == Decimal("0.30")  # 0.75 for 2.5 hours
    assert PER_SECOND.bill(0, 3600, 3.06, busy_seconds=1200).dollars == 3.06  # other rules ignore busy_seconds
    with pytest.raises(SettingError, match="bills by use; give busy_seconds"):
        PER_FUNCTION.bill(0, 3600, 3.06)


def test_data_is_billed_by_the_gigabyte_and_never_refunded() -> None:
    billing = replace(EC2_SPOT, dollars_per_gb=0.01)
    bill = billing.bill(0, 600, 12.24, revoked=True, gb_moved=150)  # ImageNet, RubberBand 6.2
    assert (bill.machine, bill.data, bill.refunded) == (Fraction(0), Fraction("1.5"), Fraction("2.04"))
    assert bill.rounded == Decimal("1.50")
    assert billing.bill(0, 600, 12.24, gb_moved=150).rounded == Decimal("3.54")
    assert EC2_SPOT.bill(0, 600, 12.24, gb_moved=150).rounded == Decimal("2.04")  # data within a region is free


def test_only_the_sum_is_rounded_to_cents() -> None:
    one = HOURLY.bill(0, 1, 0.005)
    assert one.rounded == Decimal("0.01")
    assert HOURLY.bill(0, 1, 0.00499999).rounded == Decimal("0.00")
    assert sum([one] * 1000, Bill()).rounded == Decimal("5.00")
    tenth = sum([HOURLY.bill(0, 1, 0.1)] * 3, Bill())
    assert (tenth.dollars, tenth.machine) == (0.3, Fraction(3, 10))  # the float sum 0.1 + 0.1 + 0.1 is not exact
    assert Bill().rounded == Decimal("0.00")


def test_float_noise_starts_no_billed_hour() -> None:
    start = 1456358400.1
    assert HOURLY.bill(start, start + 3600, 1.0).dollars == 1
    *_, ticks = accumulate([0.3] * 12_000)
    assert ticks > 3600
    assert HOURLY.bill(0, ticks, 1.0).dollars == 1
    assert HOURLY.billed_seconds(ticks) == 3600
    assert HOURLY.bill(0, 3600.001, 1.0).dollars == 2


def test_hours_are_counted_from_the_start_of_the_machine() -> None:
    series = Steps([1000, 4000, 8000], [0.1, 0.2, 0.4])
    assert EC2_SPOT_2016.bill(3999, 3999 + 7200, series).rounded == Decimal("0.30")  # at 3999 and at 7599
    assert EC2_SPOT_2016.bill(4000, 4000 + 7200, series).rounded == Decimal("0.40")  # at 4000 and at 7600
    assert EC2_SPOT_2016.bill(4400, 4400 + 7200, series).rounded == Decimal("0.60")  # at 4400 and at 8000


def test_the_minimum_costs_the_price_before_the_end() -> None:
    assert EC2_SPOT.bill(0, 20, Steps([0, 20], [0.6, 99.0])).rounded == Decimal("0.01")


def test_a_price_may_hold_for_less_than_a_billing_unit() -> None:
    billing = replace(EC2_SPOT_2016, price_held_seconds=1800)
    prices = Steps([0, 1800, 9000], [0.1, 0.3, 0.5])
    assert billing.bill(0, 10_000, prices, revoked=True).dollars == 0.5  # 1800 s at 0.1 and 5400 s at 0.3
    assert billing.bill(0, 10_000, prices).dollars == 0.9  # 7200 s at 0.3 and 1800 s at 0.5


@pytest.mark.parametrize("billing", NAMED)
@pytest.mark.parametrize("seconds", [0, 0.3, 20, 59.5, 3600, 3600.5, 9000.25])
@pytest.mark.parametrize("revoked", [False, True])
def test_no_price_after_the_end_is_queried(billing: Billing, seconds: float, revoked: bool) -> None:
    series = Steps([0, 1800, 5400], [0.1, 0.5, 0.2], end=seconds)
    billing.bill(0, seconds, series, revoked=revoked, busy_seconds=seconds)


# --- for any rule and any life ----------------------------------------------------------------------------

seconds = st.one_of(
    st.integers(0, 200_000).map(float), st.floats(0, 200_000), st.sampled_from([59.0, 60.0, 3600.0])
)
cents_an_hour = st.integers(0, 5000).map(lambda cents: cents / 100)
billings = st.one_of(
    st.sampled_from(NAMED),
    st.builds(
        Billing,
        granularity_seconds=st.sampled_from([0.001, 1, 60, 600, 3600]),
        least_seconds=st.sampled_from([0, 60, 90, 3600]),
        price_held_seconds=st.sampled_from([0, 300, 3600]),
        refunded_first_seconds=st.sampled_from([0, 60, 3600]),
        unfinished_is_free=st.booleans(),
    ),
)


@st.composite
def series(draw: st.DrawFn) -> Steps:
    gaps = draw(st.lists(st.integers(1, 9000), max_size=12))
    prices = draw(st.lists(cents_an_hour, min_size=len(gaps) + 1, max_size=len(gaps) + 1))
    return Steps(np.cumsum([0, *gaps]).tolist(), prices)


@given(billings, seconds, seconds, cents_an_hour)
def test_a_longer_life_never_costs_less(billing: Billing, one: float, other: float, price: float) -> None:
    less, more = sorted((one, other))
    bills = [billing.bill(0, length, price, busy_seconds=length) for length in (less, more)]
    assert bills[0].machine <= bills[1].machine


@given(st.sampled_from([EC2_SPOT_2016, EC2_SPOT_HELD]), seconds, seconds, series())
def test_a_longer_life_never_costs_less_at_a_held_price(
    billing: Billing, one: float, other: float, prices: Steps
) -> None:
    less, more = sorted((one, other))
    assert billing.bill(0, less, prices).machine <= billing.bill(0, more, prices).machine


@given(billings, seconds, series(), st.booleans())
def test_payment_plus_refund_is_the_bill_without_preemption(
    billing: Billing, length: float, prices: Steps, moving: bool
) -> None:
    price = prices if moving else float(prices.prices[0])
    ended = billing.bill(0, length, price, busy_seconds=length)
    revoked = billing.bill(0, length, price, busy_seconds=length, revoked=True)
    assert ended.refunded == 0
    assert 0 <= revoked.refunded <= ended.machine
    assert revoked.machine + revoked.refunded == ended.machine


@given(billings, st.lists(seconds, min_size=1, max_size=8), cents_an_hour, st.booleans())
def test_bills_at_a_constant_price_equal_billed_seconds(
    billing: Billing, lengths: list[float], price: float, revoked: bool
) -> None:
    lengths = [round(length, 3) for length in lengths]
    billed = billing.billed_seconds(lengths, revoked=revoked)
    bills = [billing.bill(0, length, price, revoked=revoked, busy_seconds=length).dollars for length in lengths]
    assert billed.shape == (len(lengths),)
    assert billed * price / 3600 == pytest.approx(bills, rel=1e-12)
    assert billing.billed_seconds(lengths[0], revoked=revoked) == billed[0]


@given(billings, seconds, cents_an_hour, st.booleans())
def test_an_unchanging_variable_price_bills_like_a_constant(
    billing: Billing, length: float, price: float, revoked: bool
) -> None:
    still = billing.bill(0, length, Steps([0], [price]), revoked=revoked, busy_seconds=length)
    constant = billing.bill(0, length, price, revoked=revoked, busy_seconds=length)
    assert still.dollars == pytest.approx(constant.dollars, rel=1e-9, abs=1e-15)


@given(st.integers(0, 90_000), st.integers(0, 90_000), series())
def test_without_a_minimum_bills_of_consecutive_periods_add_up(first: int, second: int, prices: Steps) -> None:
    price = float(prices.prices[0])
    periods = [(0, first), (first, first + second)]
    whole = NO_MINIMUM.bill(0, first + second, price)
    assert sum((NO_MINIMUM.bill(*period, price) for period in periods), Bill()) == whole
    moved = sum((NO_MINIMUM.bill(*period, prices) for period in periods), Bill())
    assert moved.dollars == pytest.approx(NO_MINIMUM.bill(0, first + second, prices).dollars, rel=1e-9)


@given(st.integers(0, 20_000), series(), st.booleans())
def test_bills_equal_sums_over_seconds_and_hours(length: int, prices: Steps, revoked: bool) -> None:
    by_second = sum(prices.price_at(np.arange(length)).tolist()) / 3600
    by_second += max(60 - length, 0) * float(prices.price_at(max(length - 1, 0))) / 3600
    by_second = 0.0 if revoked and length < 3600 else by_second
    assert EC2_SPOT.bill(0, length, prices, revoked=revoked).dollars == pytest.approx(by_second, rel=1e-9)
    hours = length // 3600 if revoked else math.ceil(length / 3600)
    by_hour = sum(float(prices.price_at(3600 * hour)) for hour in range(hours))
    assert EC2_SPOT_2016.bill(0, length, prices, revoked=revoked).dollars == pytest.approx(by_hour, rel=1e-9)


# --- what cannot be ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"granularity_seconds": 0}, "billing: granularity_seconds: 0 must be at least a microsecond, 1e-06"),
        ({"granularity_seconds": -1}, "billing: granularity_seconds: -1 must be a number, 0 or more"),
        ({"least_seconds": math.nan}, "billing: least_seconds: nan must be a number, 0 or more"),
        ({"refunded_first_seconds": math.inf}, "billing: refunded_first_seconds: inf must be a number, 0 or more"),
        ({"dollars_per_gb": "0.1"}, "billing: dollars_per_gb: '0.1' must be a number, 0 or more"),
        (
            {"by_use": True, "price_held_seconds": 60},
            "billing: price_held_seconds: cannot be combined with by_use; give one of them",
        ),
    ],
)
def test_invalid_rules_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError) as error:
        Billing(**settings)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("life", "message"),
    [
        ({"end": -1}, "billing: a machine's life from 0 to -1: must end at its start or later"),
        ({"end": math.inf}, "billing: a machine's life from 0 to inf: must end at its start or later"),
        ({"price": -0.1}, "billing: price: -0.1 must be a number, 0 or more"),
        ({"price": Steps([0], [math.nan])}, "billing: price: nan must be a number, 0 or more"),
        ({"price": "0.1"}, "billing: price: '0.1' must be a number, 0 or more"),
        ({"gb_moved": -1}, "billing: gb_moved: -1 must be a number, 0 or more"),
    ],
)
def test_invalid_lives_are_refused(life: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError) as error:
        PER_SECOND.bill(**{"start": 0, "end": 100, "price": 1.0, **life})
    assert str(error.value) == message


def test_invalid_seconds_are_refused() -> None:
    for invalid in ([1.0, -1.0], [math.nan], math.inf):
        with pytest.raises(SettingError, match="seconds: must be numbers, 0 or more"):
            PER_SECOND.billed_seconds(invalid)


def test_a_rule_is_data() -> None:
    assert replace(PER_SECOND, refunded_first_seconds=3600) == EC2_SPOT
    assert hash(EC2_SPOT) != hash(EC2_SPOT_HELD)
    with pytest.raises(FrozenInstanceError):
        HOURLY.least_seconds = 1  # type: ignore[misc]
