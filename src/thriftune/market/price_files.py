"""What does a file of spot prices hold? This project's CSV, the JSON of the AWS command line, or the Kaggle CSV.

- CSV with the columns `type,az,t,price` (others are passed over): a row is the new price, in dollars an hour, from
  `t` (unix seconds) on.
- JSON as `aws ec2 describe-spot-price-history` prints it: an object with the list `SpotPriceHistory`, or that
  list alone; several pages may follow one another in one file.
- CSV with `datetime,instance_type,os,region,price`, with or without that header, as in the Kaggle data set "AWS
  Spot Pricing Market", where the region is a zone such as us-east-1a. A time that names no time zone is UTC. The
  edition on OpenML has no year in it and cannot be read.

Each may be gzipped. A row that makes no sense (a price that is not a number above zero, a time that is none, a
name that is missing, too few fields) is refused with its file and line, or in JSON the number of its entry.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thriftune.errors import SettingError

OWN = ("type", "az", "t", "price")
KAGGLE = ("datetime", "instance_type", "os", "region", "price")
AWS = ("Timestamp", "InstanceType", "ProductDescription", "AvailabilityZone", "SpotPrice")
LATEST_SECONDS = 1e11
"""In the year 5138: a later time is one in milliseconds."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one file, in its order."""

    path: Path
    unit: str  # what is counted in it: line or entry
    numbers: Sequence[int]
    types: Sequence[str]
    zones: Sequence[str]
    times: NDArray[np.float64]
    prices: NDArray[np.float64]
    repairs: Sequence[str]

    def where(self, row: int) -> str:
        return f"{self.path}, {self.unit} {self.numbers[row]}"


@dataclass(frozen=True, slots=True)
class _Columns:
    """The fields as they stand in the file. Where every row is of one product, `products` is None."""

    unit: str
    numbers: Sequence[int]
    types: Sequence[Any]
    zones: Sequence[Any]
    times: Sequence[Any]
    prices: Sequence[Any]
    seconds: Callable[[Any], float]
    products: Sequence[Any] | None


def read_rows(path: Path, product: str) -> Rows:
    """The rows of that product; a file of another form, or with a row that makes no sense, is a SettingError."""
    text = _text(path)
    if not text.strip():
        raise SettingError(f"{path}: is empty")
    columns = (_json if text.lstrip()[0] in "[{" else _csv)(path, text)
    repairs = []
    if columns.products is not None and any(other != product for other in columns.products):
        counts = Counter(columns.products)
        if product not in counts:
            there = ", ".join(repr(name) for name in counts)
            raise SettingError(f"{path}: has no row of the product {product!r}; there are {there}")
        repairs.append(f"{len(columns.products) - counts[product]} rows of other products were left out")
        columns = _only(columns, [name == product for name in columns.products])
    rows = Rows(
        path,
        columns.unit,
        columns.numbers,
        columns.types,
        columns.zones,
        _numbers(columns.seconds, columns.times),
        _numbers(_dollars, columns.prices),
        repairs,
    )
    _check(rows, columns)
    return rows


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
        if raw.startswith(b"\x1f\x8b"):
            raw = gzip.decompress(raw)
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SettingError(f"{path}: is no text; it must be CSV or JSON, perhaps gzipped") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SettingError(f"{path}: is gzipped, but not whole: {error}") from None
    except OSError as error:
        raise SettingError(f"{path}: {error.strerror or error}") from None


# --- the forms --------------------------------------------------------------------------------------------


def _csv(path: Path, text: str) -> _Columns:
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        found = list(reader)
    except csv.Error as error:
        raise SettingError(f"{path}, line {reader.line_num}: {error}") from None
    numbers = [number for number, row in enumerate(found, start=1) if row]
    found = [row for row in found if row]
    header = [name.strip().lower() for name in found[0]]
    form = next((form for form in (OWN, KAGGLE) if set(form) <= set(header)), None)
    if form:
        numbers, found = numbers[1:], found[1:]
    elif len(header) == len(KAGGLE) and np.isfinite(_or_nan(_seconds, found[0][0])):
        form, header = KAGGLE, list(KAGGLE)
    else:
        raise SettingError(
            f"{path}: its first line must name the columns {','.join(OWN)} or {','.join(KAGGLE)}; "
            f"it is {','.join(found[0])!r}"
        )
    if not found:
        raise SettingError(f"{path}: has no row below its header")
    for number, row in zip(numbers, found, strict=True):
        if len(row) != len(header):
            raise SettingError(f"{path}, line {number}: has {len(row)} fields, where {len(header)} are needed")
    columns = dict(zip(header, zip(*found, strict=True), strict=True))
    if form is OWN:
        types, zones, times, prices = (columns[name] for name in OWN)
        return _Columns("line", numbers, types, zones, times, prices, float, None)
    times, types, products, zones, prices = (columns[name] for name in KAGGLE)
    return _Columns("line", numbers, types, zones, times, prices, _seconds, products)


def _json(path: Path, text: str) -> _Columns:
    entries: list[Any] = []
    decoder, at = json.JSONDecoder(), 0
    try:
        while (at := _after_space(text, at)) < len(text):
            page, at = decoder.raw_decode(text, at)
            entries += page["SpotPriceHistory"] if isinstance(page, dict) else page
    except (KeyError, TypeError):
        raise SettingError(
            f"{path}: has no list 'SpotPriceHistory', as aws ec2 describe-spot-price-history prints it"
        ) from None
    except json.JSONDecodeError as error:
        raise SettingError(f"{path}, line {error.lineno}: is no JSON: {error.msg}") from None
    if not entries:
        raise SettingError(f"{path}: its SpotPriceHistory is empty")
    for number, entry in enumerate(entries, start=1):
        missing = set(AWS) - set(entry) if isinstance(entry, dict) else set(AWS)
        if missing:
            raise SettingError(f"{path}, entry {number}: has no {', '.join(sorted(missing))}")
    times, types, products, zones, prices = ([entry[name] for entry in entries] for name in AWS)
    return _Columns("entry", range(1, len(entries) + 1), types, zones, times, prices, _seconds, products)


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _dollars(told: Any) -> float:
    """A number, or one in words as AWS tells it; JSON's true would count as 1."""
    if isinstance(told, bool):
        raise TypeError(told)
    return float(told)


def _seconds(text: str) -> float:
    time = datetime.fromisoformat(text.strip())
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


# --- what is refused --------------------------------------------------------------------------------------


def _numbers(convert: Callable[[Any], float], values: Iterable[Any]) -> NDArray[np.float64]:
    """What cannot be converted is NaN."""
    values = list(values)
    try:
        return np.array([convert(value) for value in values], dtype=np.float64)
    except (ValueError, TypeError, AttributeError, OverflowError):
        return np.array([_or_nan(convert, value) for value in values], dtype=np.float64)


def _or_nan(convert: Callable[[Any], float], value: Any) -> float:
    try:
        return convert(value)
    except (ValueError, TypeError, AttributeError, OverflowError):
        return np.nan


def _only(columns: _Columns, chosen: Sequence[bool]) -> _Columns:
    kept = np.flatnonzero(chosen).tolist()
    numbers, types, zones, times, prices = (
        [column[i] for i in kept]
        for column in (columns.numbers, columns.types, columns.zones, columns.times, columns.prices)
    )
    return _Columns(columns.unit, numbers, types, zones, times, prices, columns.seconds, None)


def _check(rows: Rows, columns: _Columns) -> None:
    for what, told, bad in (
        ("price", columns.prices, ~((rows.prices > 0) & np.isfinite(rows.prices))),
        ("time", columns.times, ~(np.abs(rows.times) < LATEST_SECONDS)),
    ):
        if bad.any():
            row = int(np.argmax(bad))
            must = {
                "price": "must be a number of dollars an hour above zero",
                "time": "must be unix seconds" if columns.seconds is float else "must be a date and time",
            }[what]
            raise SettingError(f"{rows.where(row)}: the {what} is {told[row]!r}; it {must}")
    for what, names in (("type", rows.types), ("zone", rows.zones)):
        nameless = {name for name in set(names) if not isinstance(name, str) or not name.strip()}
        if nameless:
            row = next(i for i, name in enumerate(names) if name in nameless)
            raise SettingError(f"{rows.where(row)}: the {what} is {names[row]!r}; it must be a name")
