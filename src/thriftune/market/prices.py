"""What does a spot machine cost, and what did it cost when? Step functions of time, read from recorded histories.

Times are unix seconds, prices dollars an hour. A row is the new price from its time on. A record says nothing
about the time before its first row; its last price holds until the end of the record, which is the time of the
latest row in all that was read with it. To ask outside of that is an error: any answer would be invented.

What is harmless in a file is repaired, and `PriceHistory.repairs` says so: rows that are out of order are sorted,
rows told twice are taken once, rows of other products are left out, gaps are bridged with the price before them.
What contradicts itself or makes no sense is refused, with the file and the line.
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
from thriftune.market.price_files import OWN, Rows, read_rows

Floats = NDArray[np.float64]
Market = tuple[str, str]  # a type of machine, and the zone it is rented in

MINUTE = 60.0
GAP_SECONDS = 2 * 86400.0
"""AWS repeats a price every day, so that two days without a row are a hole in the record."""


class UnknownMarket(SettingError, KeyError):
    """No prices of that type in that zone; the message names what is near."""

    def __str__(self) -> str:  # a KeyError would show it in quotes
        return str(self.args[0])


class PriceSeries:
    """The price of one type in one zone, from `start` to `end`: `prices[i]` from `times[i]` on.

    Every question may be asked for an array of times at once.
    """

    def __init__(
        self, type: str, zone: str, times: ArrayLike, prices: ArrayLike, *, end: float | None = None
    ) -> None:
        self.type, self.zone = type, zone
        self.times, self.prices = _frozen(times), _frozen(prices)
        name = f"{type} {zone}"
        if self.times.ndim != 1 or self.times.shape != self.prices.shape or not self.times.size:
            raise SettingError(
                f"{name}: needs a price for each of its times, at least one; "
                f"there are {self.times.shape} times and {self.prices.shape} prices"
            )
        if not np.isfinite(self.times).all() or not (np.diff(self.times) > 0).all():
            raise SettingError(f"{name}: its times must be finite and rise")
        if not ((self.prices > 0) & np.isfinite(self.prices)).all():
            raise SettingError(f"{name}: its prices must be above zero and finite; one is {self.prices.min()}")
        self.start = float(self.times[0])
        self.end = float(self.times[-1] if end is None else end)
        if not self.times[-1] <= self.end < math.inf:
            raise SettingError(f"{name}: ends at {self.end}, before its last row at {self.times[-1]}")

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
        """The price at `t`."""
        if isinstance(t, float):
            return self._plain_prices[self._row_of(t)]
        return _plain(self.prices[self._row(np.asarray(t, dtype=np.float64))])

    @overload
    def mean(self, t0: float, t1: float) -> float: ...
    @overload
    def mean(self, t0: Floats, t1: float | Floats) -> Floats: ...
    @overload
    def mean(self, t0: float, t1: Floats) -> Floats: ...
    def mean(self, t0: float | Floats, t1: float | Floats) -> float | Floats:
        """The mean price over the time from `t0` to `t1`; where they are the same, the price then."""
        if isinstance(t0, float) and isinstance(t1, float) and t0 <= t1:
            return self._mean_of(t0, t1)
        t0, t1 = np.broadcast_arrays(np.asarray(t0, dtype=np.float64), np.asarray(t1, dtype=np.float64))
        first, last = self._row(t0), self._row(t1)
        if (t1 < t0).any():
            worst = int(np.argmax(t0 - t1))
            raise SettingError(
                f"{self.type} {self.zone}: a mean from {t0.flat[worst]:.0f} "
                f"to {t1.flat[worst]:.0f}, which is earlier"
            )
        # The part of the first step, the whole steps between, and the part of the last step. Differences of sums
        # of the whole record would lose digits where a window is short.
        second = np.minimum(first + 1, len(self) - 1)
        spent = self.prices[first] * (self.times[second] - t0)
        spent += self._spent[last] - self._spent[second]
        spent += self.prices[last] * (t1 - self.times[last])
        apart = first < last
        return _plain(np.where(apart, spent / np.where(apart, t1 - t0, 1.0), self.prices[first]))

    @overload
    def next_above(self, price: float, t: float) -> float: ...
    @overload
    def next_above(self, price: Floats, t: float | Floats) -> Floats: ...
    @overload
    def next_above(self, price: float, t: Floats) -> Floats: ...
    def next_above(self, price: float | Floats, t: float | Floats) -> float | Floats:
        """The first time from `t` on at which a machine costs more than `price`; inf if the record shows none.

        A machine with that maximum price, running at `t`, is revoked then.
        """
        t, price = np.broadcast_arrays(np.asarray(t, dtype=np.float64), np.asarray(price, dtype=np.float64))
        row = self._row(t)
        if np.isnan(price).any():
            raise SettingError(f"{self.type} {self.zone}: a maximum price is not a number")
        now = self.prices[row] > price
        # How many rows may be passed over is found bit by bit, the highest first: a block of 2^k rows is passed
        # over if its highest price is not above the maximum.
        for power in reversed(range(len(self._block_highs))):
            highs = self._block_highs[power]
            inside = row < len(highs)
            passed = inside & (highs[np.where(inside, row, 0)] <= price)
            row = row + (passed << power)
        found = np.append(self.times, math.inf)[row]
        return _plain(np.where(now, t, found))

    def lifetimes(self, max_price: float | Floats, t: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """How many hours machines live that are rented at these times with that maximum price, and whether they
        were revoked then, or the record ended: what a model of lifetimes is fitted to. Where the price is above,
        there is no machine."""
        t, price = np.broadcast_arrays(np.asarray(t, dtype=np.float64), np.asarray(max_price, dtype=np.float64))
        until = self.next_above(price, t)
        had = until > t
        return (np.minimum(until, self.end) - t)[had] / 3600.0, np.isfinite(until)[had]

    def minutes(self, t0: float, t1: float) -> Floats:
        """The prices at t0, t0 + 60, t0 + 120, ... before t1."""
        self._check_order(t0, t1)
        return self.price_at(np.arange(t0, t1, MINUTE))

    def window(self, t0: float, t1: float) -> PriceSeries:
        """The record from t0 to t1 only, which begins with the price at t0."""
        self._check_order(t0, t1)
        first, last = self._row(np.array([t0, t1])).tolist()
        times = np.append(t0, self.times[first + 1 : last + 1])
        return PriceSeries(self.type, self.zone, times, self.prices[first : last + 1], end=t1)

    def _check_order(self, t0: float, t1: float) -> None:
        if not t0 <= t1:
            raise SettingError(f"{self.type} {self.zone}: a window from {t0:.0f} to {t1:.0f}, which is earlier")

    # One number at a time, as policies ask: a search in a list takes a twentieth of one in an array.

    def _row_of(self, t: float) -> int:
        if not self.start <= t <= self.end:
            self._row(np.asarray(t))  # says what is wrong
        return bisect_right(self._plain_times, t) - 1

    def _mean_of(self, t0: float, t1: float) -> float:
        times, prices, spent = self._plain_times, self._plain_prices, self._plain_spent
        first, last = self._row_of(t0), self._row_of(t1)
        if first == last:
            return prices[first]
        whole = spent[last] - spent[first + 1]
        return (prices[first] * (times[first + 1] - t0) + whole + prices[last] * (t1 - times[last])) / (t1 - t0)

    @cached_property
    def _plain_times(self) -> list[float]:
        return list(map(float, self.times))

    @cached_property
    def _plain_prices(self) -> list[float]:
        return list(map(float, self.prices))

    @cached_property
    def _plain_spent(self) -> list[float]:
        return list(map(float, self._spent))

    @cached_property
    def _spent(self) -> Floats:
        """Dollars an hour times seconds, from the start to each row."""
        return np.append(0.0, np.cumsum(self.prices[:-1] * np.diff(self.times)))

    @cached_property
    def _block_highs(self) -> list[Floats]:
        """[k][i]: the highest price of the 2^k rows from i on."""
        highs = [self.prices]
        while len(highs[-1]) > (half := 1 << (len(highs) - 1)):
            highs.append(np.maximum(highs[-1][:-half], highs[-1][half:]))
        return highs

    def _row(self, t: Floats) -> NDArray[np.intp]:
        """The row whose price holds at t."""
        outside = ~((t >= self.start) & (t <= self.end))
        if outside.any():
            asked = _date(float(t[outside].flat[0]))
            raise SettingError(
                f"{self.type} {self.zone}: no price is known at {asked}; "
                f"the record goes from {_date(self.start)} to {_date(self.end)}"
            )
        return np.searchsorted(self.times, t, side="right") - 1


class PriceHistory(Mapping[Market, PriceSeries]):
    """The prices of many markets: `history[type, zone]`. `repairs`: sentences on what was put right on reading."""

    def __init__(self, series: Iterable[PriceSeries], repairs: Sequence[str] = ()) -> None:
        self._series: dict[Market, PriceSeries] = {}
        for one in series:
            if (one.type, one.zone) in self._series:
                raise SettingError(f"{one.type} {one.zone}: there are two series of it; give one")
            self._series[one.type, one.zone] = one
        self.repairs = list(repairs)

    @classmethod
    def read(cls, *paths: str | os.PathLike[str], product: str = "Linux/UNIX") -> PriceHistory:
        """The histories of these files together; thriftune.market.price_files says which forms they may have.

        - `product`: where the files tell of several operating systems, the rows of this one are read.
        """
        if not paths:
            raise SettingError("PriceHistory.read: needs a file")
        return _assembled([read_rows(Path(path), product) for path in paths])

    def write(self, path: str | os.PathLike[str]) -> None:
        """As CSV, gzipped if the name ends in .gz. Each market's price is told again at its end."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(OWN)
        for one in self.values():
            ends = [] if one.times[-1] == one.end else [(one.end, one.prices[-1])]
            for t, price in chain(zip(one.times.tolist(), one.prices.tolist(), strict=True), ends):
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
            raise UnknownMarket(self._unknown(market)) from None

    def __iter__(self) -> Iterator[Market]:
        return iter(self.markets)

    def __len__(self) -> int:
        return len(self._series)

    def __repr__(self) -> str:
        rows = sum(map(len, self._series.values()))
        return f"PriceHistory({len(self)} markets, {rows} rows, {len(self.repairs)} repairs)"

    def _unknown(self, market: object) -> str:
        if not (isinstance(market, tuple) and len(market) == 2):
            return f"{market!r} is no market; ask for history[type, zone], as {self.markets[:1]}"
        type, zone = (str(name) for name in market)
        zones = [there for kind, there in self.markets if kind == type]
        if zones:
            return f"there are no prices of {type} in {zone!r}; they are known in {', '.join(zones)}"
        types = list(dict.fromkeys(kind for kind, _ in self.markets))
        near = difflib.get_close_matches(type, types, n=5, cutoff=0.5) or types[:5]
        return f"there are no prices of {type!r}; near are {', '.join(near)} ({len(types)} types in all)"


def _assembled(files: Sequence[Rows]) -> PriceHistory:
    markets = [market for rows in files for market in zip(rows.types, rows.zones, strict=True)]
    names = list(dict.fromkeys(markets))
    code = {market: i for i, market in enumerate(names)}
    codes = np.fromiter((code[market] for market in markets), dtype=np.intp, count=len(markets))
    times = np.concatenate([rows.times for rows in files])
    prices = np.concatenate([rows.prices for rows in files])

    as_told = np.argsort(codes, kind="stable")
    late = (np.diff(times[as_told]) < 0) & (np.diff(codes[as_told]) == 0)
    order = np.lexsort((times, codes))  # stable
    again = (np.diff(times[order]) == 0) & (np.diff(codes[order]) == 0)
    contradicts = again & (np.diff(prices[order]) != 0)
    if contradicts.any():
        i = int(np.argmax(contradicts))
        first, second = order[i : i + 2].tolist()
        type, zone = markets[first]
        raise SettingError(
            f"{_where(files, second)}: {type} {zone} at {_date(times[second])} costs {prices[second]:g}, "
            f"but {prices[first]:g} in {_where(files, first)}; keep one of them"
        )
    kept = order[np.append(True, ~again)]
    end = float(times.max())
    bounds = np.searchsorted(codes[kept], np.arange(len(names) + 1))
    series = [
        PriceSeries(*market, times[kept[low:high]], prices[kept[low:high]], end=end)
        for market, low, high in zip(names, bounds[:-1], bounds[1:], strict=True)
    ]
    repairs = [f"{rows.path}: {sentence}" for rows in files for sentence in rows.repairs]
    if late.any():
        repairs.append(f"{late.sum()} rows were out of order and were sorted")
    if again.any():
        repairs.append(f"{again.sum()} rows were told twice and were taken once")
    return PriceHistory(series, repairs + _gaps(series))


def _where(files: Sequence[Rows], row: int) -> str:
    for rows in files:
        if row < len(rows.times):
            return rows.where(row)
        row -= len(rows.times)
    raise IndexError(row)


def _gaps(series: Iterable[PriceSeries]) -> list[str]:
    silences = [(np.diff(one.times, append=one.end), one) for one in series]
    count = sum(int((lengths > GAP_SECONDS).sum()) for lengths, _ in silences)
    if not count:
        return []
    lengths, one = max(silences, key=lambda pair: float(pair[0].max()))
    longest = int(np.argmax(lengths))
    return [
        f"{count} gaps of more than {GAP_SECONDS / 86400:g} days were bridged with the price before them, the "
        f"longest of {lengths[longest] / 86400:.1f} days in {one.type} {one.zone} from {_date(one.times[longest])}"
    ]


def _frozen(values: ArrayLike) -> Floats:
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array


def _plain(values: Floats) -> float | Floats:
    return values if values.ndim else float(values)


def _date(t: float) -> str:
    try:
        return f"{t:.0f} ({datetime.fromtimestamp(t, UTC):%Y-%m-%d %H:%M:%S} UTC)"
    except (ValueError, OverflowError, OSError):
        return str(t)
