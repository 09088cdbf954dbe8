"""Traces of a cloud: recorded prices, lifetimes or availability as machines that can be rented in a simulation.

A policy learns how long machines live only from data that a study cannot meet. Records over time are divided:
the first part is for fitting, and studies begin after it. Lifetimes have no order: every other machine is for
fitting, and studies meet the others.
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
from thriftune.market.price_history import PriceHistory
from thriftune.market.revocation.model import RevocationModel
from thriftune.market.revocation.tabulated import TabulatedModel
from thriftune.market.survival import Survival
from thriftune.planning.latency import Latency
from thriftune.planning.machine_types import MachineType
from thriftune.replay.preemptions import (
    AvailabilityPreemptions,
    LifetimePreemptions,
    Preemptions,
    PricePreemptions,
)

DAY = 86_400.0

_FEWEST_LIFETIMES = 30
"""A type needs this many: one half for fitting and the other for the studies."""

_FITTING_SHARE = 0.4
"""The share of a record over time that is for fitting, at most; the studies need the larger part."""

_FITTING_DAYS = 18.0
"""The days of a record over time that are for fitting, at most: enough to see each hour of the week twice."""

_SERIAL_SHARE = 0.1
"""The part of a step that more cores do not speed up (Amdahl's law), if no measurement is known."""

_GUESSED_SPOT_SHARE = 0.25
"""The spot price over the on-demand price, if the catalog does not know it."""

_AVAILABILITY_MACHINE, _AVAILABILITY_SPOT_SHARE = "p3.2xlarge", 0.3
"""The machine type that records of availability are about, and its spot share if the catalog does not know it."""

_GCP_NOTICE_SECONDS = 30.0
"""Records of lifetimes are about GCP's preemptible machines, which get this notice."""

_LEAST_LENGTH = 0.5
"""A zone whose record is shorter than this share of the longest one is left out, so that the trace is long."""

_SEEDS_APART = 1000
"""Between the seeds of two runs: more than there are kinds of machines, which have consecutive seeds."""


@dataclass(frozen=True, slots=True)
class TypeData:
    """A machine type: its speed relative to the recorded steps, and its on-demand price in dollars an hour."""

    speed: float
    on_demand_price: float
    slots: int = 1


@dataclass(frozen=True)
class RentalConditions:
    """What all machines of a trace have in common.

    - `queue`, `init`: seconds until a machine is handed over, and from then until it is ready for work.
    - `notice_seconds`: between the notice and the preemption.
    - `billing`: of spot machines.
    """

    queue: float | Sequence[float] | Latency = 60.0
    init: float | Sequence[float] | Latency = 60.0
    notice_seconds: float = 120.0
    billing: Billing = EC2_SPOT


_DEFAULT_CONDITIONS = RentalConditions()


@dataclass(frozen=True)
class Trace:
    """A cloud whose machines can be rented from `start` to `end`.

    - `preemptions`: a function from a seed to the preemptions of each kind of machine.
    - `notes`: sentences on assumptions and on data that was left out.
    """

    kinds: Sequence[MachineType]
    preemptions: Callable[[int], Mapping[str, Preemptions]]
    start: float
    end: float
    notes: Sequence[str] = field(default=())

    def billed(self, billing: Billing) -> Trace:
        """Return the trace with another billing rule for spot machines."""
        return replace(self, kinds=[k if k.is_on_demand else replace(k, billing=billing) for k in self.kinds])


def speed_with_cores(cores: float) -> float:
    """Return the speed on that many cores relative to one core, by Amdahl's law, if no measurement is known."""
    return 1.0 / (_SERIAL_SHARE + (1.0 - _SERIAL_SHARE) / cores)


def trace_from_prices(
    history: PriceHistory, types: Mapping[str, TypeData], conditions: RentalConditions = _DEFAULT_CONDITIONS
) -> Trace:
    """Return a trace in which the market price decides on preemptions, as on EC2 until 2017."""
    markets = _markets_of(history, types)
    first, end = max(history[each].start for each in markets), min(history[each].end for each in markets)
    start = first + min(_FITTING_DAYS * DAY, _FITTING_SHARE * (end - first))
    kinds, preemptions = [], {}
    for type, zone in markets:
        series = history[type, zone]
        model = RevocationModel().fit(series.window(series.start, start))
        revocation = TabulatedModel(model, series, start, end)
        kind = _spot_kind(f"{type} {zone}", series, types[type], conditions, revocation=revocation)
        kinds.append(kind)
        preemptions[kind.name] = PricePreemptions(series)
    on_demand = _on_demand_kinds(types, [type for type, _ in markets], conditions)
    return Trace([*kinds, *on_demand], lambda _: preemptions, start, end)


def trace_from_prices_and_lifetimes(
    history: PriceHistory,
    lifetimes: Lifetimes,
    types: Mapping[str, TypeData],
    conditions: RentalConditions = _DEFAULT_CONDITIONS,
) -> Trace:
    """Return a trace in which preemptions do not depend on the price.

    The machines of each market live as long as those of one type in the record of lifetimes. The types with enough
    lifetimes are assigned to the markets in turn.
    """
    markets = _markets_of(history, types)
    enough = [type for type in lifetimes.types if (lifetimes.type == type).sum() >= _FEWEST_LIFETIMES]
    if not enough:
        raise SettingError(f"lifetimes: no type has {_FEWEST_LIFETIMES} lifetimes, the fewest to fit a model to")
    survivals = [_fitted_and_true_survival(lifetimes, type) for type in enough]
    kinds, true_survivals = [], {}
    for number, (type, zone) in enumerate(markets):
        fitted, true = survivals[number % len(survivals)]
        kind = _spot_kind(f"{type} {zone}", history[type, zone], types[type], conditions, survival=fitted)
        kinds.append(kind)
        true_survivals[kind.name] = true
    start, end = max(history[each].start for each in markets), min(history[each].end for each in markets)
    on_demand = _on_demand_kinds(types, [type for type, _ in markets], conditions)
    return Trace([*kinds, *on_demand], partial(draw_lifetimes, true_survivals), start, end)


def trace_from_lifetimes(
    lifetimes: Lifetimes,
    types: Mapping[str, TypeData],
    spot_prices: Mapping[str, float],
    conditions: RentalConditions,
) -> Trace:
    """Return a trace with constant prices, in which machines live as long as the recorded ones."""
    kinds, true_survivals = [], {}
    for type in (each for each in lifetimes.types if each in types):
        fitted, true_survivals[type] = _fitted_and_true_survival(lifetimes, type)
        kinds.append(_spot_kind(type, spot_prices[type], types[type], conditions, survival=fitted))
    if not kinds:
        raise SettingError(f"lifetimes: the record has none of {', '.join(types) or 'the known types'}")
    on_demand = _on_demand_kinds(types, [kind.name for kind in kinds], conditions)
    return Trace([*kinds, *on_demand], partial(draw_lifetimes, true_survivals), 0.0, math.inf)


def trace_from_availability(
    record: Mapping[str, Mapping[str, Any]],
    type: str,
    type_data: TypeData,
    spot_price: float,
    conditions: RentalConditions,
) -> Trace:
    """Return a trace from the number of available machines over time in each zone.

    `record` has the form `{zone: {gap_seconds, n, rle: [[count, times], ...]}}`: the zone has `count` machines for
    `times` intervals of `gap_seconds`.
    """
    counts_by_zone = {zone: _counts(zone, zone_record) for zone, zone_record in record.items()}
    if not counts_by_zone:
        raise SettingError("availability: the record is empty")
    end = min(len(counts) * gap for gap, counts in counts_by_zone.values())
    kinds, preemptions = [], {}
    for zone, (gap, counts) in counts_by_zone.items():
        changes = np.flatnonzero(np.diff(counts, prepend=-1))
        preemptions[zone] = AvailabilityPreemptions(changes * gap, counts[changes], len(counts) * gap)
        available = counts[: int(_fitting_seconds(end) / gap)] > 0  # only the part for fitting
        runs = [len(list(run)) for is_available, run in groupby(available.tolist()) if is_available]
        survival = Exponential(max(gap, float(np.mean(runs or [1])) * gap) / 3600.0)
        kinds.append(_spot_kind(zone, spot_price, type_data, conditions, survival=survival))
    on_demand = _on_demand_kinds({type: type_data}, [type], conditions)
    return Trace([*kinds, *on_demand], lambda _: preemptions, _fitting_seconds(end), end)


def draw_lifetimes(survivals: Mapping[str, Survival], seed: int) -> dict[str, LifetimePreemptions]:
    """Return preemptions with lifetimes drawn for each kind of machine; each kind has its own random numbers."""
    return {
        name: LifetimePreemptions(survival, _SEEDS_APART * seed + number)
        for number, (name, survival) in enumerate(survivals.items())
    }


def _markets_of(history: PriceHistory, types: Mapping[str, TypeData]) -> list[tuple[str, str]]:
    """Return the markets of these types, as type and zone."""
    markets = [market for market in history.markets if market[0] in types]
    if not markets:
        raise SettingError(f"prices: the record has none of {', '.join(types) or 'the known types'}")
    return markets


def _counts(zone: str, zone_record: Mapping[str, Any]) -> tuple[float, Any]:
    """Return the seconds between two counts, and the counts of available machines."""
    try:
        return float(zone_record["gap_seconds"]), np.repeat(*np.array(zone_record["rle"], dtype=int).T)
    except (KeyError, TypeError, ValueError) as error:
        raise SettingError(f"availability: {zone}: gap_seconds or rle is missing or invalid ({error})") from None


# --- files ------------------------------------------------------------------------------------------------


def read_trace(
    path: Path, catalog: Catalog | None = None, conditions: RentalConditions = _DEFAULT_CONDITIONS
) -> Trace:
    """Read a record of prices, lifetimes or availability; its content tells which. The catalog has the types."""
    catalog = catalog or Catalog.shipped()
    if ".json" in path.suffixes:
        return _read_availability(path, catalog, conditions)
    data = path.read_bytes()
    beginning = _decompressed(data)[:_BEGINNING_BYTES].decode("utf-8-sig", "replace")
    if "lifetime" in beginning.partition("\n")[0]:
        lifetimes = Lifetimes.read(path)
        types, notes = _catalog_types(lifetimes.types, catalog)
        spot_prices = {type: _spot_price(type, catalog) for type in types}
        on_gcp = replace(conditions, billing=GCP_PREEMPTIBLE, notice_seconds=_GCP_NOTICE_SECONDS)
        trace = trace_from_lifetimes(lifetimes, types, spot_prices, on_gcp)
    else:
        history = PriceHistory.read(path)
        types, notes = _catalog_types(list(dict.fromkeys(type for type, _ in history.markets)), catalog)
        trace = trace_from_prices(history, types, conditions)
    return replace(trace, notes=notes)


_BEGINNING_BYTES = 200
"""Enough for the header of a CSV file."""


def _decompressed(data: bytes) -> bytes:
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def _read_availability(path: Path, catalog: Catalog, conditions: RentalConditions) -> Trace:
    try:
        record = json.loads(_decompressed(path.read_bytes()))
    except ValueError as error:
        raise SettingError(f"{path}: is not valid JSON ({error})") from None
    if not isinstance(record, dict) or not all(isinstance(each, dict) for each in record.values()):
        raise SettingError(f"{path}: must be a JSON object of zones, each with gap_seconds and rle")
    offer = catalog[_AVAILABILITY_MACHINE]
    type_data = TypeData(1.0, offer.price_per_hour)
    spot_price = offer.spot_price_per_hour or _AVAILABILITY_SPOT_SHARE * offer.price_per_hour
    notes = [
        f"{path.name}: the machines are assumed to be {offer.name}, at {spot_price:g} dollars an hour, and "
        f"{offer.price_per_hour:g} on demand"
    ]
    lengths = {zone: _length_seconds(zone_record) for zone, zone_record in record.items()}
    long_enough = {
        zone: record[zone] for zone, length in lengths.items() if length >= _LEAST_LENGTH * max(lengths.values())
    }
    if len(long_enough) < len(record):
        notes.append(
            f"{path.name}: {len(record) - len(long_enough)} zones are left out: their records are shorter than "
            "half of the longest one"
        )
    return replace(
        trace_from_availability(long_enough, offer.name, type_data, spot_price, conditions), notes=notes
    )


def _length_seconds(zone_record: Any) -> float:
    """Return the length of a zone's record; inf if it is invalid, so that trace_from_availability() reports it."""
    try:
        return float(zone_record["gap_seconds"] * sum(times for _, times in zone_record["rle"]))
    except (KeyError, TypeError, ValueError):
        return math.inf


def _catalog_types(names: Sequence[str], catalog: Catalog) -> tuple[dict[str, TypeData], list[str]]:
    """Return the data of the types that are in the catalog, and a note if there are others."""
    by_name = {offer.name: offer for offer in catalog}
    types = {
        name: TypeData(
            speed_with_cores(by_name[name].accelerators or by_name[name].cores), by_name[name].price_per_hour
        )
        for name in names
        if name in by_name
    }
    left_out = [name for name in names if name not in by_name]
    notes = [f"{len(left_out)} types are not in the catalog and are left out: {', '.join(left_out[:5])}"]
    return types, notes if left_out else []


def _spot_price(type: str, catalog: Catalog) -> float:
    offer = next(each for each in catalog if each.name == type)
    return offer.spot_price_per_hour or _GUESSED_SPOT_SHARE * offer.price_per_hour


# --- machines ---------------------------------------------------------------------------------------------


def _spot_kind(
    name: str, price: Any, type_data: TypeData, conditions: RentalConditions, **preemption_model: Any
) -> MachineType:
    return MachineType(
        name,
        price,
        type_data.slots,
        type_data.speed,
        conditions.billing,
        notice_seconds=conditions.notice_seconds,
        queue=conditions.queue,
        init=conditions.init,
        on_demand_price=type_data.on_demand_price,
        **preemption_model,
    )


def _on_demand_kinds(
    types: Mapping[str, TypeData], spot_types: Sequence[str], conditions: RentalConditions
) -> list[MachineType]:
    """Return an on-demand machine of each type that is also rented as a spot machine."""
    return [
        MachineType(
            f"{type} on demand",
            type_data.on_demand_price,
            type_data.slots,
            type_data.speed,
            PER_SECOND,
            queue=conditions.queue,
            init=conditions.init,
        )
        for type, type_data in types.items()
        if type in spot_types
    ]


def _fitted_and_true_survival(lifetimes: Lifetimes, type: str) -> tuple[Survival, Survival]:
    """Return the survival that a policy knows, and the one of the machines that a study meets."""
    of_type = lifetimes.type == type
    hours, ended = lifetimes.hours[of_type], lifetimes.ended[of_type]
    return fit_lifetime(hours[::2], ended[::2]), KaplanMeier.fit(hours[1::2], ended[1::2])


def _fitting_seconds(record_seconds: float) -> float:
    """Return the length of the part of a record that is for fitting."""
    return min(_FITTING_DAYS * DAY, _FITTING_SHARE * record_seconds)
