"""Tests of synthetic prices and lifetimes, and of their comparison with records."""

from __future__ import annotations

import gzip
import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.common import main
from benchmarks.market import synthetic as benchmark
from thriftune.errors import SettingError
from thriftune.market.price_history import PriceHistory
from thriftune.market.synthetic import (
    CAP,
    DAY,
    END_HOURS,
    END_SPREAD_HOURS,
    HIGHEST,
    LOWEST,
    MARKET_KINDS,
    TICK,
    Era,
    synthetic_lifetimes,
    synthetic_prices,
)

TYPES = {"m4.large": 0.12, "g2.8xlarge": 2.6, "p2.xlarge": 0.9}
ERAS: list[Era] = ["spiky", "smooth"]


def made(era: Era = "spiky", seed: int = 0, days: float = 30.0, types: dict[str, float] = TYPES) -> PriceHistory:
    return synthetic_prices(types, np.random.default_rng(seed), era=era, days=days)


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(ERAS),
    st.integers(0, 2**32),
    st.floats(0.001, 20),
    st.dictionaries(st.sampled_from("abc"), st.floats(2 * TICK, 100), min_size=1),
)
def test_every_trace_is_well_formed(era: Era, seed: int, days: float, types: dict[str, float]) -> None:
    history = made(era, seed, days, types)
    assert len(history) == 3 * len(types)
    for (kind, _), one in history.items():
        assert one.end - one.start == pytest.approx(days * DAY)
        assert (one.times == np.floor(one.times)).all()
        assert np.diff(one.times, append=one.end).max() <= DAY  # an unchanged price is repeated every day
        assert np.allclose(one.prices, np.round(one.prices, 4))
        assert one.prices.max() <= CAP * types[kind] + TICK


@pytest.mark.parametrize("era", ERAS)
def test_the_same_seed_makes_the_same_trace(era: Era) -> None:
    one, same, other = made(era), made(era), made(era, seed=1)
    assert all(np.array_equal(one[market].prices, same[market].prices) for market in one)
    assert any(not np.array_equal(one[market].prices, other[market].prices) for market in one)


@pytest.mark.parametrize("era", ERAS)
def test_a_written_trace_is_read_back(era: Era, tmp_path: Path) -> None:
    history = made(era)
    history.write(tmp_path / "made.csv.gz")
    again = PriceHistory.read(tmp_path / "made.csv.gz")
    assert again.repairs == []
    for market, one in history.items():
        assert again[market].minutes(one.start, one.end).tolist() == one.minutes(one.start, one.end).tolist()


def test_the_spiky_era_has_calm_and_capped_markets() -> None:
    """Bounds are wide; benchmarks.market.synthetic has the exact figures."""
    many = {f"type{i}": 1.0 for i in range(20)}
    series = list(made("spiky", types=many, days=45).values())
    highest = np.array([one.prices.max() for one in series])
    assert 0.05 < (highest > 0.99 * CAP).mean() < 0.3
    assert (highest < 0.3).mean() > 0.2
    above = np.array([one.mean(one.start, one.end) for one in series])
    assert 0.1 < np.median(above) < 0.25
    lost = []
    for one in series:
        times = np.linspace(one.start, one.end - 3600, 500)
        lost.append(float((one.next_above(1.1 * one.price_at(times), times) < times + 3600).mean()))
    assert np.quantile(lost, 0.2) < 0.02
    assert 0.15 < np.quantile(lost, 0.9) < 0.4
    daily = np.array([len(one) for one in series]) / 45
    assert 80 < daily.mean() < 220


def test_changes_come_in_bursts() -> None:
    gaps = [np.log(np.diff(one.times)) for one in made("spiky", days=45).values() if len(one) > 2000]
    assert gaps
    assert np.mean([np.corrcoef(gap[1:], gap[:-1])[0, 1] for gap in gaps]) > 0.15


def test_markets_are_uncorrelated() -> None:
    history = made("spiky", days=45, types={f"type{i}": 1.0 for i in range(5)})
    hourly = np.array([np.log(one.price_at(np.arange(one.start, one.end, 3600.0))) for one in history.values()])
    matrix = np.corrcoef(hourly)
    assert abs(matrix[np.triu_indices_from(matrix, k=1)].mean()) < 0.1


def test_even_a_few_markets_are_of_different_kinds() -> None:
    for seed in range(5):
        changes = sorted(len(one) for one in made("spiky", seed, types={"a": 1.0, "b": 1.0}).values())
        highest = sorted(one.prices.max() for one in made("spiky", seed, types={"a": 1.0, "b": 1.0}).values())
        assert changes[0] != changes[-1]
        assert highest[0] < 0.6  # calm or busy
        assert highest[-1] > 0.6  # stormy
    assert sum(kind.share for kind in MARKET_KINDS) == pytest.approx(1.0)


def test_smooth_prices_change_little_and_stay_below_on_demand() -> None:
    series = list(made("smooth", types={f"type{i}": 1.0 for i in range(20)}, days=90).values())
    still = [one for one in series if np.ptp(one.prices) == 0]
    assert 0.25 < len(still) / len(series) < 0.5
    for one in series:
        assert one.prices.min() >= LOWEST - TICK
        assert one.prices.max() <= HIGHEST + TICK
        if np.ptp(one.prices):
            moves = np.diff(np.log(one.prices))
            assert np.abs(moves).max() < 0.15
            assert 2 < np.count_nonzero(moves) / 90 < 5
            changes = moves[moves != 0]
            assert (changes[1:] * changes[:-1] > 0).mean() > 0.55


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"era": "roaring"}, "the era 'roaring' must be spiky or smooth"),
        ({"days": 0.0}, "days 0.0 must be above zero"),
        ({"on_demand": {"m4.large": -1.0}}, r"m4\.large: on-demand price -1\.0 must be above"),
    ],
)
def test_invalid_price_settings_are_refused(wrong: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"on_demand": TYPES, "rng": np.random.default_rng(0)} | wrong
    with pytest.raises(SettingError, match=message):
        synthetic_prices(**arguments)  # type: ignore[arg-type]


# --- lifetimes --------------------------------------------------------------------------------------------


@given(st.integers(0, 200), st.integers(1, 256), st.floats(0, 1), st.integers(0, 2**32))
def test_lifetimes_are_within_bounds(n: int, cores: int, stopped: float, seed: int) -> None:
    hours, ended = synthetic_lifetimes(n, np.random.default_rng(seed), cores=cores, stopped=stopped)
    assert hours.shape == ended.shape == (n,)
    assert ((hours > 0) & (hours <= END_HOURS + END_SPREAD_HOURS)).all()
    again, _ = synthetic_lifetimes(n, np.random.default_rng(seed), cores=cores, stopped=stopped)
    assert again.tolist() == hours.tolist()


def test_lifetimes_are_a_bathtub_and_large_machines_are_lost_sooner() -> None:
    lost_by_noon = []
    for cores in (4, 8, 16, 32, 64):
        hours, ended = synthetic_lifetimes(20_000, np.random.default_rng(cores), cores=cores, stopped=0.0)
        assert ended.all()
        first, middle, last = (((hours >= low) & (hours < low + 1)).mean() for low in (0, 12, 24))
        assert first > 3 * middle < last
        assert ((hours > 23) & (hours < 24)).mean() < 0.02
        lost_by_noon.append((hours < 12).mean())
    assert lost_by_noon == sorted(lost_by_noon)


def test_user_stops_censor_some_lifetimes() -> None:
    uncensored, _ = synthetic_lifetimes(5000, np.random.default_rng(3), stopped=0.0)
    hours, ended = synthetic_lifetimes(5000, np.random.default_rng(3))
    assert 0.4 < (~ended).mean() < 0.7
    assert (hours[ended] == uncensored[ended]).all()
    assert (hours[~ended] < uncensored[~ended]).all()


@pytest.mark.parametrize("wrong", [{"n": -1}, {"cores": 0}, {"stopped": 1.5}])
def test_invalid_lifetime_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingError, match="synthetic lifetimes"):
        synthetic_lifetimes(**({"n": 3, "rng": np.random.default_rng(0)} | wrong))  # type: ignore[arg-type]


# --- the comparison ---------------------------------------------------------------------------------------


def test_the_benchmark_compares_recorded_and_synthetic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRIFTUNE_DATA", str(tmp_path))
    history = made("spiky", types={"c1.medium": 0.13})
    history.write(tmp_path / "spot_prices_useast1_2016-02-25_2016-04-09.csv.gz")
    lifetimes = "machine_type,lifetime_s,end_kind\nn1-highcpu-16,3600,preempted\nn1-highcpu-16,7200,stop\n"
    (tmp_path / "gcp_preemptions_2019_us-central1-c.csv.gz").write_bytes(gzip.compress(lifetimes.encode()))
    with redirect_stdout(io.StringIO()) as output:
        assert main(benchmark.measure, ["--quick", "--json"]) == 0
    figures = {row["what"]: row["figure"] for row in json.loads(output.getvalue())["rows"]}
    assert figures["spiky prices: changes a day"].startswith("recorded ")
    assert figures["smooth prices: changes a day"].startswith("synthetic ")
    of_16 = next(figure for what, figure in figures.items() if what.startswith("16 cores (2 observed)"))
    assert of_16.startswith("recorded 0.00 0.50 0.50")
