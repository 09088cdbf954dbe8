"""The catalog of machine types that providers offer, with their list prices.

A catalog file is a CSV with the columns `COLUMNS` and one row per machine type and region. The shipped catalog
(catalog.csv in this folder) has list prices of Linux machines for August 2026, taken from SkyPilot's public
catalog: AWS in us-east-1 and Google Cloud in us-central1. It has the types of SpotTune's Table III, SciSpot's
n1-highcpu family, and a selection of current types.

- RubberBand's p3.2xlarge to p3.16xlarge are no longer listed. Their prices are AWS's list prices of April 2021.
- The price of a Google type with accelerators is the sum of the machine's and the accelerators' list prices.
- Google sets one spot price per region, which the catalog has. AWS's spot prices vary by zone and hour, so the
  catalog has none.
"""

from __future__ import annotations

import csv
import difflib
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from thriftune.errors import SettingError
from thriftune.market.text_files import read_text

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
_REFERENCE_FAMILY = "c7i."  # AWS's plain compute machines, used to estimate the cost of a machine without a price


@dataclass(frozen=True, slots=True)
class Offer:
    """A machine type in a region, at the price of a given date.

    - `cores`: the number of cores as the provider counts them (vCPUs).
    - `price_per_hour`: the on-demand price in dollars.
    - `spot_price_per_hour`: the spot price in dollars if the provider sets one for the region; None if it varies
      or is unknown.
    - `as_of`: the month or day of the price, such as "2026-08".
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
            name = self.accelerator or "no name"
            raise SettingError(
                f"accelerators: {self.accelerators} of {name}; give both their name and their number"
            )
        if not _DATE.fullmatch(self.as_of):
            raise SettingError(f"as_of: {self.as_of!r} is not a month or day; write 2026-08 or 2026-08-31")

    @property
    def title(self) -> str:
        """Return the provider's name and the type's name, such as "AWS m5.large"."""
        return f"{self.provider} {self.name}"

    def __str__(self) -> str:
        return f"{self.title}, {self.region}, ${self.price_per_hour:g}/h on demand, {self.as_of}"


class Catalog:
    """Offers, at most one for each provider, name and region."""

    def __init__(self, offers: Iterable[Offer]) -> None:
        self._offers: dict[tuple[str, str, str], Offer] = {}
        for offer in offers:
            if _key(offer) in self._offers:
                raise SettingError(f"{offer.title}: appears twice in {offer.region}; remove one of them")
            self._offers[_key(offer)] = offer

    @staticmethod
    @cache
    def shipped() -> Catalog:
        """Return the catalog that ships with thriftune."""
        return Catalog.read(_SHIPPED)

    @classmethod
    def read(cls, path: str | Path) -> Catalog:
        """Read a catalog from a CSV file, gzipped or not.

        The file must have all of `COLUMNS`, in any order. Other columns and empty lines are ignored. The cells of
        accelerators and of the spot price may be empty.
        """
        return cls(_rows(path, io.StringIO(read_text(path), newline="")))

    def extended(self, other: Catalog) -> Catalog:
        """Return a catalog with the offers of both catalogs.

        An offer of `other` replaces one with the same provider, name and region.
        """
        return Catalog((self._offers | other._offers).values())

    def find(self, name: str, region: str | None = None) -> Offer:
        """Return the offer of this name.

        `region` may be omitted if the name is offered in one region only. Raise a SettingError if no offer
        matches, or more than one.
        """
        same_name = [offer for offer in self if offer.name == name]
        matches = [offer for offer in same_name if region in (None, offer.region)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            regions = ", ".join(f"{offer.region} ({offer.provider})" for offer in matches)
            raise SettingError(f"{name}: is offered in {regions}; give the region")
        if same_name:
            regions = ", ".join(offer.region for offer in same_name)
            raise SettingError(f"{name}: is not offered in {region}, but in {regions}")
        similar = difflib.get_close_matches(str(name), {offer.name for offer in self}, n=3)
        hint = f"did you mean {' or '.join(similar)}? " if similar else ""
        family = re.split(r"[.-]", similar[0])[0] if similar else ""
        command = f"`thriftune market catalog --search {family}`" if similar else "`thriftune market catalog`"
        raise SettingError(
            f"{name}: is not in the catalog of {len(self)} offers; {hint}{command} lists the offers"
        )

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
        """Return a catalog of the offers that meet all of these conditions.

        Cores, memory and the number of accelerators are minimums. The accelerator, the provider and the region
        must be equal if given.
        """
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
    """Return the smallest c7i machine of AWS with at least `cores` cores.

    If none is large enough, return the largest one. The price of this offer estimates the cost of a machine that
    has no known price.
    """
    family = sorted((o for o in Catalog.shipped() if o.name.startswith(_REFERENCE_FAMILY)), key=lambda o: o.cores)
    return next((offer for offer in family if offer.cores >= cores), family[-1])


def _key(offer: Offer) -> tuple[str, str, str]:
    return offer.provider, offer.name, offer.region


def _rows(path: str | Path, text: Iterable[str]) -> Iterator[Offer]:
    """Parse the rows of a catalog file; errors name the file and the line."""
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
                raise SettingError(
                    f"{offer.title} in {offer.region}: is already in line {lines[_key(offer)]}; remove one"
                )
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
    repeated = sorted({column for column in COLUMNS if header.count(column) > 1})
    if repeated:
        raise SettingError(f"the header has {', '.join(repeated)} more than once")
    return header


def _offer(row: Mapping[str, str]) -> Offer:
    return Offer(
        provider=row["provider"],
        name=row["name"],
        cores=_whole_number(row, "cores"),
        memory_gib=_number(row, "memory_gib"),
        price_per_hour=_number(row, "price_per_hour"),
        region=row["region"],
        as_of=row["as_of"],
        accelerator=row["accelerator"],
        accelerators=_whole_number(row, "accelerators") if row["accelerators"] else 0,
        spot_price_per_hour=_number(row, "spot_price_per_hour") if row["spot_price_per_hour"] else None,
    )


def _number(row: Mapping[str, str], column: str) -> float:
    try:
        number = float(row[column])
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise SettingError(f"{column}: {row[column]!r} is not a number")
    return number


def _whole_number(row: Mapping[str, str], column: str) -> int:
    number = _number(row, column)
    if number != int(number):
        raise SettingError(f"{column}: {row[column]!r} is not a whole number")
    return int(number)
