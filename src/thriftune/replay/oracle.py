"""Computes a lower bound of what a study costs under any policy, given all prices and preemptions in advance.

The bound comes from an easier problem. Time is divided into intervals. In each of them, a trial may use any kind
of machine that is available at any moment of the interval, at its lowest price in the interval, and it may change
machines for free. If the provider refunds early preemptions, a machine that is preempted within the refunded time
is free. The cheapest way to do a trial's steps by the end is then a linear program with one constraint. Its dual
maximises over one variable, the value of a step. Any value gives a lower bound; bisection finds the best one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from thriftune.market.billing import Billing
from thriftune.market.price_history import PriceSeries
from thriftune.planning.machine_types import MachineType
from thriftune.replay.preemptions import (
    AvailabilityPreemptions,
    LifetimePreemptions,
    NoPreemptions,
    Preemptions,
    PricePreemptions,
)

Floats = NDArray[np.float64]

_INTERVAL_SECONDS = 300.0
"""Short beside the hours between price changes; shorter intervals give a slightly higher bound."""

_MOST_INTERVALS = 20_000
"""Limits the memory for long records; their intervals become longer, and the bound stays a lower bound."""

_BISECTIONS = 60
"""Halve the range of a step's value until it has the precision of a float."""

_ROUNDING = 1e-9
"""The relative amount of work that may be left, so that rounding does not make a feasible amount infeasible."""

_FIRST_STEP_VALUE = 1e-6
"""Dollars; where the search for an upper limit of a step's value starts."""


class Oracle:
    """The lower bound on one cloud, from `start` to `end`."""

    def __init__(
        self, kinds: Sequence[MachineType], preemptions: Mapping[str, Preemptions], start: float, end: float
    ) -> None:
        intervals = int(np.clip(np.ceil((end - start) / _INTERVAL_SECONDS), 1, _MOST_INTERVALS))
        self._edges = np.linspace(start, end, intervals + 1)
        self._kinds = kinds
        prices = [_price(kind, preemptions.get(kind.name, NoPreemptions()), self._edges) for kind in kinds]
        # Dollars for one slot, by kind and interval; inf where the kind is not available.
        self._dollars = np.array(prices) * np.diff(self._edges) / 3600.0 / [[kind.slots] for kind in kinds]

    def dollars(self, steps: float, seconds_per_step: Mapping[str, float]) -> float:
        """Return the lowest cost of this many steps of one trial; inf if they cannot be done by the end."""
        if steps <= 0.0:
            return 0.0
        speeds = np.array([[1.0 / seconds_per_step[kind.name]] for kind in self._kinds])
        done = np.where(
            np.isfinite(self._dollars), speeds * np.diff(self._edges), 0.0
        )  # steps by kind and interval
        dollars = np.where(np.isfinite(self._dollars), self._dollars, 0.0)
        steps *= 1.0 - _ROUNDING
        if done.max(axis=0).sum() < steps:
            return np.inf
        low, high = 0.0, _FIRST_STEP_VALUE
        while self._steps_and_gain(high, done, dollars)[0] < steps:
            high *= 4.0
        best = 0.0
        for _ in range(_BISECTIONS):
            value = 0.5 * (low + high)
            steps_done, gain = self._steps_and_gain(value, done, dollars)
            best = max(best, value * steps - gain)
            if steps_done < steps:
                low = value
            else:
                high = value
        return best

    def _steps_and_gain(self, value: float, done: Floats, dollars: Floats) -> tuple[float, float]:
        """Return the steps that are worth doing at this value of a step, and their value minus their cost."""
        gain = value * done - dollars
        best_kind, columns = gain.argmax(axis=0), np.arange(gain.shape[1])
        worthwhile = gain[best_kind, columns] > 0.0
        return float(done[best_kind, columns][worthwhile].sum()), float(gain[best_kind, columns][worthwhile].sum())


def _price(kind: MachineType, preemptions: Preemptions, edges: Floats) -> Floats:
    """Return the lowest price in each interval; inf where none is available, 0 where a preemption is refunded."""
    price: Floats
    if isinstance(kind.price, PriceSeries):
        price = _lowest(kind.price, edges, _price_age_seconds(kind.billing))
    else:
        price = np.full(len(edges) - 1, kind.price)
    billing = kind.billing
    refunded_seconds = billing.refunded_first_seconds
    if billing.unfinished_is_free:
        refunded_seconds = max(refunded_seconds, billing.granularity_seconds)
    # A refund is only useful if it covers more than the time until the machine is ready for work.
    if isinstance(preemptions, LifetimePreemptions) and refunded_seconds > kind.init_latency.mean:
        return np.zeros(len(edges) - 1)  # a policy that knows the lifetimes uses only machines that are refunded
    if isinstance(preemptions, PricePreemptions) and refunded_seconds:
        price = np.where(_rises_within(preemptions.series, edges, refunded_seconds), 0.0, price)
    if isinstance(preemptions, AvailabilityPreemptions):
        counts = np.array([_highest_count(preemptions, low, high) for low, high in pairwise(edges.tolist())])
        price = np.where(counts > 0, price, np.inf)
        if refunded_seconds:
            price = np.where((counts > 0) & _falls_within(preemptions, edges, refunded_seconds), 0.0, price)
    return price


def _price_age_seconds(billing: Billing) -> float:
    """Return the greatest age of a price at which time is billed: a billed period has the price of its start."""
    period_seconds = billing.granularity_seconds if billing.granularity_seconds > _INTERVAL_SECONDS else 0.0
    return max(billing.price_held_seconds, period_seconds)


def _lowest(series: PriceSeries, edges: Floats, age_seconds: float) -> Floats:
    """Return the lowest price in each interval and in the `age_seconds` before it."""
    if age_seconds:
        intervals = int(np.ceil(age_seconds / (edges[1] - edges[0])))
        lowest = _lowest(series, edges, 0.0)
        return np.array([lowest[max(0, i - intervals) : i + 1].min() for i in range(len(lowest))])
    first = series.price_at(np.clip(edges[:-1], series.start, series.end))
    return np.asarray(np.minimum(np.asarray(first), _minima(series.times, series.prices, edges)))


def _minima(times: Floats, values: Floats, edges: Floats) -> Floats:
    """Return the least of the values whose times lie within each interval; inf where there are none."""
    low, high = np.searchsorted(times, edges[:-1], side="right"), np.searchsorted(times, edges[1:], side="left")
    padded = np.append(values, np.inf)
    pairs = np.stack([low, np.maximum(low, high)], axis=1).ravel()
    minima = np.minimum.reduceat(padded, np.minimum(pairs, len(values)))[::2]
    return np.where(high > low, minima, np.inf)


def _rises_within(series: PriceSeries, edges: Floats, seconds: float) -> NDArray[np.bool_]:
    """Return for each interval whether the price rises between its start and this many seconds after its end."""
    return _any_within(series.times[1:][np.diff(series.prices) > 0.0], edges, seconds)


def _falls_within(preemptions: AvailabilityPreemptions, edges: Floats, seconds: float) -> NDArray[np.bool_]:
    """Return for each interval whether the count falls between its start and this many seconds after its end."""
    return _any_within(preemptions.times[1:][np.diff(preemptions.counts) < 0], edges, seconds)


def _any_within(times: Floats, edges: Floats, seconds: float) -> NDArray[np.bool_]:
    next_after_start = np.append(times, np.inf)[np.searchsorted(times, edges[:-1], side="right")]
    return np.asarray(next_after_start - edges[1:] < seconds)


def _highest_count(preemptions: AvailabilityPreemptions, low: float, high: float) -> int:
    """Return the highest count of available machines between two times."""
    first = max(0, int(np.searchsorted(preemptions.times, low, side="right")) - 1)
    last = int(np.searchsorted(preemptions.times, high, side="left"))
    return int(preemptions.counts[first : max(last, first + 1)].max())
