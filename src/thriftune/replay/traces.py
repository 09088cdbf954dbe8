"""What happened on a cloud? Recorded prices, lifetimes or availability as machines that can be rented once more.

What a policy may know of how long machines live is learnt from the first part of a record, and studies begin after
it; of lifetimes, which have no order, from every other machine, and the others are those that a study meets.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from thriftune.errors import SettingError
from thriftune.market.billing import EC2_SPOT, GCP_PREEMPTIBLE, PER_SECOND, Billing
from thriftune.market.catalog import Catalog
from thriftune.market.lifetime import Exponential, KaplanMeier, Lifetimes, fit_lifetime
from thriftune.market.prices import PriceHistory
from thriftune.market.revocation.model import RevocationModel
from thriftune.market.revocation.tabulated import TabulatedModel
from thriftune.market.survival import Survival
from thriftune.planning.latency import Latency
from thriftune.planning.machine_types import MachineType
from thriftune.replay.preemptions import AbovePrice, Available, Drawn, Fate

DAY = 86_400.0
_FEWEST_LIVES = 30  # half of them tell what is known, the others what is true
_LEARNT = 0.4  # of a record, at most
_LEARNT_DAYS = 18.0
_SERIAL = 0.1  # of a step, by Amdahl: where nobody has measured how much faster more cores are


@dataclass(frozen=True, slots=True)
class Type:
    """A type of machine: how fast a step is on it, over the recorded one, and dollars an hour on demand."""

    speed: float
    on_demand_price: float
    slots: int = 1


@dataclass(frozen=True)
class Conditions:
    """What is the same for all machines of a trace: the waits for them, the notice, how spot ones are billed."""

    queue: float | Sequence[float] | Latency = 60.0
    init: float | Sequence[float] | Latency = 60.0
    notice_seconds: float = 120.0
    billing: Billing = EC2_SPOT


@dataclass(frozen=True)
class Trace:
    """Machines that can be rented from `start` to `end`. `fates`: by seed, when they are taken away."""

    kinds: Sequence[MachineType]
    fates: Callable[[int], Mapping[str, Fate]]
    start: float
    end: float
    notes: Sequence[str] = field(default=())

    def billed(self, billing: Billing) -> Trace:
        """With spot machines billed by another rule."""
        return replace(self, kinds=[k if k.lasts else replace(k, billing=billing) for k in self.kinds])


def by_cores(cores: float) -> float:
    """How many times as fast as on one, where nobody has measured it."""
    return 1.0 / (_SERIAL + (1.0 - _SERIAL) / cores)


def of_prices(history: PriceHistory, types: Mapping[str, Type], given: Conditions = Conditions()) -> Trace:  # noqa: B008
    """Where the price decides who keeps a machine, as on EC2 until 2017."""
    markets = [market for market in history.markets if market[0] in types]
    if not markets:
        raise SettingError(f"prices: there are none of {', '.join(types) or 'any type that is known'}")
    first, end = max(history[each].start for each in markets), min(history[each].end for each in markets)
    start = first + min(_LEARNT_DAYS * DAY, _LEARNT * (end - first))
    kinds, fates = [], {}
    for type, zone in markets:
        series, known = history[type, zone], types[type]
        model = RevocationModel().fit(series.window(series.start, start))
        kind = _kind(f"{type} {zone}", series, known, given, revocation=TabulatedModel(model, series, start, end))
        kinds.append(kind)
        fates[kind.name] = AbovePrice(series)
    return Trace([*kinds, *_on_demand(types, markets, given)], lambda _: fates, start, end)


def of_prices_and_lifetimes(
    history: PriceHistory,
    lives: Lifetimes,
    types: Mapping[str, Type],
    given: Conditions = Conditions(),  # noqa: B008
) -> Trace:
    """Where the price tells nothing of who keeps a machine: they live as the recorded ones did, each market as one
    of the types there of which there are enough."""
    markets = [market for market in history.markets if market[0] in types]
    if not markets:
        raise SettingError(f"prices: there are none of {', '.join(types) or 'any type that is known'}")
    enough = [type for type in lives.types if (lives.type == type).sum() >= _FEWEST_LIVES]
    if not enough:
        raise SettingError(f"lifetimes: no type has {_FEWEST_LIVES} machines, from which to tell how they live")
    halves = [_halves(lives, type) for type in enough]
    kinds, truth = [], {}
    for number, (type, zone) in enumerate(markets):
        known, true = halves[number % len(halves)]
        kind = _kind(f"{type} {zone}", history[type, zone], types[type], given, survival=known)
        kinds.append(kind)
        truth[kind.name] = true
    start, end = max(history[each].start for each in markets), min(history[each].end for each in markets)
    return Trace([*kinds, *_on_demand(types, markets, given)], partial(_drawn, truth), start, end)


def of_lifetimes(
    lives: Lifetimes, types: Mapping[str, Type], spot_prices: Mapping[str, float], given: Conditions
) -> Trace:
    """Machines of a price that stays, which are taken away as the recorded ones were."""
    kinds, truth = [], {}
    for type in (each for each in lives.types if each in types):
        known, truth[type] = _halves(lives, type)
        kinds.append(_kind(type, spot_prices[type], types[type], given, survival=known))
    if not kinds:
        raise SettingError(f"lifetimes: there are none of {', '.join(types) or 'any type that is known'}")
    markets = [(kind.name, "") for kind in kinds]
    return Trace([*kinds, *_on_demand(types, markets, given)], partial(_drawn, truth), 0.0, math.inf)


def of_availability(
    record: Mapping[str, Mapping[str, Any]], type: str, known: Type, spot_price: float, given: Conditions
) -> Trace:
    """How many there were to be had in each zone, as `{zone: {gap_seconds, n, rle: [[count, times], ...]}}`."""
    counted = {zone: _counts(zone, trace) for zone, trace in record.items()}
    if not counted:
        raise SettingError("availability: the record is empty")
    end = min(len(counts) * gap for gap, counts in counted.values())
    kinds, fates = [], {}
    for zone, (gap, counts) in counted.items():
        changes = np.flatnonzero(np.diff(counts, prepend=-1))
        fates[zone] = Available(changes * gap, counts[changes], len(counts) * gap)
        past = counts[: int(_learnt(end) / gap)] > 0  # until the study begins, and nothing later
        runs = [len(list(run)) for up, run in groupby(past.tolist()) if up]
        lives = Exponential(max(gap, float(np.mean(runs or [1])) * gap) / 3600.0)
        kind = _kind(zone, spot_price, known, given, survival=lives)
        kinds.append(kind)
    return Trace([*kinds, *_on_demand({type: known}, [(type, "")], given)], lambda _: fates, _learnt(end), end)


def _counts(zone: str, trace: Mapping[str, Any]) -> tuple[float, Any]:
    """Seconds between them, and how many there were to be had each time."""
    try:
        return float(trace["gap_seconds"]), np.repeat(*np.array(trace["rle"], dtype=int).T)
    except (KeyError, TypeError, ValueError) as error:
        raise SettingError(f"availability: {zone}: has no gap_seconds and rle as it should ({error})") from None


def read_trace(path: Path, catalog: Catalog | None = None, given: Conditions = Conditions()) -> Trace:  # noqa: B008
    """A record of prices, lifetimes or availability, by what is in it; types are looked up in the catalog."""
    catalog = catalog or Catalog.shipped()
    if ".json" in path.suffixes:
        return _read_availability(path, catalog, given)
    data = path.read_bytes()
    head = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)[:200].decode("utf-8-sig", "replace")
    if "lifetime" in head.partition("\n")[0]:
        lives = Lifetimes.read(path)
        types, notes = _types(lives.types, catalog)
        spot = {type: _spot_price(type, catalog) for type in types}
        trace = of_lifetimes(lives, types, spot, replace(given, billing=GCP_PREEMPTIBLE, notice_seconds=30.0))
    else:
        history = PriceHistory.read(path)
        types, notes = _types(list(dict.fromkeys(type for type, _ in history.markets)), catalog)
        trace = of_prices(history, types, given)
    return replace(trace, notes=notes)


def _read_availability(path: Path, catalog: Catalog, given: Conditions) -> Trace:
    data = path.read_bytes()
    try:
        record = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except ValueError as error:
        raise SettingError(f"{path}: is no JSON ({error})") from None
    if not isinstance(record, dict) or not all(isinstance(each, dict) for each in record.values()):
        raise SettingError(f"{path}: must be an object of zones, each with gap_seconds and rle")
    offer = catalog["p3.2xlarge"]
    known = Type(1.0, offer.price_per_hour)
    spot = offer.spot_price_per_hour or 0.3 * offer.price_per_hour
    notes = [
        f"{path.name}: a machine is taken to be a {offer.name}, at {spot:g} dollars an hour, and "
        f"{offer.price_per_hour:g} on demand"
    ]
    lengths = {zone: _length(trace) for zone, trace in record.items()}
    kept = {zone: record[zone] for zone, each in lengths.items() if each >= 0.5 * max(lengths.values())}
    if len(kept) < len(record):
        notes.append(f"{path.name}: {len(record) - len(kept)} zones have less than half of the longest, left out")
    return replace(of_availability(kept, offer.name, known, spot, given), notes=notes)


def _length(trace: Any) -> float:
    """Seconds. One that makes no sense is told of elsewhere."""
    try:
        return float(trace["gap_seconds"] * sum(times for _, times in trace["rle"]))
    except (KeyError, TypeError, ValueError):
        return math.inf


def _types(names: Sequence[str], catalog: Catalog) -> tuple[dict[str, Type], list[str]]:
    by_name = {offer.name: offer for offer in catalog}
    found = {
        name: Type(by_cores(by_name[name].accelerators or by_name[name].cores), by_name[name].price_per_hour)
        for name in names
        if name in by_name
    }
    left_out = [name for name in names if name not in by_name]
    notes = [f"{len(left_out)} types are not in the catalog and are left out: {', '.join(left_out[:5])}"]
    return found, notes if left_out else []


def _spot_price(type: str, catalog: Catalog) -> float:
    offer = next(each for each in catalog if each.name == type)
    return offer.spot_price_per_hour or 0.25 * offer.price_per_hour


def _kind(name: str, price: Any, known: Type, given: Conditions, **life: Any) -> MachineType:
    return MachineType(
        name,
        price,
        known.slots,
        known.speed,
        given.billing,
        notice_seconds=given.notice_seconds,
        queue=given.queue,
        init=given.init,
        on_demand_price=known.on_demand_price,
        **life,
    )


def _on_demand(
    types: Mapping[str, Type], markets: Sequence[tuple[str, str]], given: Conditions
) -> list[MachineType]:
    there = {type for type, _ in markets}
    return [
        MachineType(
            f"{type} on demand",
            t.on_demand_price,
            t.slots,
            t.speed,
            PER_SECOND,
            queue=given.queue,
            init=given.init,
        )
        for type, t in types.items()
        if type in there
    ]


def _halves(lives: Lifetimes, type: str) -> tuple[Survival, Survival]:
    """What is known of how long they live, and how long those live that a study meets."""
    own = lives.type == type
    hours, ended = lives.hours[own], lives.ended[own]
    return fit_lifetime(hours[::2], ended[::2]), KaplanMeier.fit(hours[1::2], ended[1::2])


def _drawn(truth: Mapping[str, Survival], seed: int) -> dict[str, Fate]:
    return {name: Drawn(each, 1000 * seed + number) for number, (name, each) in enumerate(truth.items())}


def _learnt(seconds: float) -> float:
    return min(_LEARNT_DAYS * DAY, _LEARNT * seconds)
