"""Tests of price series and of price files: queries, formats, repairs and errors."""

from __future__ import annotations

import gzip
import json
import math
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thriftune.errors import SettingError
from thriftune.market.price_files import KAGGLE_COLUMNS
from thriftune.market.price_history import PriceHistory, PriceSeries, UnknownMarket

HEADER = "type,az,t,price\n"
CENTS = st.integers(1, 40).map(lambda cents: cents / 4)


@st.composite
def series(draw: st.DrawFn) -> PriceSeries:
    gaps = draw(st.lists(st.integers(1, 300), min_size=1, max_size=40))
    prices = draw(st.lists(CENTS, min_size=len(gaps), max_size=len(gaps)))
    times = 1_456_000_000.0 + np.cumsum(gaps)
    return PriceSeries("m4.large", "us-east-1a", times, prices, end=times[-1] + draw(st.integers(0, 300)))


def price_then(one: PriceSeries, t: float) -> float:
    return float(max((time, price) for time, price in zip(one.times, one.prices, strict=True) if time <= t)[1])


def instants(one: PriceSeries) -> list[float]:
    """Return every second of the record."""
    return np.arange(one.start, one.end + 1).tolist()


@given(series())
def test_the_price_is_that_of_the_latest_row(one: PriceSeries) -> None:
    times = instants(one)
    assert one.price_at(np.array(times)).tolist() == [price_then(one, t) for t in times]
    assert isinstance(one.price_at(one.start), float)


@given(series(), CENTS, st.data())
def test_next_above_equals_a_scan(one: PriceSeries, max_price: float, data: st.DataObject) -> None:
    times = instants(one)
    # Prices change only at whole seconds, so the scan finds every change.
    expected = [math.inf] * len(times)
    next_time = math.inf
    for i in reversed(range(len(times))):
        next_time = times[i] if price_then(one, times[i]) > max_price else next_time
        expected[i] = next_time
    assert one.next_above(max_price, np.array(times)).tolist() == expected
    i = data.draw(st.integers(0, len(times) - 1))
    assert one.next_above(max_price, times[i]) == expected[i]


@given(series(), st.lists(CENTS, min_size=1, max_size=5))
def test_next_above_broadcasts_maximum_prices(one: PriceSeries, max_price: list[float]) -> None:
    t = np.linspace(one.start, one.end, 7)
    table = one.next_above(np.array(max_price)[:, None], t)
    assert table.shape == (len(max_price), 7)
    assert table.tolist() == [one.next_above(price, t).tolist() for price in max_price]


@given(series(), st.floats(0, 1), st.floats(0, 1))
def test_the_mean_equals_the_mean_of_all_seconds(one: PriceSeries, a: float, b: float) -> None:
    low, high = sorted(round(one.start + share * (one.end - one.start)) for share in (a, b))
    seconds = np.arange(low, high)
    expected = one.price_at(seconds.astype(float)).mean() if high > low else one.price_at(float(low))
    assert one.mean(float(low), float(high)) == pytest.approx(expected)
    assert one.mean(np.array([low, low]), float(high)) == pytest.approx([expected, expected])


@given(series(), st.floats(0, 1), st.floats(0, 1))
def test_a_single_time_gives_the_same_as_an_array(one: PriceSeries, a: float, b: float) -> None:
    low, high = sorted(min(one.end, one.start + share * (one.end - one.start)) for share in (a, b))
    assert one.price_at(low) == one.price_at(np.array([low]))[0]
    assert one.mean(low, high) == pytest.approx(one.mean(np.array([low]), high)[0], rel=1e-12)
    if low < high:
        with pytest.raises(SettingError, match="earlier"):
            one.mean(high, low)
    for outside in (one.start - 1.0, one.end + 1.0, math.nan):
        with pytest.raises(SettingError, match="no price is known"):
            one.price_at(outside)


def test_a_short_mean_late_in_a_long_record_is_exact() -> None:
    times = np.arange(0.0, 1e6)
    one = PriceSeries("p", "z", times, np.where(times % 2 == 0, 1e4, 1e-4))
    assert one.mean(999_997.0, 999_998.0) == pytest.approx(1e-4, rel=1e-12)
    assert one.mean(999_997.25, 999_997.75) == 1e-4


@given(series(), st.floats(0, 1), st.floats(0, 1))
def test_a_window_has_the_same_prices_and_ends(one: PriceSeries, a: float, b: float) -> None:
    low, high = sorted(one.start + share * (one.end - one.start) for share in (a, b))
    part = one.window(low, high)
    assert (part.start, part.end) == (low, high)
    times = np.linspace(low, high, 9)
    assert part.price_at(times).tolist() == one.price_at(times).tolist()
    with pytest.raises(SettingError):
        part.price_at(high + 1)


def test_minutes_are_the_prices_at_full_minutes() -> None:
    one = PriceSeries("m4.large", "a", [0.0, 61.0, 100.0, 240.0], [1.0, 9.0, 2.0, 3.0])
    assert one.minutes(0, 241).tolist() == [1.0, 1.0, 2.0, 2.0, 3.0]
    assert one.minutes(0, 240).tolist() == [1.0, 1.0, 2.0, 2.0]
    assert one.minutes(30, 30).tolist() == []


def test_queries_outside_the_record_are_errors() -> None:
    one = PriceSeries("m4.large", "us-east-1a", [1_456_360_534.0], [0.03], end=1_456_360_600.0)
    assert one.price_at(one.end) == 0.03
    expected = (
        r"m4\.large us-east-1a: .* 1456360533 .*goes from 1456360534 \(2016-02-25 00:35:34 UTC\) to 1456360600"
    )
    with pytest.raises(SettingError, match=expected):
        one.price_at(one.start - 1)
    for query in (
        lambda: one.price_at(np.array([one.start, one.end + 1])),
        lambda: one.price_at(math.nan),
        lambda: one.price_at(math.inf),
        lambda: one.mean(one.start, one.end + 1),
        lambda: one.mean(one.end, one.start),
        lambda: one.next_above(0.01, one.end + 1),
        lambda: one.next_above(math.nan, one.start),
        lambda: one.window(one.end, one.start),
        lambda: one.minutes(one.end, one.start),
        lambda: PriceHistory([one, one]),
    ):
        with pytest.raises(SettingError, match=r"m4\.large us-east-1a"):
            query()


@pytest.mark.parametrize(
    ("times", "prices", "end"),
    [
        ([], [], None),
        ([1.0], [1.0, 2.0], None),
        ([2.0, 1.0], [1.0, 1.0], None),
        ([1.0, 1.0], [1.0, 1.0], None),
        ([1.0, math.nan], [1.0, 1.0], None),
        ([1.0], [0.0], None),
        ([1.0], [math.inf], None),
        ([1.0, 2.0], [1.0, 1.0], 1.5),
        ([1.0], [1.0], math.inf),
    ],
)
def test_an_invalid_series_is_refused(times: list[float], prices: list[float], end: float | None) -> None:
    with pytest.raises(SettingError, match="m z"):
        PriceSeries("m", "z", times, prices, end=end)


# --- files ------------------------------------------------------------------------------------------------


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def aws(t: float, price: str, zone: str = "us-east-1a", product: str = "Linux/UNIX") -> dict[str, str]:
    return {
        "AvailabilityZone": zone,
        "InstanceType": "m4.large",
        "ProductDescription": product,
        "SpotPrice": price,
        "Timestamp": datetime.fromtimestamp(t, UTC).isoformat(),
    }


@given(st.lists(series(), min_size=1, max_size=3))
def test_a_written_history_is_read_back(tmp_path_factory: pytest.TempPathFactory, many: list[PriceSeries]) -> None:
    folder = tmp_path_factory.mktemp("prices")
    end = max(one.end for one in many)
    history = PriceHistory(
        PriceSeries(f"m{i}.large", "a", one.times, one.prices, end=end) for i, one in enumerate(many)
    )
    for name in ("prices.csv", "prices.csv.gz"):
        history.write(folder / name)
        again = PriceHistory.read(folder / name)
        assert again.repairs == []
        assert again.markets == history.markets
        for market in history:
            one, other = history[market], again[market]
            assert (one.start, one.end) == (other.start, other.end)
            assert (
                other.price_at(np.array(instants(one))).tolist() == one.price_at(np.array(instants(one))).tolist()
            )


def test_the_last_price_holds_until_the_end_of_the_file(tmp_path: Path) -> None:
    history = PriceHistory.read(written(tmp_path / "p.csv", HEADER + "a,z,10,1.5\n\nb,z,5,2\nb,z,99,3\n"))
    assert history["a", "z"].end == 99
    assert history["a", "z"].price_at(99) == 1.5
    assert history.markets == [("a", "z"), ("b", "z")]
    assert ("c", "z") not in history
    assert history.get(("c", "z")) is None


def test_columns_may_be_in_any_order_and_others_are_ignored(tmp_path: Path) -> None:
    text = "\ufeffprice,region,T,az,type\n0.5,us,10,z,a\n"
    assert PriceHistory.read(written(tmp_path / "p.csv", text))["a", "z"].price_at(10) == 0.5


def test_pages_of_the_aws_command_line_are_read_together(tmp_path: Path) -> None:
    pages = [{"SpotPriceHistory": [aws(200, "0.3"), aws(100, "0.2")]}, {"SpotPriceHistory": [aws(0, "0.1")]}]
    path = written(tmp_path / "p.json", "\n".join(json.dumps(page, indent=1) for page in pages) + "\n")
    history = PriceHistory.read(path)
    assert history["m4.large", "us-east-1a"].prices.tolist() == [0.1, 0.2, 0.3]
    assert history.repairs == ["2 rows were out of order and were sorted"]
    (tmp_path / "more.json.gz").write_bytes(gzip.compress(json.dumps([aws(200, "0.3"), aws(300, "0.4")]).encode()))
    both = PriceHistory.read(path, tmp_path / "more.json.gz")
    assert both["m4.large", "us-east-1a"].times.tolist() == [0, 100, 200, 300]
    assert "1 repeated rows were dropped" in both.repairs


def test_only_one_product_is_read(tmp_path: Path) -> None:
    rows = [aws(0, "0.1"), aws(0, "0.7", product="Windows"), aws(5, "0.9", product="SUSE Linux")]
    path = written(tmp_path / "p.json", json.dumps(rows))
    history = PriceHistory.read(path)
    assert history["m4.large", "us-east-1a"].prices.tolist() == [0.1]
    assert history.repairs == [f"{path}: 2 rows of other products were ignored"]
    assert PriceHistory.read(path, product="Windows")["m4.large", "us-east-1a"].prices.tolist() == [0.7]
    with pytest.raises(SettingError, match="'BeOS'; its products are 'Linux/UNIX', 'Windows', 'SUSE Linux'"):
        PriceHistory.read(path, product="BeOS")


@pytest.mark.parametrize("header", ["", ",".join(KAGGLE_COLUMNS) + "\n"])
@pytest.mark.parametrize("zone", ["", "+00:00", "Z"])
def test_the_kaggle_format_is_read_with_and_without_its_header(tmp_path: Path, header: str, zone: str) -> None:
    text = (
        f"2017-05-08 12:30:05{zone},c3.8xlarge,Linux/UNIX,us-east-1a,0.5\n"
        f"2017-05-08 12:30:00{zone},c3.8xlarge,Linux/UNIX,us-east-1a,0.4\n"
        f"2017-05-08 12:30:00{zone},c3.8xlarge,Windows,us-east-1a,1.4\n"
    )
    one = PriceHistory.read(written(tmp_path / "p.csv", header + text))["c3.8xlarge", "us-east-1a"]
    assert one.prices.tolist() == [0.4, 0.5]
    assert one.start == datetime(2017, 5, 8, 12, 30, tzinfo=UTC).timestamp()


def test_small_faults_are_repaired_and_listed(tmp_path: Path) -> None:
    text = HEADER + "a,z,20,2\na,z,10,1\na,z,10,1\nb,z,15,1\na,z,500000,3\n"
    history = PriceHistory.read(written(tmp_path / "p.csv", text))
    assert history["a", "z"].times.tolist() == [10, 20, 500_000]
    sorted_, repeated, gaps = history.repairs
    assert sorted_ == "1 rows were out of order and were sorted"
    assert repeated == "1 repeated rows were dropped"
    assert gaps.startswith("2 gaps of more than 2 days were filled")
    assert "5.8 days in b z from 15" in gaps


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("a,z,10,1\na,z,20,-1\n", r"line 3: the price is '-1'; it must be .* above zero"),
        ("a,z,10,0\n", "line 2: the price is '0'"),
        ("\n\na,z,10,nan\n", "line 4: the price is 'nan'"),
        ("a,z,10,inf\n", "line 2: the price is 'inf'"),
        ("a,z,10,free\n", "line 2: the price is 'free'"),
        ("a,z,10,\n", "line 2: the price is ''"),
        ("a,z,noon,1\n", "line 2: the time is 'noon'; it must be unix seconds"),
        ("a,z,1456360534000,1\n", "line 2: the time is '1456360534000'"),
        ("a,z,10\n", "line 2: has 3 fields, but 4 are needed"),
        ("a,,10,1\n", "line 2: the zone is ''"),
        (" ,z,10,1\n", "line 2: the type is ' '"),
        ("a,z,10,1\nb,z,10,1\na,z,10,2\n", r"line 4: a z at 10 .* costs 2, but 1 in .*line 2; remove one"),
        ("", "has no row below its header"),
    ],
)
def test_invalid_rows_are_errors_with_their_line(tmp_path: Path, rows: str, message: str) -> None:
    path = written(tmp_path / "p.csv", HEADER + rows)
    with pytest.raises(SettingError, match=message) as caught:
        PriceHistory.read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("when,what\n1,2\n", "must name the columns type,az,t,price or datetime,instance_type,os,region,price"),
        ('{"Reservations": []}', "has no list 'SpotPriceHistory'"),
        ('{"SpotPriceHistory": []}', "is empty"),
        ('{"SpotPriceHistory": [\n', "line 2: is not JSON"),
        ('[{"SpotPrice": "1"}]', "entry 1: has no AvailabilityZone, InstanceType"),
        (json.dumps([aws(0, "1"), aws(1, "x")]), "entry 2: the price is 'x'"),
        (json.dumps([aws(0, "1") | {"SpotPrice": True}]), "entry 1: the price is True"),
        (json.dumps([aws(0, "1") | {"Timestamp": 5}]), "entry 1: the time is 5; it must be a date and time"),
        (json.dumps([aws(0, "1") | {"InstanceType": None}]), "entry 1: the type is None"),
        (b"\x1f\x8bhello", "gzipped but incomplete"),
        (gzip.compress(b"x" * 999)[:-9], "gzipped but incomplete"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
    ],
)
def test_a_file_of_another_format_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    path = tmp_path / "p"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SettingError, match=message):
        PriceHistory.read(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"nowhere\.csv: cannot be read \(No such file"):
        PriceHistory.read(tmp_path / "nowhere.csv")
    with pytest.raises(SettingError, match="needs a file"):
        PriceHistory.read()


def test_the_error_for_an_unknown_market_names_similar_ones() -> None:
    history = PriceHistory([PriceSeries(kind, "us-east-1a", [0.0], [1.0]) for kind in ("m4.large", "p2.xlarge")])
    with pytest.raises(UnknownMarket, match=r"^'m4\.larg' has no prices; similar types are m4\.large"):
        history["m4.larg", "us-east-1a"]
    with pytest.raises(KeyError, match=r"m4\.large has no prices in 'us-east-1f'; its zones are us-east-1a"):
        history["m4.large", "us-east-1f"]
    with pytest.raises(SettingError, match=r"'m4\.large' is not a market"):
        history["m4.large"]  # type: ignore[index]


def test_the_recorded_history_is_read() -> None:
    folder = os.environ.get("THRIFTUNE_DATA")
    if not folder:
        pytest.skip("THRIFTUNE_DATA is not set: it names the folder of recorded prices")
    history = PriceHistory.read(Path(folder) / "spot_prices_useast1_2016-02-25_2016-04-09.csv.gz")
    assert (len(history), sum(map(len, history.values())), history.repairs) == (50, 328_513, [])
    one = history["r3.large", "us-east-1c"]
    t = np.random.default_rng(1).uniform(one.start, one.end, 200)
    for max_price in (0.02, 0.166, 1.0):
        after = [one.times[(one.times > start) & (one.prices > max_price)] for start in t]
        expected = [
            start if one.price_at(start) > max_price else later[0] if later.size else math.inf
            for start, later in zip(t, after, strict=True)
        ]
        assert one.next_above(max_price, t).tolist() == expected
