"""What would it have cost at the least, had one known every price and every loss? A lower bound for any policy.

Time is cut into pieces. In each, a trial may use any kind of machine that was to be had at any moment of it, at
the lowest price it had there, and goes over from one to another for nothing; where a provider lets off what it
takes away, a machine that was taken within the time that is refunded was free. The cheapest way to do a trial's
steps by the end is then a linear program with one constraint, whose dual is a maximum over one price of a step:
any such price gives a bound, and the best one is found by halving.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from thriftune.market.billing import Billing
from thriftune.market.prices import PriceSeries
from thriftune.planning.machine_types import MachineType
from thriftune.replay.preemptions import AbovePrice, Available, Drawn, Fate, Lasting

Floats = NDArray[np.float64]

_PIECE_SECONDS = 300.0
_MOST_PIECES = 20_000
_HALVINGS = 60


class Oracle:
    """Of one cloud, from `start` to `end`."""

    def __init__(self, kinds: Sequence[MachineType], fates: Mapping[str, Fate], start: float, end: float) -> None:
        pieces = int(np.clip(np.ceil((end - start) / _PIECE_SECONDS), 1, _MOST_PIECES))
        self._edges = np.linspace(start, end, pieces + 1)
        self._kinds = kinds
        rows = [_price(kind, fates.get(kind.name, Lasting()), self._edges) for kind in kinds]
        self._dollars = np.array(rows) * np.diff(self._edges) / 3600.0 / [[kind.slots] for kind in kinds]

    def dollars(self, steps: float, seconds_per_step: Mapping[str, float]) -> float:
        """The least for so many steps of one trial; inf if they could not be done at all."""
        if steps <= 0.0:
            return 0.0
        each = np.array([[1.0 / seconds_per_step[kind.name]] for kind in self._kinds])
        done = np.where(np.isfinite(self._dollars), each * np.diff(self._edges), 0.0)  # by kind and piece
        dollars = np.where(np.isfinite(self._dollars), self._dollars, 0.0)
        steps *= 1.0 - 1e-9  # what can just be done shall not fail for rounding
        if done.max(axis=0).sum() < steps:
            return np.inf
        low, high = 0.0, 1e-6
        while self._done_at(high, done, dollars)[0] < steps:
            high *= 4.0
        best = 0.0
        for _ in range(_HALVINGS):
            price = 0.5 * (low + high)
            found, gain = self._done_at(price, done, dollars)
            best = max(best, price * steps - gain)
            if found < steps:
                low = price
            else:
                high = price
        return best

    def _done_at(self, price: float, done: Floats, dollars: Floats) -> tuple[float, float]:
        """Where a step is worth so much: how many are done, and what they are worth beyond what they cost."""
        gain = price * done - dollars
        kind, columns = gain.argmax(axis=0), np.arange(gain.shape[1])
        worth = gain[kind, columns] > 0.0
        return float(done[kind, columns][worth].sum()), float(gain[kind, columns][worth].sum())


def _price(kind: MachineType, fate: Fate, edges: Floats) -> Floats:
    """The lowest in each piece; inf where there was none to be had, 0 where what is taken away is let off."""
    price: Floats
    if isinstance(kind.price, PriceSeries):
        price = _lowest(kind.price, edges, _held_seconds(kind.billing))
    else:
        price = np.full(len(edges) - 1, kind.price)
    billing = kind.billing
    free_before = billing.refunded_first_seconds
    if billing.unfinished_is_free:
        free_before = max(free_before, billing.granularity_seconds)
    # Before it is ready nothing is done on it, so that what is let off until then is of no use.
    if isinstance(fate, Drawn) and free_before > kind.init_latency.mean:
        return np.zeros(len(edges) - 1)  # whoever knows the lives takes only those that are let off
    if isinstance(fate, AbovePrice) and free_before:
        price = np.where(_rises_within(fate.series, edges, free_before), 0.0, price)
    if isinstance(fate, Available):
        most = np.array([_most(fate, low, high) for low, high in pairwise(edges.tolist())])
        price = np.where(most > 0, price, np.inf)
        if free_before:
            price = np.where((most > 0) & _falls_within(fate, edges, free_before), 0.0, price)
    return price


def _held_seconds(billing: Billing) -> float:
    """So long ago the price may be that is paid now: a piece that is billed whole has that of its beginning."""
    pieces = billing.granularity_seconds if billing.granularity_seconds > _PIECE_SECONDS else 0.0
    return max(billing.price_held_seconds, pieces)


def _lowest(series: PriceSeries, edges: Floats, held_seconds: float) -> Floats:
    """`held_seconds`: so long ago the price may be that is paid now."""
    if held_seconds:
        pieces = int(np.ceil(held_seconds / (edges[1] - edges[0])))
        now = _lowest(series, edges, 0.0)
        return np.array([now[max(0, i - pieces) : i + 1].min() for i in range(len(now))])
    first = series.price_at(np.clip(edges[:-1], series.start, series.end))
    inside = np.minimum(np.asarray(first), _reduced(np.minimum, series.times, series.prices, edges, np.inf))
    return np.asarray(inside)


def _reduced(how: np.ufunc, times: Floats, values: Floats, edges: Floats, none: float) -> Floats:
    """Over the rows that lie within each piece."""
    low, high = np.searchsorted(times, edges[:-1], side="right"), np.searchsorted(times, edges[1:], side="left")
    padded = np.append(values, none)
    pairs = np.stack([low, np.maximum(low, high)], axis=1).ravel()
    found = how.reduceat(padded, np.minimum(pairs, len(values)))[::2]
    return np.where(high > low, found, none)


def _rises_within(series: PriceSeries, edges: Floats, seconds: float) -> NDArray[np.bool_]:
    """Whether the price rises so soon after the piece begins that a machine taken in it may be free."""
    rises = series.times[1:][np.diff(series.prices) > 0.0]
    after = np.append(rises, np.inf)[np.searchsorted(rises, edges[:-1], side="right")]
    return np.asarray(after - edges[1:] < seconds)


def _falls_within(fate: Available, edges: Floats, seconds: float) -> NDArray[np.bool_]:
    falls = fate.times[1:][np.diff(fate.counts) < 0]
    after = np.append(falls, np.inf)[np.searchsorted(falls, edges[:-1], side="right")]
    return np.asarray(after - edges[1:] < seconds)


def _most(fate: Available, low: float, high: float) -> int:
    first = max(0, int(np.searchsorted(fate.times, low, side="right")) - 1)
    last = int(np.searchsorted(fate.times, high, side="left"))
    return int(fate.counts[first : max(last, first + 1)].max())
