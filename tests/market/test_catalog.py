"""Tests of the catalog: the shipped file, users' own files, and invalid files."""

from __future__ import annotations

import csv
import gzip
import os
import re
from collections.abc import Callable
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thriftune.clouds.local import LocalCloud, cores
from thriftune.errors import SettingError
from thriftune.market.catalog import COLUMNS, Catalog, Offer, reference_offer
from thriftune.state.events import MachineReady

HEADER = "provider,name,cores,memory_gib,accelerator,accelerators,price_per_hour,spot_price_per_hour,region,as_of"
LARGE = Offer("AWS", "m9.large", 2, 8.0, 0.1, "us-east-1", "2026-08")
SMALL = Offer("Lab", "box", 4, 16.0, 0.0, "cellar", "2026-08-31", "T4", 2, 0.05)

WriteCatalog = Callable[[str], Path]


@pytest.fixture
def catalog_file(tmp_path: Path) -> WriteCatalog:
    def write(text: str) -> Path:
        path = tmp_path / "own.csv"
        path.write_text(text, encoding="utf-8")
        return path

    return write


# --- the shipped catalog
# -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cores", "memory_gib", "accelerator", "accelerators", "price_per_hour"),
    [
        # SpotTune's Table III; the paper has 0.33 and 30 GB for r3.xlarge
        ("r4.large", 2, 15.25, "", 0, 0.133),
        ("r3.xlarge", 4, 30.5, "", 0, 0.333),
        ("r4.xlarge", 4, 30.5, "", 0, 0.266),
        ("m4.2xlarge", 8, 32, "", 0, 0.4),
        ("r4.2xlarge", 8, 61, "", 0, 0.532),
        ("m4.4xlarge", 16, 64, "", 0, 0.8),
        # RubberBand: about $3 and $24 an hour
        ("p3.2xlarge", 8, 61, "V100", 1, 3.06),
        ("p3.8xlarge", 32, 244, "V100", 4, 12.24),
        ("p3.16xlarge", 64, 488, "V100", 8, 24.48),
        # SciSpot
        ("n1-highcpu-2", 2, 1.8, "", 0, 0.07085),
        ("n1-highcpu-64", 64, 57.6, "", 0, 2.26715),
    ],
)
def test_the_catalog_has_the_papers_machines(
    name: str, cores: int, memory_gib: float, accelerator: str, accelerators: int, price_per_hour: float
) -> None:
    offer = Catalog.shipped()[name]
    assert (offer.cores, offer.memory_gib, offer.price_per_hour) == (cores, memory_gib, price_per_hour)
    assert (offer.accelerator, offer.accelerators) == (accelerator, accelerators)


def test_scispots_types_cost_the_same_per_core() -> None:
    family = [Catalog.shipped()[f"n1-highcpu-{cores}"] for cores in (2, 4, 8, 16, 32, 64)]
    for offer in family:
        assert offer.price_per_hour / offer.cores == pytest.approx(family[0].price_per_hour / 2, rel=1e-3)
        assert offer.spot_price_per_hour is not None
        assert offer.spot_price_per_hour < offer.price_per_hour


def test_the_shipped_catalog_is_small_and_has_both_clouds() -> None:
    shipped = Catalog.shipped()
    assert 60 <= len(shipped) <= 130
    assert {(offer.provider, offer.region) for offer in shipped} == {("AWS", "us-east-1"), ("GCP", "us-central1")}
    assert {"V100", "T4", "A10G", "L4", "A100", "H100", "H200"} <= {offer.accelerator for offer in shipped}
    assert Catalog.shipped() is shipped


def test_the_shipped_catalog_agrees_with_the_recorded_one() -> None:
    folder = os.environ.get("THRIFTUNE_DATA")
    if not folder:
        pytest.skip("THRIFTUNE_DATA is not set: it names the folder with the recorded catalogs")
    machines: dict[tuple[str, str], dict[str, str]] = {}
    accelerators: dict[tuple[str, int], dict[str, str]] = {}  # Google lists accelerators separately
    for cloud in ("aws", "gcp"):
        with gzip.open(Path(folder) / f"catalog_{cloud}_us_2026-08.csv.gz", "rt") as file:
            for row in csv.DictReader(file):
                machines[row["InstanceType"], row["Region"]] = row
                if not row["InstanceType"] and row["Region"] == "us-central1":
                    accelerators[row["AcceleratorName"], int(row["AcceleratorCount"])] = row
    of_august = [offer for offer in Catalog.shipped() if offer.as_of == "2026-08"]
    assert len(of_august) == len(Catalog.shipped()) - 3
    for offer in of_august:
        row = machines[offer.name, offer.region]
        assert (offer.cores, offer.memory_gib) == pytest.approx(
            (float(row["vCPUs"]), float(row["MemoryGiB"])), 1e-3
        )
        price, spot = float(row["Price"]), float(row["SpotPrice"] or "nan")
        if offer.provider == "AWS":
            assert (offer.accelerator, offer.accelerators) == (
                row["AcceleratorName"],
                float(row["AcceleratorCount"] or 0),
            )
        elif offer.accelerator:
            name = "H100-MEGA" if offer.name.startswith("a3-mega") else offer.accelerator
            extra = accelerators[name, offer.accelerators]
            price, spot = price + float(extra["Price"]), spot + float(extra["SpotPrice"])
        assert offer.price_per_hour == pytest.approx(price, abs=1.1e-5), offer
        assert offer.spot_price_per_hour == (None if offer.provider == "AWS" else pytest.approx(spot, abs=1.1e-5))


@pytest.mark.parametrize(
    ("cores", "name"), [(1, "c7i.large"), (2, "c7i.large"), (3, "c7i.xlarge"), (49, "c7i.16xlarge")]
)
def test_the_reference_offer_is_the_smallest_with_enough_cores(cores: int, name: str) -> None:
    assert reference_offer(cores).name == name


def test_the_reference_offer_is_at_most_the_largest() -> None:
    assert reference_offer(10_000).name == "c7i.48xlarge"
    assert str(reference_offer(10_000)) == "AWS c7i.48xlarge, us-east-1, $8.568/h on demand, 2026-08"


def test_the_local_machine_has_the_price_of_its_reference_offer() -> None:
    (ready,) = LocalCloud(slots=3).open(7.0)
    assert isinstance(ready, MachineReady)
    assert ready.offer == f"AWS {reference_offer(cores()).name}"
    assert ready.price_per_hour == reference_offer(cores()).price_per_hour


# --- users' own catalogs ----------------------------------------------------------------------------------


def test_a_users_csv_is_read(catalog_file: WriteCatalog) -> None:
    path = catalog_file(
        "\ufeffname, provider,cores,memory_gib,accelerator,accelerators,price_per_hour,note,spot_price_per_hour,"
        "region,as_of\n"
        "m9.large,AWS,2.0,8,,,0.1,cheap,,us-east-1,2026-08\n"
        "\n"
        ' box ,Lab,4,16,T4,2,0,"a note, quoted",0.05,cellar,2026-08-31\n'
    )
    for path_or_text in (path, str(path)):
        assert list(Catalog.read(path_or_text)) == [LARGE, SMALL]


def test_extended_adds_and_replaces_offers() -> None:
    more_expensive = replace(LARGE, price_per_hour=0.2)
    elsewhere = replace(LARGE, region="eu-west-1")
    old = Catalog([LARGE, SMALL])
    new = old.extended(Catalog([elsewhere, more_expensive]))
    assert list(new) == [more_expensive, SMALL, elsewhere]
    assert list(old) == [LARGE, SMALL]
    longer = Catalog.shipped().extended(old)
    assert len(longer) == len(Catalog.shipped()) + 2
    assert longer["box"] == SMALL


def test_find_by_name_and_region() -> None:
    elsewhere = replace(LARGE, region="eu-west-1")
    catalog = Catalog([LARGE, elsewhere, SMALL])
    assert catalog["box"] == catalog.find("box") == catalog.find("box", "cellar") == SMALL
    assert catalog.find("m9.large", "eu-west-1") == elsewhere


@pytest.mark.parametrize(
    ("name", "region", "message"),
    [
        ("m9.large", None, "m9.large: is offered in us-east-1 (AWS), eu-west-1 (AWS); give the region"),
        ("box", "attic", "box: is not offered in attic, but in cellar"),
        (
            "m9.larg",
            None,
            "m9.larg: is not in the catalog of 3 offers; did you mean m9.large? `thriftune market "
            "catalog --search m9` lists the offers",
        ),
        (None, None, "None: is not in the catalog of 3 offers; `thriftune market catalog` lists the offers"),
        ("zzz", None, "zzz: is not in the catalog of 3 offers; `thriftune market catalog` lists the offers"),
    ],
)
def test_an_unknown_offer_is_an_error(name: Any, region: str | None, message: str) -> None:
    catalog = Catalog([LARGE, replace(LARGE, region="eu-west-1"), SMALL])
    with pytest.raises(SettingError) as error:
        catalog.find(name, region)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({}, ["m9.large", "box"]),
        ({"cores": 3}, ["box"]),
        ({"cores": 2, "memory_gib": 8}, ["m9.large", "box"]),
        ({"memory_gib": 8.5}, ["box"]),
        ({"accelerator": "T4"}, ["box"]),
        ({"accelerator": "T4", "accelerators": 3}, []),
        ({"accelerators": 1}, ["box"]),
        ({"accelerator": ""}, ["m9.large"]),
        ({"provider": "AWS"}, ["m9.large"]),
        ({"region": "cellar"}, ["box"]),
        ({"cores": 5}, []),
    ],
)
def test_having_selects_offers(wanted: dict[str, Any], names: list[str]) -> None:
    assert [offer.name for offer in Catalog([LARGE, SMALL]).having(**wanted)] == names


texts = st.text(st.characters(categories=["L", "N", "P"], exclude_characters="\ufeff"), min_size=1, max_size=8)
dollars = st.floats(0, 1e6)


@st.composite
def offers(draw: st.DrawFn) -> Offer:
    accelerator = draw(st.one_of(st.just(""), texts))
    return Offer(
        draw(texts),
        draw(texts),
        draw(st.integers(1, 10_000)),
        draw(st.floats(1e-3, 1e6)),
        draw(dollars),
        draw(texts),
        draw(st.sampled_from(["2026-08", "2019-12-31"])),
        accelerator,
        draw(st.integers(1, 64)) if accelerator else 0,
        draw(st.none() | dollars),
    )


@given(rows=st.lists(offers(), max_size=5, unique_by=lambda offer: (offer.provider, offer.name, offer.region)))
def test_a_written_catalog_is_read_back(tmp_path_factory: pytest.TempPathFactory, rows: list[Offer]) -> None:
    path = tmp_path_factory.mktemp("catalog") / "c.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows([getattr(offer, column) for column in COLUMNS] for offer in rows)
    assert list(map(astuple, Catalog.read(path))) == list(map(astuple, rows))


# --- invalid files ----------------------------------------------------------------------------------------

GOOD = "AWS,m9.large,2,8,,,0.1,,us-east-1,2026-08"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("AWS,b,2,8,,,-0.1,,r,2026-08", "line 3: price_per_hour: -0.1 must be 0 or more"),
        ("AWS,b,2,8,,,cheap,,r,2026-08", "line 3: price_per_hour: 'cheap' is not a number"),
        ("AWS,b,2,8,,,,,r,2026-08", "line 3: price_per_hour: '' is not a number"),
        ("AWS,b,2,8,,,nan,,r,2026-08", "line 3: price_per_hour: 'nan' is not a number"),
        ("AWS,b,2,8,,,inf,,r,2026-08", "line 3: price_per_hour: 'inf' is not a number"),
        ("AWS,b,2,8,,,1,-1,r,2026-08", "line 3: spot_price_per_hour: -1 must be 0 or more"),
        ("AWS,b,two,8,,,1,,r,2026-08", "line 3: cores: 'two' is not a number"),
        ("AWS,b,2.5,8,,,1,,r,2026-08", "line 3: cores: '2.5' is not a whole number"),
        ("AWS,b,0,8,,,1,,r,2026-08", "line 3: cores: 0 is below 1"),
        ("AWS,b,2,0,,,1,,r,2026-08", "line 3: memory_gib: 0 must be above 0"),
        ("AWS,b,2,8,T4,,1,,r,2026-08", "line 3: accelerators: 0 of T4; give both their name and their number"),
        ("AWS,b,2,8,,1,1,,r,2026-08", "line 3: accelerators: 1 of no name; give both their name and their number"),
        ("AWS,b,2,8,T4,-1,1,,r,2026-08", "line 3: accelerators: -1 is below 0"),
        (",b,2,8,,,1,,r,2026-08", "line 3: provider: is missing"),
        ("AWS,b,2,8,,,1,,,2026-08", "line 3: region: is missing"),
        ("AWS,b,2,8,,,1,,r,August", "line 3: as_of: 'August' is not a month or day; write 2026-08 or 2026-08-31"),
        (
            "AWS,b,2,8,,,1,,r,2026-13",
            "line 3: as_of: '2026-13' is not a month or day; write 2026-08 or 2026-08-31",
        ),
        ("AWS,b,2,8,1,,r,2026-08", "line 3: has 8 cells where the header has 10"),
        ("\n" + GOOD, "line 4: AWS m9.large in us-east-1: is already in line 2; remove one"),
        ('AWS,"b"c,2,8,,,1,,r,2026-08', "line 3: ',' expected after '\"'"),
    ],
)
def test_an_invalid_row_is_an_error_with_its_line(catalog_file: WriteCatalog, row: str, message: str) -> None:
    path = catalog_file(f"{HEADER}\n{GOOD}\n{row}\n")
    with pytest.raises(SettingError) as error:
        Catalog.read(path)
    assert str(error.value) == f"{path}, {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f": is empty; its first line must be {HEADER}"),
        ("\n\n", f": is empty; its first line must be {HEADER}"),
        (GOOD, f", line 1: the header lacks {HEADER.replace(',', ', ')}; it must have {HEADER}"),
        (HEADER.replace(",cores", ""), f", line 1: the header lacks cores; it must have {HEADER}"),
        (HEADER + ",cores", ", line 1: the header has cores more than once"),
    ],
)
def test_an_invalid_header_is_an_error(catalog_file: WriteCatalog, text: str, message: str) -> None:
    path = catalog_file(text)
    with pytest.raises(SettingError) as error:
        Catalog.read(path)
    assert str(error.value) == f"{path}{message}"


def test_unreadable_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=re.escape(f"{tmp_path / 'none.csv'}: cannot be read (No such file")):
        Catalog.read(tmp_path / "none.csv")
    with pytest.raises(SettingError, match="cannot be read"):
        Catalog.read(tmp_path)
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(SettingError, match=r"is not UTF-8 text"):
        Catalog.read(tmp_path / "bytes.csv")


def test_a_repeated_offer_is_an_error() -> None:
    with pytest.raises(SettingError) as error:
        Catalog([LARGE, LARGE])
    assert str(error.value) == "AWS m9.large: appears twice in us-east-1; remove one of them"
