"""Tests of Kaplan-Meier, relatives, records and change detection."""

from __future__ import annotations

import gzip
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thriftune.errors import SettingError
from thriftune.market.lifetime import Exponential, KaplanMeier, Lifetimes, Phases, Watch, Weibull, fit_lifetime
from thriftune.market.lifetime.records import family_of

# --- Kaplan-Meier


def test_kaplan_meier_by_hand() -> None:
    """A textbook example: remission times of patients (Freireich et al. 1963)."""
    hours = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
    ended = [1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]
    fitted = KaplanMeier.fit(hours, ended)
    assert fitted.ages.tolist() == [6, 7, 10, 13, 16, 22, 23]
    assert fitted.alive == pytest.approx([0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448], abs=5e-4)
    assert np.sqrt(fitted.variance) == pytest.approx(
        [0.0764, 0.0869, 0.0963, 0.1068, 0.1141, 0.1282, 0.1346], abs=5e-4
    )
    low, high = fitted.interval()
    assert np.all((low < fitted.alive) & (fitted.alive < high))
    assert math.isinf(fitted.end)


@given(st.lists(st.floats(0.01, 30.0), min_size=1, max_size=30))
def test_without_censoring_it_is_the_empirical_share(hours: list[float]) -> None:
    fitted = KaplanMeier.fit(hours, [True] * len(hours))
    expected = [np.mean(np.array(hours) > age) for age in fitted.ages]
    assert fitted.alive == pytest.approx(expected, abs=1e-9)
    assert fitted.survival(fitted.ages) == pytest.approx(expected, abs=1e-9)
    assert fitted.end == pytest.approx(max(hours))


def test_the_curve_is_a_step_function() -> None:
    fitted = KaplanMeier.fit([1.0, 2.0, 3.0], [True] * 3)
    assert fitted.survival(np.array([0.5, 1.0, 1.5, 2.9, 3.0])) == pytest.approx([1.0, 2 / 3, 2 / 3, 1 / 3, 0.0])
    assert fitted.mean() == 2.0
    assert KaplanMeier.fit([1.0], [True]).mean() == 1.0
    with pytest.raises(SettingError, match="level 95"):
        fitted.interval(95)


def test_a_record_without_preemptions_is_allowed() -> None:
    fitted = KaplanMeier.fit([1.0, 2.0], [False, False])
    assert fitted.survival(5.0) == 1.0
    assert math.isinf(fitted.mean())


# --- relatives


def test_few_observations_borrow_from_relatives_and_many_do_not() -> None:
    rng = np.random.default_rng(0)
    related = Phases(0.3, 0.5, 60.0, 1.0, 24.3, 0.25).sample(400, rng), np.ones(400, dtype=bool)
    own = Weibull(3.0, 1.0)
    few, many = np.array([0.3, 0.9, 2.0, 30.0]), own.sample(2000, rng)
    died = [True, True, True, False]
    alone, helped = (fit_lifetime(few, died, relatives=each) for each in ((), (related,)))
    assert alone.survival(40.0) > 0.1  # its observations show no end of life
    assert helped.survival(40.0) < 0.1
    sure = fit_lifetime(many, [True] * 2000, relatives=[related])
    assert sure.cdf(np.array([1.0, 3.0, 6.0])) == pytest.approx(own.cdf(np.array([1.0, 3.0, 6.0])), abs=0.03)


def test_relatives_without_observations_are_ignored() -> None:
    hours = np.array([0.5, 1.0, 4.0, 9.0])
    assert fit_lifetime(hours, [True] * 4, relatives=[([], [])]) == fit_lifetime(hours, [True] * 4)


def test_a_type_without_observations_uses_its_relatives() -> None:
    related = np.array([0.5, 1.0, 4.0, 9.0]), [True] * 4
    assert fit_lifetime([], [], relatives=[related]) == fit_lifetime(*related)
    with pytest.raises(SettingError, match="no observation"):
        fit_lifetime([], [])
    with pytest.raises(SettingError, match="relatives: must be a list of pairs"):
        fit_lifetime([1.0, 2.0], [True, True], relatives=related)  # type: ignore[arg-type]


# --- records

HEADER = "machine_type,zone,lifetime_s,end_kind,start,day_of_week,hour_of_day,idle\n"


def row(type: str, hours: float, ended: bool = True, hour: int = 12, zone: str = "z") -> str:
    return f"{type},{zone},{3600 * hours},{'preempted' if ended else 'stop'},x,Monday,{hour},idle\n"


@pytest.fixture
def record(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    small = [
        row("n1-highcpu-2", t, hour=h)
        for t, h in zip(rng.exponential(9, 60), rng.integers(0, 24, 60), strict=True)
    ]
    large = [row("n1-highcpu-16", t, zone="y") for t in (0.1, 0.2, 0.5)]
    other = [row("e2-standard-4", t) for t in rng.exponential(0.01, 60)]
    (tmp_path / "lives.csv").write_text(HEADER + "".join(small + large + other))
    return tmp_path / "lives.csv"


def test_a_record_is_read(record: Path) -> None:
    lives = Lifetimes.read(record)
    assert len(lives) == 123
    assert lives.types == ["e2-standard-4", "n1-highcpu-2", "n1-highcpu-16"]
    gzipped = record.with_suffix(".csv.gz")
    gzipped.write_bytes(gzip.compress(record.read_bytes()))
    assert np.array_equal(Lifetimes.read(gzipped).hours, lives.hours)
    assert len(lives.only(lives.type == "n1-highcpu-16")) == 3


def test_a_record_with_a_byte_order_mark_is_read(record: Path) -> None:
    text = gzip.decompress(record.read_bytes()) if record.suffix == ".gz" else record.read_bytes()
    (record.parent / "marked.csv").write_bytes(b"\xef\xbb\xbf" + text)
    assert len(Lifetimes.read(record.parent / "marked.csv")) == len(Lifetimes.read(record))


def test_a_type_borrows_only_from_its_family(record: Path) -> None:
    lives = Lifetimes.read(record)
    fitted = lives.fit("n1-highcpu-16")
    assert fitted.survival(4.0) > 0.3  # its own three machines lived for minutes
    own = lives.type == "n1-highcpu-16"
    assert fit_lifetime(lives.hours[own], lives.ended[own]).survival(4.0) < 0.05


def test_fits_by_zone_and_time_of_day(record: Path) -> None:
    lives = Lifetimes.read(record)
    night = lives.fit("n1-highcpu-2", zone="z", night=True)
    assert night != lives.fit("n1-highcpu-2", zone="z", night=False)
    elsewhere = lives.fit("n1-highcpu-2", zone="y")  # its relatives are then all machines of the type
    assert elsewhere.mean() == pytest.approx(lives.fit("n1-highcpu-2").mean(), rel=0.2)
    with pytest.raises(SettingError, match="in the zone 'nowhere' is recorded; recorded zones are y, z"):
        lives.fit("n1-highcpu-2", zone="nowhere")
    with pytest.raises(
        SettingError, match="no lifetime of a n2-highcpu-2 is recorded; recorded types are e2-standard-4, n1"
    ):
        lives.fit("n2-highcpu-2")


@pytest.mark.parametrize(("type", "family"), [("n1-highcpu-16", "n1-highcpu"), ("c7i.large", "c7i"), ("a2", "a2")])
def test_families(type: str, family: str) -> None:
    assert family_of(type) == family


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("type,zone\n", "the columns machine_type, lifetime_s, end_kind, hour_of_day are missing"),
        (HEADER, "has a header but no lifetime"),
        (
            HEADER + row("a", 1.0) + row("a", -1.0),
            r"line 3: lifetime_s is -3600.0; it must be finite and not negative",
        ),
        (HEADER + "a,z,soon,stop,x,Monday,1,idle\n", r"line 2: lifetime_s and hour_of_day must be numbers"),
        (HEADER + row("a", 1.0, hour=25), r"line 2: hour_of_day is 25; it must be from 0 to 24"),
        (HEADER + row("", 1.0), r"line 2: machine_type is empty"),
        (HEADER + row("a", 1.0, zone=" "), r"line 2: zone is empty"),
        (HEADER + "a,z,1,lost,x,Monday,1,idle\n", r"line 2: end_kind is 'lost'; it must be preempted or stop"),
    ],
)
def test_invalid_records_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "lives.csv").write_text(text)
    with pytest.raises(SettingError, match=message):
        Lifetimes.read(tmp_path / "lives.csv")
    with pytest.raises(SettingError, match="cannot be read"):
        Lifetimes.read(tmp_path / "nowhere.csv")
    (tmp_path / "half.csv.gz").write_bytes(gzip.compress(HEADER.encode() * 99)[:-20])
    with pytest.raises(SettingError, match="is gzipped but incomplete"):
        Lifetimes.read(tmp_path / "half.csv.gz")


# --- change


def test_false_alarms_are_rare_without_a_change() -> None:
    model = Phases(0.3, 0.5, 40.0, 0.9, 24.3, 0.25)
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(10):
        watch = Watch(model)
        hours, stopped = model.sample(200, rng), rng.exponential(10.0, 200)
        for t, c in zip(hours, stopped, strict=True):
            alarms += watch.see(min(t, c), t < c)
    assert alarms <= 3


def test_a_fitted_model_gives_few_repeated_alarms() -> None:
    alarms = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        watch = Watch(fit_lifetime(Exponential(10.0).sample(200, rng), [True] * 200))
        for t in Exponential(10.0).sample(400, rng):
            watch.see(t, True)
        alarms.append(len(watch.changes))
    assert sum(alarms) <= 4


def test_an_invalid_lifetime_is_refused() -> None:
    watch = Watch(Exponential(10.0))
    for hours in (math.nan, -1.0):
        with pytest.raises(SettingError, match="must be finite and not negative"):
            watch.see(hours, True)
    assert watch.seen == 0


@pytest.mark.parametrize("then", [Exponential(1.0), Weibull(2.0, 0.5), Exponential(60.0)], ids=repr)
def test_a_change_is_detected_and_a_new_model_fitted(then: Exponential | Weibull) -> None:
    model = Exponential(8.0)
    rng = np.random.default_rng(1)
    watch = Watch(model)
    for t in model.sample(100, rng):
        assert not watch.see(t, True)
    for t in then.sample(150, rng):
        watch.see(min(t, 40.0), t < 40.0)
    assert watch.changes
    assert 100 < watch.changes[0] < 180
    assert watch.seen == 250
    now, before = abs(watch.model.cdf(2.0) - then.cdf(2.0)), abs(model.cdf(2.0) - then.cdf(2.0))
    assert now < 0.5 * before


@pytest.mark.skipif(not os.environ.get("THRIFTUNE_DATA"), reason="needs the recorded lifetimes: THRIFTUNE_DATA")
def test_the_recorded_lifetimes_are_fitted() -> None:
    lives = Lifetimes.read(Path(os.environ["THRIFTUNE_DATA"]) / "gcp_preemptions_2019_us-central1-c.csv.gz")
    assert lives.types[0] == "n1-highcpu-2"
    assert len(lives) == 813
    for type in lives.types:
        fitted = lives.fit(type)
        assert fitted.end_hours == pytest.approx(24.35, abs=0.3)
        assert fitted.cdf(26.0) > 0.99
