"""Spot prices over time: step functions, read from recorded price histories.

Times are unix seconds, and prices are dollars per hour. A row is a new price from its time on. The price before a
market's first row is unknown. Its last price holds until the end of the record, which is the latest time in all
files that were read together. A query outside of this range raises an error.

Reading repairs small faults and lists them in `PriceHistory.repairs`: it sorts rows that are out of order, drops
repeated rows, ignores rows of other products, and fills gaps with the price before them. Contradicting and invalid
rows raise an error with the file and the line.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import math
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thriftune.errors import SettingError
from thriftune.market.price_files import CSV_COLUMNS, PriceRows, read_rows

Floats = NDArray[np.float64]
Market = tuple[str, str]  # a machine type and a zone

MINUTE = 60.0
GAP_SECONDS = 2 * 86400.0
"""AWS repeats a price every day, so two days without a row are a gap in the record."""


class UnknownMarket(SettingError, KeyError):
    """The error for a type and zone whose prices the history does not have.

    The message names similar markets.
    """

    def __str__(self) -> str:  # KeyError would put the message in quotes
        return str(self.args[0])


class PriceSeries:
    """The prices of one machine type in one zone, from `start` to `end`.

    The price is `prices[i]` from `times[i]` on. Methods take one time or an array of times. `times` rise, and all
    `prices` are above zero.
    """

    def __init__(
        self, type: str, zone: str, times: ArrayLike, prices: ArrayLike, *, end: float | None = None
    ) -> None:
        self.type, self.zone = type, zone
        self.times, self.prices = _frozen(times), _frozen(prices)
        name = f"{type} {zone}"
        if self.times.ndim != 1 or self.times.shape != self.prices.shape or not self.times.size:
            raise SettingError(
                f"{name}: needs one price for each time, and at least one; "
                f"the shapes are {self.times.shape} for times and {self.prices.shape} for prices"
            )
        if not np.isfinite(self.times).all() or not (np.diff(self.times) > 0).all():
            raise SettingError(f"{name}: times must be finite and rising")
        if not ((self.prices > 0) & np.isfinite(self.prices)).all():
            raise SettingError(f"{name}: prices must be above zero and finite; the lowest is {self.prices.min()}")
        self.start = float(self.times[0])
        self.end = float(self.times[-1] if end is None else end)
        if not self.times[-1] <= self.end < math.inf:
            raise SettingError(
                f"{name}: end {self.end} must be finite and not before the last row at {self.times[-1]}"
            )

    def __len__(self) -> int:
        return len(self.times)

    def __repr__(self) -> str:
        return (
            f"PriceSeries({self.type} {self.zone}, {len(self)} rows, {_date(self.start)} to {_date(self.end)}, "
            f"${self.prices.min():g} to ${self.prices.max():g})"
        )

    @overload
    def price_at(self, t: float) -> float: ...
    @overload
    def price_at(self, t: Floats) -> Floats: ...
    def price_at(self, t: float | Floats) -> float | Floats:
        """Return the price at `t`."""
        if isinstance(t, float):
            return self._price_list[self._row_at(t)]
        return _float_or_array(self.prices[self._rows_at(np.asarray(t, dtype=np.float64))])

    @overload
    def mean(self, t0: float, t1: float) -> float: ...
    @overload
    def mean(self, t0: Floats, t1: float | Floats) -> Floats: ...
    @overload
    def mean(self, t0: float, t1: Floats) -> Floats: ...
    def mean(self, t0: float | Floats, t1: float | Floats) -> float | Floats:
        """Return the mean price from `t0` to `t1`, weighted by time.

        If both times are equal, return the price at `t0`.
        """
        if isinstance(t0, float) and isinstance(t1, float) and t0 <= t1:
            return self._mean_between(t0, t1)
        t0, t1 = np.broadcast_arrays(np.asarray(t0, dtype=np.float64), np.asarray(t1, dtype=np.float64))
        first, last = self._rows_at(t0), self._rows_at(t1)
        if (t1 < t0).any():
            worst = int(np.argmax(t0 - t1))
            raise SettingError(
                f"{self.type} {self.zone}: a mean from {t0.flat[worst]:.0f} to {t1.flat[worst]:.0f}, "
                "which is earlier; give the earlier time first"
            )
        # Sum the end of the first step, the whole steps between, and the start of the last step. The difference of
        # two cumulative sums alone would lose digits if the window is short.
        second = np.minimum(first + 1, len(self) - 1)
        spent = self.prices[first] * (self.times[second] - t0)
        spent += self._cumulative[last] - self._cumulative[second]
        spent += self.prices[last] * (t1 - self.times[last])
        several = first < last
        return _float_or_array(np.where(several, spent / np.where(several, t1 - t0, 1.0), self.prices[first]))

    @overload
    def next_above(self, price: float, t: float) -> float: ...
    @overload
    def next_above(self, price: Floats, t: float | Floats) -> Floats: ...
    @overload
    def next_above(self, price: float, t: Floats) -> Floats: ...
    def next_above(self, price: float | Floats, t: float | Floats) -> float | Floats:
        """Return the first time from `t` on at which the price is above `price`.

        It is infinite if the record has no such time. A machine with this maximum price that runs at `t` is
        preempted at that time.
        """
        t, price = np.broadcast_arrays(np.asarray(t, dtype=np.float64), np.asarray(price, dtype=np.float64))
        row = self._rows_at(t)
        if np.isnan(price).any():
            raise SettingError(f"{self.type} {self.zone}: a maximum price is NaN; give a number")
        above_now = self.prices[row] > price
        # Skip rows in blocks of 2^k, the largest blocks first. A block can be skipped if its highest price is not
        # above the maximum.
        for power in reversed(range(len(self._block_maxima))):
            maxima = self._block_maxima[power]
            valid = row < len(maxima)
            skip = valid & (maxima[np.where(valid, row, 0)] <= price)
            row = row + (skip << power)
        return _float_or_array(np.where(above_now, t, np.append(self.times, math.inf)[row]))

    def lifetimes(self, max_price: float | Floats, t: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the lifetimes of machines rented at times `t` with a maximum price.

        Use them to fit a lifetime distribution. The result is a pair: the hours that each machine lived, and
        whether it was preempted. A machine that was not preempted lived until the end of the record. Times at
        which the price is above the maximum are omitted.
        """
        t, price = np.broadcast_arrays(np.asarray(t, dtype=np.float64), np.asarray(max_price, dtype=np.float64))
        until = self.next_above(price, t)
        rentable = until > t
        return (np.minimum(until, self.end) - t)[rentable] / 3600.0, np.isfinite(until)[rentable]

    def minutes(self, t0: float, t1: float) -> Floats:
        """Return the prices at t0 and at every full minute after it, before t1."""
        self._check_order(t0, t1)
        return self.price_at(np.arange(t0, t1, MINUTE))

    def window(self, t0: float, t1: float) -> PriceSeries:
        """Return the series from t0 to t1; its first row is the price at t0."""
        self._check_order(t0, t1)
        first, last = self._rows_at(np.array([t0, t1])).tolist()
        times = np.append(t0, self.times[first + 1 : last + 1])
        return PriceSeries(self.type, self.zone, times, self.prices[first : last + 1], end=t1)

    def _check_order(self, t0: float, t1: float) -> None:
        if not t0 <= t1:
            raise SettingError(
                f"{self.type} {self.zone}: a window from {t0:.0f} to {t1:.0f}, which is earlier; "
                "give the earlier time first"
            )

    # Policies query single times very often. For a single time, a search in a list is 20 times as fast as in an
    # array.

    def _row_at(self, t: float) -> int:
        """Return the index of the row whose price holds at `t`."""
        if not self.start <= t <= self.end:
            self._rows_at(np.asarray(t))  # raises the error that names the time
        return bisect_right(self._time_list, t) - 1

    def _mean_between(self, t0: float, t1: float) -> float:
        times, prices, cumulative = self._time_list, self._price_list, self._cumulative_list
        first, last = self._row_at(t0), self._row_at(t1)
        if first == last:
            return prices[first]
        whole = cumulative[last] - cumulative[first + 1]
        return (prices[first] * (times[first + 1] - t0) + whole + prices[last] * (t1 - times[last])) / (t1 - t0)

    @cached_property
    def _time_list(self) -> list[float]:
        return list(map(float, self.times))

    @cached_property
    def _price_list(self) -> list[float]:
        return list(map(float, self.prices))

    @cached_property
    def _cumulative_list(self) -> list[float]:
        return list(map(float, self._cumulative))

    @cached_property
    def _cumulative(self) -> Floats:
        """Return the integral of the price from the start to each row.

        Its unit is dollars per hour times seconds.
        """
        return np.append(0.0, np.cumsum(self.prices[:-1] * np.diff(self.times)))

    @cached_property
    def _block_maxima(self) -> list[Floats]:
        """Return the maxima of blocks of rows.

        Element [k][i] is the highest price of the 2^k rows from i on.
        """
        maxima = [self.prices]
        while len(maxima[-1]) > (half := 1 << (len(maxima) - 1)):
            maxima.append(np.maximum(maxima[-1][:-half], maxima[-1][half:]))
        return maxima

    def _rows_at(self, t: Floats) -> NDArray[np.intp]:
        """Return the indices of the rows whose prices hold at times `t`."""
        outside = ~((t >= self.start) & (t <= self.end))
        if outside.any():
            first_outside = _date(float(t[outside].flat[0]))
            raise SettingError(
                f"{self.type} {self.zone}: no price is known at {first_outside}; "
                f"the record goes from {_date(self.start)} to {_date(self.end)}"
            )
        return np.searchsorted(self.times, t, side="right") - 1


class PriceHistory(Mapping[Market, PriceSeries]):
    """The price series of many markets, by type and zone: `history[type, zone]`.

    `repairs` are sentences that say which faults of the files were repaired.
    """

    def __init__(self, series: Iterable[PriceSeries], repairs: Sequence[str] = ()) -> None:
        self._series: dict[Market, PriceSeries] = {}
        for one in series:
            if (one.type, one.zone) in self._series:
                raise SettingError(f"{one.type} {one.zone}: has two series; give only one")
            self._series[one.type, one.zone] = one
        self.repairs = list(repairs)

    @classmethod
    def read(cls, *paths: str | os.PathLike[str], product: str = "Linux/UNIX") -> PriceHistory:
        """Read price files; `thriftune.market.price_files` lists their formats.

        If a file has rows for several operating systems, only those of `product` are read.
        """
        if not paths:
            raise SettingError("PriceHistory.read: needs a file; give at least one path")
        return _merge([read_rows(Path(path), product) for path in paths])

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write a CSV file, gzipped if the name ends in .gz.

        The last row of each market repeats its price at the market's end.
        """
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(CSV_COLUMNS)
        for one in self.values():
            end_row = [] if one.times[-1] == one.end else [(one.end, one.prices[-1])]
            for t, price in chain(zip(one.times.tolist(), one.prices.tolist(), strict=True), end_row):
                writer.writerow((one.type, one.zone, int(t) if t == int(t) else t, float(price)))
        raw = text.getvalue().encode()
        Path(path).write_bytes(gzip.compress(raw, mtime=0) if str(path).endswith(".gz") else raw)

    @property
    def markets(self) -> list[Market]:
        return sorted(self._series)

    def __getitem__(self, market: Market) -> PriceSeries:
        try:
            return self._series[market]
        except KeyError:
            raise UnknownMarket(self._unknown_message(market)) from None

    def __iter__(self) -> Iterator[Market]:
        return iter(self.markets)

    def __len__(self) -> int:
        return len(self._series)

    def __repr__(self) -> str:
        rows = sum(map(len, self._series.values()))
        return f"PriceHistory({len(self)} markets, {rows} rows, {len(self.repairs)} repairs)"

    def _unknown_message(self, market: object) -> str:
        """Return the error message for a market without prices."""
        if not (isinstance(market, tuple) and len(market) == 2):
            return f"{market!r} is not a market; use history[type, zone], such as {self.markets[:1]}"
        type, zone = (str(name) for name in market)
        zones = [known_zone for known_type, known_zone in self.markets if known_type == type]
        if zones:
            return f"{type} has no prices in {zone!r}; its zones are {', '.join(zones)}"
        types = list(dict.fromkeys(known_type for known_type, _ in self.markets))
        similar = difflib.get_close_matches(type, types, n=5, cutoff=0.5) or types[:5]
        return f"{type!r} has no prices; similar types are {', '.join(similar)} ({len(types)} types in all)"


def _merge(files: Sequence[PriceRows]) -> PriceHistory:
    """Merge the rows of files into one history; sort them and drop repeated ones."""
    markets = [market for rows in files for market in zip(rows.types, rows.zones, strict=True)]
    names = list(dict.fromkeys(markets))
    code = {market: i for i, market in enumerate(names)}
    codes = np.fromiter((code[market] for market in markets), dtype=np.intp, count=len(markets))
    times = np.concatenate([rows.times for rows in files])
    prices = np.concatenate([rows.prices for rows in files])

    file_order = np.argsort(codes, kind="stable")
    unsorted = (np.diff(times[file_order]) < 0) & (np.diff(codes[file_order]) == 0)
    order = np.lexsort((times, codes))  # stable
    repeated = (np.diff(times[order]) == 0) & (np.diff(codes[order]) == 0)
    contradicting = repeated & (np.diff(prices[order]) != 0)
    if contradicting.any():
        i = int(np.argmax(contradicting))
        first, second = order[i : i + 2].tolist()
        type, zone = markets[first]
        raise SettingError(
            f"{_location(files, second)}: {type} {zone} at {_date(times[second])} costs {prices[second]:g}, "
            f"but {prices[first]:g} in {_location(files, first)}; remove one of them"
        )
    rows = order[np.append(True, ~repeated)]
    end = float(times.max())
    bounds = np.searchsorted(codes[rows], np.arange(len(names) + 1))
    series = [
        PriceSeries(*market, times[rows[low:high]], prices[rows[low:high]], end=end)
        for market, low, high in zip(names, bounds[:-1], bounds[1:], strict=True)
    ]
    repairs = [f"{file.path}: {sentence}" for file in files for sentence in file.repairs]
    if unsorted.any():
        repairs.append(f"{unsorted.sum()} rows were out of order and were sorted")
    if repeated.any():
        repairs.append(f"{repeated.sum()} repeated rows were dropped")
    return PriceHistory(series, repairs + _gap_repairs(series))


def _location(files: Sequence[PriceRows], row: int) -> str:
    """Return the file and the line of a row; `row` is counted over all files."""
    for file in files:
        if row < len(file.times):
            return file.location(row)
        row -= len(file.times)
    raise IndexError(row)


def _gap_repairs(series: Iterable[PriceSeries]) -> list[str]:
    """Return a list with one sentence about all gaps longer than `GAP_SECONDS`.

    The list is empty if the series have no such gap.
    """
    pauses = [(np.diff(one.times, append=one.end), one) for one in series]
    count = sum(int((lengths > GAP_SECONDS).sum()) for lengths, _ in pauses)
    if not count:
        return []
    lengths, one = max(pauses, key=lambda pair: float(pair[0].max()))
    longest = int(np.argmax(lengths))
    return [
        f"{count} gaps of more than {GAP_SECONDS / 86400:g} days were filled with the price before them; the "
        f"longest is {lengths[longest] / 86400:.1f} days in {one.type} {one.zone} from {_date(one.times[longest])}"
    ]


def _frozen(values: ArrayLike) -> Floats:
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array


def _float_or_array(values: Floats) -> float | Floats:
    return values if values.ndim else float(values)


def _date(t: float) -> str:
    try:
        return f"{t:.0f} ({datetime.fromtimestamp(t, UTC):%Y-%m-%d %H:%M:%S} UTC)"
    except (ValueError, OverflowError, OSError):
        return str(t)
