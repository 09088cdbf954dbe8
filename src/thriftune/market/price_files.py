"""Readers of spot price files in three formats.

- thriftune's CSV has the columns `type,az,t,price`; other columns are ignored. A row is a new price in dollars per
  hour from `t` (unix seconds) on.
- The JSON is the output of `aws ec2 describe-spot-price-history`: an object with the list `SpotPriceHistory`, or
  that list alone. A file may have several pages, one after the other.
- Kaggle's CSV, from the data set "AWS Spot Pricing Market", has the columns
  `datetime,instance_type,os,region,price`, with or without a header. Its region is a zone such as us-east-1a. A
  time without a time zone is UTC. The OpenML edition of this data set has no year, so it cannot be read.

Files may be gzipped. Invalid rows raise an error with the file and the line, or the number of the JSON entry. A
row is invalid if its price is not a number above zero, its time cannot be read, or a name or another field is
missing.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thriftune.errors import SettingError
from thriftune.market.text_files import read_text

CSV_COLUMNS = ("type", "az", "t", "price")
KAGGLE_COLUMNS = ("datetime", "instance_type", "os", "region", "price")
AWS_FIELDS = ("Timestamp", "InstanceType", "ProductDescription", "AvailabilityZone", "SpotPrice")
MAX_UNIX_SECONDS = 1e11
"""A time in the year 5138. Greater numbers are probably milliseconds, and are refused."""


@dataclass(frozen=True, slots=True)
class PriceRows:
    """The valid rows of one price file, in the order of the file."""

    path: Path
    unit: str  # what `numbers` count: "line" or "entry"
    numbers: Sequence[int]  # the line or entry number of each row
    types: Sequence[str]
    zones: Sequence[str]
    times: NDArray[np.float64]  # unix seconds
    prices: NDArray[np.float64]  # dollars per hour
    repairs: Sequence[str]  # sentences that say what was repaired

    def location(self, row: int) -> str:
        """Return the file and the line or entry of a row, for error messages."""
        return f"{self.path}, {self.unit} {self.numbers[row]}"


@dataclass(frozen=True, slots=True)
class _Columns:
    """The fields of a file before conversion.

    `seconds` converts a time to unix seconds. `products` is None if the format has no products.
    """

    unit: str
    numbers: Sequence[int]
    types: Sequence[Any]
    zones: Sequence[Any]
    times: Sequence[Any]
    prices: Sequence[Any]
    seconds: Callable[[Any], float]
    products: Sequence[Any] | None


def read_rows(path: Path, product: str) -> PriceRows:
    """Return the rows of a price file for one product, such as "Linux/UNIX".

    Raise a SettingError if the file has another format or an invalid row.
    """
    text = read_text(path)
    if not text.strip():
        raise SettingError(f"{path}: is empty; give a file with prices")
    columns = (_json if text.lstrip()[0] in "[{" else _csv)(path, text)
    repairs = []
    if columns.products is not None and any(other != product for other in columns.products):
        counts = Counter(columns.products)
        if product not in counts:
            names = ", ".join(repr(name) for name in counts)
            raise SettingError(f"{path}: has no row of the product {product!r}; its products are {names}")
        repairs.append(f"{len(columns.products) - counts[product]} rows of other products were ignored")
        columns = _select_rows(columns, [name == product for name in columns.products])
    rows = PriceRows(
        path,
        columns.unit,
        columns.numbers,
        columns.types,
        columns.zones,
        _floats(columns.seconds, columns.times),
        _floats(_dollars, columns.prices),
        repairs,
    )
    _check(rows, columns)
    return rows


# --- the formats ------------------------------------------------------------------------------------------


def _csv(path: Path, text: str) -> _Columns:
    """Return the columns of a file in thriftune's or Kaggle's CSV format."""
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        rows = list(reader)
    except csv.Error as error:
        raise SettingError(f"{path}, line {reader.line_num}: {error}") from None
    numbers = [number for number, row in enumerate(rows, start=1) if row]
    rows = [row for row in rows if row]
    header = [name.strip().lower() for name in rows[0]]
    names = next((names for names in (CSV_COLUMNS, KAGGLE_COLUMNS) if set(names) <= set(header)), None)
    if names:
        numbers, rows = numbers[1:], rows[1:]
    elif len(header) == len(KAGGLE_COLUMNS) and np.isfinite(_float_or_nan(_seconds, rows[0][0])):
        names, header = KAGGLE_COLUMNS, list(KAGGLE_COLUMNS)
    else:
        raise SettingError(
            f"{path}: its first line must name the columns {','.join(CSV_COLUMNS)} or {','.join(KAGGLE_COLUMNS)}; "
            f"it is {','.join(rows[0])!r}"
        )
    if not rows:
        raise SettingError(f"{path}: has no row below its header")
    for number, row in zip(numbers, rows, strict=True):
        if len(row) != len(header):
            raise SettingError(f"{path}, line {number}: has {len(row)} fields, but {len(header)} are needed")
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    if names is CSV_COLUMNS:
        types, zones, times, prices = (columns[name] for name in CSV_COLUMNS)
        return _Columns("line", numbers, types, zones, times, prices, float, None)
    times, types, products, zones, prices = (columns[name] for name in KAGGLE_COLUMNS)
    return _Columns("line", numbers, types, zones, times, prices, _seconds, products)


def _json(path: Path, text: str) -> _Columns:
    """Return the columns of a file in the JSON format of the AWS command."""
    entries: list[Any] = []
    decoder, position = json.JSONDecoder(), 0
    try:
        while (position := _skip_whitespace(text, position)) < len(text):
            page, position = decoder.raw_decode(text, position)
            entries += page["SpotPriceHistory"] if isinstance(page, dict) else page
    except (KeyError, TypeError):
        raise SettingError(
            f"{path}: has no list 'SpotPriceHistory'; give the output of aws ec2 describe-spot-price-history"
        ) from None
    except json.JSONDecodeError as error:
        raise SettingError(f"{path}, line {error.lineno}: is not JSON: {error.msg}") from None
    if not entries:
        raise SettingError(f"{path}: its SpotPriceHistory is empty")
    for number, entry in enumerate(entries, start=1):
        missing = set(AWS_FIELDS) - set(entry) if isinstance(entry, dict) else set(AWS_FIELDS)
        if missing:
            raise SettingError(f"{path}, entry {number}: has no {', '.join(sorted(missing))}")
    times, types, products, zones, prices = ([entry[name] for entry in entries] for name in AWS_FIELDS)
    return _Columns("entry", range(1, len(entries) + 1), types, zones, times, prices, _seconds, products)


def _skip_whitespace(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position


def _dollars(value: Any) -> float:
    """Convert a number, or its text, to a float.

    JSON's `true` is refused, because float() would turn it into 1.
    """
    if isinstance(value, bool):
        raise TypeError(value)
    return float(value)


def _seconds(text: str) -> float:
    time = datetime.fromisoformat(text.strip())
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


# --- conversion and checks --------------------------------------------------------------------------------


def _floats(convert: Callable[[Any], float], values: Iterable[Any]) -> NDArray[np.float64]:
    """Convert the values; one that cannot be converted becomes NaN."""
    values = list(values)
    try:
        return np.array([convert(value) for value in values], dtype=np.float64)
    except (ValueError, TypeError, AttributeError, OverflowError):
        return np.array([_float_or_nan(convert, value) for value in values], dtype=np.float64)


def _float_or_nan(convert: Callable[[Any], float], value: Any) -> float:
    try:
        return convert(value)
    except (ValueError, TypeError, AttributeError, OverflowError):
        return np.nan


def _select_rows(columns: _Columns, chosen: Sequence[bool]) -> _Columns:
    rows = np.flatnonzero(chosen).tolist()
    numbers, types, zones, times, prices = (
        [column[i] for i in rows]
        for column in (columns.numbers, columns.types, columns.zones, columns.times, columns.prices)
    )
    return _Columns(columns.unit, numbers, types, zones, times, prices, columns.seconds, None)


def _check(rows: PriceRows, columns: _Columns) -> None:
    """Raise a SettingError for the first invalid price, time, type or zone."""
    time_form = "unix seconds" if columns.seconds is float else "a date and time"
    bad_prices = ~((rows.prices > 0) & np.isfinite(rows.prices))
    bad_times = ~(np.abs(rows.times) < MAX_UNIX_SECONDS)
    for field, values, bad, expected in (
        ("price", columns.prices, bad_prices, "a number of dollars per hour above zero"),
        ("time", columns.times, bad_times, time_form),
    ):
        if bad.any():
            row = int(np.argmax(bad))
            raise SettingError(f"{rows.location(row)}: the {field} is {values[row]!r}; it must be {expected}")
    for field, names in (("type", rows.types), ("zone", rows.zones)):
        invalid = {name for name in set(names) if not isinstance(name, str) or not name.strip()}
        if invalid:
            row = next(i for i, name in enumerate(names) if name in invalid)
            raise SettingError(f"{rows.location(row)}: the {field} is {names[row]!r}; it must be a name")
