"""Tests of traces from records of prices, lifetimes and availability."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest

from thriftune.errors import SettingError
from thriftune.market.billing import EC2_SPOT, PER_SECOND
from thriftune.market.lifetime import Lifetimes
from thriftune.market.price_history import PriceHistory, PriceSeries
from thriftune.market.running_time import mean_hours
from thriftune.market.synthetic import synthetic_lifetimes
from thriftune.replay.preemptions import AvailabilityPreemptions, LifetimePreemptions, PricePreemptions
from thriftune.replay.traces import (
    DAY,
    RentalConditions,
    TypeData,
    read_trace,
    speed_with_cores,
    trace_from_availability,
    trace_from_lifetimes,
    trace_from_prices,
    trace_from_prices_and_lifetimes,
)

TYPES = {"a": TypeData(2.0, 1.0), "b": TypeData(4.0, 3.0)}


def prices(days: float = 10.0) -> PriceHistory:
    rng = np.random.default_rng(0)
    times = np.arange(0.0, days * DAY, 1800.0)
    return PriceHistory(
        PriceSeries(type, "zone", times, np.exp(rng.normal(-1.0, 0.3, len(times))), end=days * DAY)
        for type in ("a", "b", "other")
    )


def lifetimes_of(*types: str) -> Lifetimes:
    drawn = [synthetic_lifetimes(60, np.random.default_rng(i), cores=2) for i, _ in enumerate(types)]
    names, zones = np.repeat(types, 60), np.full(60 * len(types), "zone")
    hours, ended = (np.concatenate([each[i] for each in drawn]) for i in (0, 1))
    return Lifetimes(names, zones, np.zeros(len(names), dtype=bool), hours, ended)


def test_price_model_is_fitted_to_prices_before_the_start() -> None:
    history = prices()
    trace = trace_from_prices(history, TYPES)
    assert [kind.name for kind in trace.kinds] == ["a zone", "b zone", "a on demand", "b on demand"]
    assert trace.start == pytest.approx(4.0 * DAY)
    assert trace.end == pytest.approx(10.0 * DAY)
    spot = trace.kinds[0]
    assert (spot.is_on_demand, spot.speed, spot.on_demand_price, spot.billing) == (False, 2.0, 1.0, EC2_SPOT)
    assert isinstance(trace.preemptions(0)["a zone"], PricePreemptions)
    p = spot.loss_probability(trace.start, 2.0 * spot.price_at(trace.start))
    assert 0.0 < p < 1.0
    assert trace.kinds[2].is_on_demand
    with pytest.raises(SettingError, match="prices: the record has none of z"):
        trace_from_prices(history, {"z": TypeData(1.0, 1.0)})


def test_prices_and_lifetimes_give_drawn_preemptions() -> None:
    trace = trace_from_prices_and_lifetimes(prices(), lifetimes_of("x", "y"), TYPES)
    preemptions = trace.preemptions(3)
    assert {type(each) for each in preemptions.values()} == {LifetimePreemptions}
    same, other = (trace.preemptions(seed)["a zone"].preempted_at(1, 1, 0.0, None) for seed in (3, 4))
    assert preemptions["a zone"].preempted_at(1, 1, 0.0, None) == same != other
    assert trace.billed(PER_SECOND).kinds[0].billing is PER_SECOND
    assert trace.billed(PER_SECOND).kinds[-1] is trace.kinds[-1]


def test_lifetimes_have_a_constant_price_and_no_end() -> None:
    trace = trace_from_lifetimes(
        lifetimes_of("a", "b", "c"), TYPES, {"a": 0.2, "b": 0.5}, RentalConditions(notice_seconds=30.0)
    )
    assert [kind.name for kind in trace.kinds] == ["a", "b", "a on demand", "b on demand"]
    assert (trace.start, trace.end) == (0.0, math.inf)
    assert trace.kinds[0].survival is not None
    with pytest.raises(SettingError, match="lifetimes: the record has none of z"):
        trace_from_lifetimes(lifetimes_of("a"), {"z": TypeData(1.0, 1.0)}, {}, RentalConditions())


def test_availability_gives_the_mean_time_until_preemption() -> None:
    record = {"zone": {"gap_seconds": 600, "n": 100, "rle": [[0, 10], [2, 10], [0, 10], [1, 70]]}}
    trace = trace_from_availability(record, "gpu", TypeData(1.0, 3.0), 0.9, RentalConditions())
    spot = trace.kinds[0]
    assert spot.survival is not None
    assert mean_hours(spot.survival) == pytest.approx(
        10 * 600 / 3600.0
    )  # in the part for fitting, the first 40 percent
    preemptions = trace.preemptions(0)["zone"]
    assert isinstance(preemptions, AvailabilityPreemptions)
    assert (preemptions.available(7000.0, None), preemptions.available(13000.0, None)) == (2, 0)
    for invalid in ({"zone": {"n": 1}}, {"zone": {"gap_seconds": 60, "rle": [["x", 1]]}}):
        with pytest.raises(SettingError, match="availability: zone: gap_seconds or rle is missing"):
            trace_from_availability(invalid, "gpu", TypeData(1.0, 3.0), 0.9, RentalConditions())
    with pytest.raises(SettingError, match="the record is empty"):
        trace_from_availability({}, "gpu", TypeData(1.0, 3.0), 0.9, RentalConditions())


def test_speed_grows_slower_than_the_number_of_cores() -> None:
    assert speed_with_cores(1) == pytest.approx(1.0)
    assert 2.0 < speed_with_cores(4) < 4.0


def test_content_of_a_file_tells_its_kind(tmp_path: Path) -> None:
    times = np.arange(0.0, 8 * DAY, 3600.0)
    rng = np.random.default_rng(1)
    history = PriceHistory(
        PriceSeries(type, "us-east-1a", times, np.exp(rng.normal(-2.0, 0.2, len(times))), end=8 * DAY)
        for type in ("m5.xlarge", "unheard.of")
    )
    path = tmp_path / "prices.csv"
    history.write(path)
    trace = read_trace(path)
    assert [kind.name for kind in trace.kinds] == ["m5.xlarge us-east-1a", "m5.xlarge on demand"]
    assert trace.notes == ["1 types are not in the catalog and are left out: unheard.of"]
    record = {"zone": {"gap_seconds": 600, "n": 100, "rle": [[1, 100]]}}
    packed = tmp_path / "availability.json.gz"
    packed.write_bytes(gzip.compress(json.dumps(record).encode()))
    assert [kind.name for kind in read_trace(packed).kinds] == ["zone", "p3.2xlarge on demand"]
    mixed = {**record, "short": {"gap_seconds": 600, "n": 10, "rle": [[1, 10]]}}
    packed.write_bytes(gzip.compress(json.dumps(mixed).encode()))
    assert [kind.name for kind in read_trace(packed).kinds] == ["zone", "p3.2xlarge on demand"]
    assert (
        "1 zones are left out: their records are shorter than half of the longest" in read_trace(packed).notes[1]
    )
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(SettingError, match=r"broken\.json: is not valid JSON"):
        read_trace(broken)


def test_availability_after_the_start_is_not_used_for_fitting() -> None:
    day = 144

    def fitted_survival(later: list[list[int]]) -> float:
        record = {
            "a": {"gap_seconds": 600.0, "rle": [[1, 10 * day]]},
            "b": {"gap_seconds": 600.0, "rle": [[1, 4 * day], *later]},
        }
        trace = trace_from_availability(record, "t", TypeData(1.0, 3.0), 1.0, RentalConditions())
        assert trace.start == 4 * 86_400.0
        (kind,) = (each for each in trace.kinds if each.name == "b")
        assert kind.survival is not None
        return float(np.asarray(kind.survival.survival(1.0)))

    assert fitted_survival([[1, 3], [0, 3]] * 384) == fitted_survival([[0, 1], [1, 300]] * 8)
