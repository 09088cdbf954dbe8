"""What machines are there to rent, and what do they cost?

A catalog is a CSV with the columns of `COLUMNS`, a row a machine type and region. The one that comes with
thriftune (catalog.csv, beside this module) has the list prices of Linux machines, of AWS in us-east-1 and of
Google Cloud in us-central1, for August 2026, as SkyPilot's public catalog gathers them: the types of SpotTune's
Table III, SciSpot's n1-highcpu family and a choice of today's. RubberBand's p3.2xlarge to p3.16xlarge are no
longer on that list, and stand there with AWS's list price of April 2021. A type of Google's with accelerators
costs what its machine and its accelerators are listed at together. Google sets one spot price a region, which
stands there, too; AWS's moves by the zone and the hour.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from thriftune.errors import SettingError

COLUMNS = (
    "provider",
    "name",
    "cores",
    "memory_gib",
    "accelerator",
    "accelerators",
    "price_per_hour",
    "spot_price_per_hour",
    "region",
    "as_of",
)
_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?")
_SHIPPED = Path(__file__).with_name("catalog.csv")
_YARDSTICK = "c7i."


@dataclass(frozen=True, slots=True)
class Offer:
    """A kind of machine somebody rents out, at a price that was true at a date.

    - `cores`: as the provider counts them (vCPUs).
    - `price_per_hour`: dollars, on demand.
    - `spot_price_per_hour`: where the provider sets one for the region; None where it moves, or is not known.
    - `as_of`: the month or the day of the price, as in "2026-08".
    """

    provider: str
    name: str
    cores: int
    memory_gib: float
    price_per_hour: float
    region: str
    as_of: str
    accelerator: str = ""
    accelerators: int = 0
    spot_price_per_hour: float | None = None

    def __post_init__(self) -> None:
        for field in ("provider", "name", "region"):
            if not getattr(self, field).strip():
                raise SettingError(f"{field}: is missing")
        if self.cores < 1:
            raise SettingError(f"cores: {self.cores} is below 1")
        if not 0 < self.memory_gib < math.inf:
            raise SettingError(f"memory_gib: {self.memory_gib:g} must be above 0")
        for field in ("price_per_hour", "spot_price_per_hour"):
            price = getattr(self, field)
            if price is not None and not 0 <= price < math.inf:
                raise SettingError(f"{field}: {price:g} must be 0 or more")
        if self.accelerators < 0:
            raise SettingError(f"accelerators: {self.accelerators} is below 0")
        if bool(self.accelerator) != bool(self.accelerators):
            what = self.accelerator or "no name"
            raise SettingError(
                f"accelerators: {self.accelerators} of {what}; give both their name and their number"
            )
        if not _DATE.fullmatch(self.as_of):
            raise SettingError(f"as_of: {self.as_of!r} is no month and no day; write 2026-08 or 2026-08-31")

    @property
    def title(self) -> str:
        """Its name, with its provider's before it."""
        return f"{self.provider} {self.name}"

    def __str__(self) -> str:
        return f"{self.title}, {self.region}, ${self.price_per_hour:g}/h on demand, {self.as_of}"


class Catalog:
    """Offers, no two of them of one provider, name and region."""

    def __init__(self, offers: Iterable[Offer]) -> None:
        self._offers: dict[tuple[str, str, str], Offer] = {}
        for offer in offers:
            if _key(offer) in self._offers:
                raise SettingError(f"{offer.title}: is there twice in {offer.region}")
            self._offers[_key(offer)] = offer

    @staticmethod
    @cache
    def shipped() -> Catalog:
        """The one that comes with thriftune."""
        return Catalog.read(_SHIPPED)

    @classmethod
    def read(cls, path: str | Path) -> Catalog:
        """A CSV, perhaps gzipped, with all of `COLUMNS`, in any order; others are ignored, and so are empty lines.

        A machine without accelerators leaves their cells empty, and so does one whose spot price is not known.
        """
        try:
            data = Path(path).read_bytes()
            text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
            return cls(_rows(path, io.StringIO(text, newline="")))
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise SettingError(f"{path}: is gzipped, but not whole; get it again") from None
        except OSError as error:
            raise SettingError(f"{path}: cannot be read ({error.strerror})") from None
        except UnicodeDecodeError:
            raise SettingError(f"{path}: is no text in UTF-8") from None

    def extended(self, other: Catalog) -> Catalog:
        """With the offers of `other`; these replace those of the same provider, name and region."""
        return Catalog((self._offers | other._offers).values())

    def find(self, name: str, region: str | None = None) -> Offer:
        """The offer of this name; the region may be left out where there is only one."""
        named = [offer for offer in self if offer.name == name]
        found = [offer for offer in named if region in (None, offer.region)]
        if len(found) == 1:
            return found[0]
        if found:
            places = ", ".join(f"{offer.region} ({offer.provider})" for offer in found)
            raise SettingError(f"{name}: is offered in {places}; say which is meant")
        if named:
            raise SettingError(f"{name}: is not offered in {region}, but in {', '.join(o.region for o in named)}")
        near = difflib.get_close_matches(str(name), {offer.name for offer in self}, n=3)
        hint = f"is {' or '.join(near)} meant? " if near else ""
        family = re.split(r"[.-]", near[0])[0] if near else ""
        more = f"`thriftune market catalog --search {family}`" if near else "`thriftune market catalog`"
        raise SettingError(f"{name}: is not in the catalog of {len(self)} offers; {hint}{more} lists what is")

    def __getitem__(self, name: str) -> Offer:
        return self.find(name)

    def having(
        self,
        *,
        cores: int = 1,
        memory_gib: float = 0.0,
        accelerator: str | None = None,
        accelerators: int = 0,
        provider: str | None = None,
        region: str | None = None,
    ) -> Catalog:
        """Those with so much of it, or more; by name, those of this accelerator, provider, region alone."""
        return Catalog(
            offer
            for offer in self
            if offer.cores >= cores
            and offer.memory_gib >= memory_gib
            and offer.accelerators >= accelerators
            and accelerator in (None, offer.accelerator)
            and provider in (None, offer.provider)
            and region in (None, offer.region)
        )

    def __iter__(self) -> Iterator[Offer]:
        return iter(self._offers.values())

    def __len__(self) -> int:
        return len(self._offers)

    def __repr__(self) -> str:
        return f"Catalog({len(self)} offers of {', '.join(sorted({offer.provider for offer in self}))})"


def reference_offer(cores: int) -> Offer:
    """The smallest of AWS's c7i with so many cores, or the largest there is: what a plain machine costs."""
    family = sorted((o for o in Catalog.shipped() if o.name.startswith(_YARDSTICK)), key=lambda o: o.cores)
    return next((offer for offer in family if offer.cores >= cores), family[-1])


def _key(offer: Offer) -> tuple[str, str, str]:
    return offer.provider, offer.name, offer.region


def _rows(path: str | Path, text: Iterable[str]) -> Iterator[Offer]:
    """What is wrong is told with its line."""
    reader = csv.reader(text, strict=True)
    header: list[str] | None = None
    lines: dict[tuple[str, str, str], int] = {}
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if header is None:
                header = _header(cells)
                continue
            if len(cells) != len(header):
                raise SettingError(f"has {len(cells)} cells where the header has {len(header)}")
            offer = _offer({column: cell.strip() for column, cell in zip(header, cells, strict=True)})
            if _key(offer) in lines:
                raise SettingError(f"{offer.title} in {offer.region}: stands in line {lines[_key(offer)]} already")
            lines[_key(offer)] = reader.line_num
            yield offer
    except (SettingError, csv.Error) as error:
        raise SettingError(f"{path}, line {max(reader.line_num, 1)}: {error}") from None
    if header is None:
        raise SettingError(f"{path}: is empty; its first line must be {','.join(COLUMNS)}")


def _header(cells: list[str]) -> list[str]:
    header = [cell.strip() for cell in cells]
    missing = [column for column in COLUMNS if column not in header]
    if missing:
        raise SettingError(f"the header lacks {', '.join(missing)}; it must have {','.join(COLUMNS)}")
    twice = sorted({column for column in COLUMNS if header.count(column) > 1})
    if twice:
        raise SettingError(f"the header has {', '.join(twice)} twice")
    return header


def _offer(row: Mapping[str, str]) -> Offer:
    return Offer(
        provider=row["provider"],
        name=row["name"],
        cores=_whole(row, "cores"),
        memory_gib=_number(row, "memory_gib"),
        price_per_hour=_number(row, "price_per_hour"),
        region=row["region"],
        as_of=row["as_of"],
        accelerator=row["accelerator"],
        accelerators=_whole(row, "accelerators") if row["accelerators"] else 0,
        spot_price_per_hour=_number(row, "spot_price_per_hour") if row["spot_price_per_hour"] else None,
    )


def _number(row: Mapping[str, str], column: str) -> float:
    try:
        number = float(row[column])
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise SettingError(f"{column}: {row[column]!r} is no number")
    return number


def _whole(row: Mapping[str, str], column: str) -> int:
    number = _number(row, column)
    if number != int(number):
        raise SettingError(f"{column}: {row[column]!r} is no whole number")
    return int(number)
