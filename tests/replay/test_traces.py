"""Records of prices, lifetimes and availability as machines that can be rented once more."""

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
from thriftune.market.prices import PriceHistory, PriceSeries
from thriftune.market.running_time import mean_hours
from thriftune.market.synthetic import synthetic_lifetimes
from thriftune.replay.preemptions import AbovePrice, Available, Drawn
from thriftune.replay.traces import (
    DAY,
    Conditions,
    Type,
    by_cores,
    of_availability,
    of_lifetimes,
    of_prices,
    of_prices_and_lifetimes,
    read_trace,
)

TYPES = {"a": Type(2.0, 1.0), "b": Type(4.0, 3.0)}


def prices(days: float = 10.0) -> PriceHistory:
    rng = np.random.default_rng(0)
    times = np.arange(0.0, days * DAY, 1800.0)
    return PriceHistory(
        PriceSeries(type, "zone", times, np.exp(rng.normal(-1.0, 0.3, len(times))), end=days * DAY)
        for type in ("a", "b", "other")
    )


def lives(*types: str) -> Lifetimes:
    told = [synthetic_lifetimes(60, np.random.default_rng(i), cores=2) for i, _ in enumerate(types)]
    names, zones = np.repeat(types, 60), np.full(60 * len(types), "zone")
    hours, ended = (np.concatenate([each[i] for each in told]) for i in (0, 1))
    return Lifetimes(names, zones, np.zeros(len(names), dtype=bool), hours, ended)


def test_prices_are_learnt_from_before_the_start_only() -> None:
    history = prices()
    trace = of_prices(history, TYPES)
    assert [kind.name for kind in trace.kinds] == ["a zone", "b zone", "a on demand", "b on demand"]
    assert trace.start == pytest.approx(4.0 * DAY)
    assert trace.end == pytest.approx(10.0 * DAY)
    spot = trace.kinds[0]
    assert (spot.lasts, spot.speed, spot.on_demand_price, spot.billing) == (False, 2.0, 1.0, EC2_SPOT)
    assert isinstance(trace.fates(0)["a zone"], AbovePrice)
    p = spot.loss_probability(trace.start, 2.0 * spot.price_at(trace.start))
    assert 0.0 < p < 1.0
    assert trace.kinds[2].lasts
    with pytest.raises(SettingError, match="prices: there are none of z"):
        of_prices(history, {"z": Type(1.0, 1.0)})


def test_machines_of_prices_that_tell_nothing_live_as_recorded_ones() -> None:
    trace = of_prices_and_lifetimes(prices(), lives("x", "y"), TYPES)
    fates = trace.fates(3)
    assert {type(fate) for fate in fates.values()} == {Drawn}
    same, other = (trace.fates(seed)["a zone"].end(1, 1, 0.0, None) for seed in (3, 4))
    assert fates["a zone"].end(1, 1, 0.0, None) == same != other
    assert trace.billed(PER_SECOND).kinds[0].billing is PER_SECOND
    assert trace.billed(PER_SECOND).kinds[-1] is trace.kinds[-1]


def test_lifetimes_have_a_price_that_stays_and_no_end() -> None:
    trace = of_lifetimes(lives("a", "b", "c"), TYPES, {"a": 0.2, "b": 0.5}, Conditions(notice_seconds=30.0))
    assert [kind.name for kind in trace.kinds] == ["a", "b", "a on demand", "b on demand"]
    assert (trace.start, trace.end) == (0.0, math.inf)
    assert trace.kinds[0].survival is not None
    with pytest.raises(SettingError, match="lifetimes: there are none of z"):
        of_lifetimes(lives("a"), {"z": Type(1.0, 1.0)}, {}, Conditions())


def test_availability_knows_how_long_it_lasts() -> None:
    record = {"zone": {"gap_seconds": 600, "n": 100, "rle": [[0, 10], [2, 10], [0, 10], [1, 70]]}}
    trace = of_availability(record, "gpu", Type(1.0, 3.0), 0.9, Conditions())
    spot = trace.kinds[0]
    assert spot.survival is not None
    assert mean_hours(spot.survival) == pytest.approx(10 * 600 / 3600.0)  # of the first 40 percent
    fate = trace.fates(0)["zone"]
    assert isinstance(fate, Available)
    assert (fate.room(7000.0, None), fate.room(13000.0, None)) == (2, 0)
    for wrong in ({"zone": {"n": 1}}, {"zone": {"gap_seconds": 60, "rle": [["x", 1]]}}):
        with pytest.raises(SettingError, match="availability: zone: has no gap_seconds and rle"):
            of_availability(wrong, "gpu", Type(1.0, 3.0), 0.9, Conditions())
    with pytest.raises(SettingError, match="the record is empty"):
        of_availability({}, "gpu", Type(1.0, 3.0), 0.9, Conditions())


def test_more_cores_are_faster_but_not_so_many_times() -> None:
    assert by_cores(1) == pytest.approx(1.0)
    assert 2.0 < by_cores(4) < 4.0


def test_a_file_is_known_by_what_is_in_it(tmp_path: Path) -> None:
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
    assert "1 zones have less than half of the longest" in read_trace(packed).notes[1]
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(SettingError, match=r"broken\.json: is no JSON"):
        read_trace(broken)


def test_of_a_zone_that_is_recorded_for_longer_nothing_later_than_the_start_is_known() -> None:
    day = 144

    def known(later: list[list[int]]) -> float:
        record = {
            "a": {"gap_seconds": 600.0, "rle": [[1, 10 * day]]},
            "b": {"gap_seconds": 600.0, "rle": [[1, 4 * day], *later]},
        }
        trace = of_availability(record, "t", Type(1.0, 3.0), 1.0, Conditions())
        assert trace.start == 4 * 86_400.0
        (kind,) = (each for each in trace.kinds if each.name == "b")
        assert kind.survival is not None
        return float(np.asarray(kind.survival.survival(1.0)))

    assert known([[1, 3], [0, 3]] * 384) == known([[0, 1], [1, 300]] * 8)
