"""The clouds on which policies are compared, from recorded prices, lifetimes and availability."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from functools import cache

from benchmarks.market.lifetimes import recorded
from benchmarks.reproduce import scispot_studies
from benchmarks.reproduce.spottune_studies import ON_DEMAND_2016, PRICES_2016
from benchmarks.search.tables import data
from thriftune.market.lifetime import Lifetimes
from thriftune.market.price_history import PriceHistory
from thriftune.replay.traces import (
    RentalConditions,
    Trace,
    TypeData,
    speed_with_cores,
    trace_from_availability,
    trace_from_lifetimes,
    trace_from_prices,
    trace_from_prices_and_lifetimes,
)

ON_DEMAND_2021 = {  # cores, dollars an hour
    "r4.xlarge": (4, 0.266), "c4.2xlarge": (8, 0.398), "r4.2xlarge": (8, 0.532), "i3.2xlarge": (8, 0.624),
    "m4.4xlarge": (16, 0.8), "r4.4xlarge": (16, 1.064),
}  # fmt: skip
ACCELERATED = {  # how many times as fast as the first, dollars an hour
    "g4dn.xlarge": (1.0, 0.526), "g6.xlarge": (1.6, 0.8048), "g5.xlarge": (2.0, 1.006), "p3.2xlarge": (2.6, 3.06),
}  # fmt: skip
V100 = TypeData(1.0, 3.06)
V100_SPOT = 0.918

_PRICES = "spot_prices_useast1_{}.csv.gz"


def _by_cores(table: Mapping[str, tuple[int, float]]) -> dict[str, TypeData]:
    return {type: TypeData(speed_with_cores(cores), price) for type, (cores, price) in table.items()}


def _lifetimes() -> Lifetimes:
    return Lifetimes.read(data() / scispot_studies.LIFETIMES_FILE)


def prices_of_2016() -> PriceHistory:
    return PriceHistory.read(data() / PRICES_2016)


@cache
def prices_2016() -> Trace:
    """Return a cloud with preemptions by price."""
    return trace_from_prices(prices_of_2016(), _by_cores(ON_DEMAND_2016))


@cache
def prices_2021() -> Trace:
    """Return a cloud with recorded prices, and preemptions by the recorded lifetimes of preemptible machines."""
    history = PriceHistory.read(data() / _PRICES.format("2021-03_2021-05"))
    return trace_from_prices_and_lifetimes(history, _lifetimes(), _by_cores(ON_DEMAND_2021))


@cache
def prices_2024() -> Trace:
    history = PriceHistory.read(data() / _PRICES.format("2024-01_2026-03"))
    return trace_from_prices_and_lifetimes(
        history, _lifetimes(), {type: TypeData(*each) for type, each in ACCELERATED.items()}
    )


@cache
def preemptible() -> Trace:
    return scispot_studies.preemptible(_lifetimes())


@cache
def availability(*zones: str) -> Trace:
    """Return a cloud with V100 machines in these zones, or in all five.

    If one machine was available, any number counts as available.
    """
    traces = json.loads(gzip.decompress((data() / "spot_availability_traces.json.gz").read_bytes()))
    found = {
        name.rsplit("/", 1)[1]: {**trace, "rle": [[64 * count, times] for count, times in trace["rle"]]}
        for name, trace in traces.items()
        if name.startswith("availability/1-node/aws-02-15-2023")
    }
    chosen = {zone: trace for zone, trace in found.items() if not zones or zone in zones}
    return trace_from_availability(chosen, "V100", V100, V100_SPOT, RentalConditions(notice_seconds=0.0))


@cache
def synthetic() -> Trace:
    """Return a cloud with synthetic lifetimes, distributed like those of preemptible machines."""
    types = {f"synthetic-{cores}": TypeData(speed_with_cores(cores), 0.035 * cores) for cores in (2, 16)}
    spot = {type: 0.2 * each.on_demand_price for type, each in types.items()}
    return trace_from_lifetimes(recorded(quick=True), types, spot, RentalConditions(notice_seconds=30.0))


SETTINGS: dict[str, Callable[[], Trace]] = {
    "prices of 2016": prices_2016,
    "prices of 2021": prices_2021,
    "prices of 2024-26": prices_2024,
    "preemptible lifetimes": preemptible,
    "V100, five zones": availability,
    "V100, one zone at 76%": lambda: availability("us-east-2a_v100_1"),
    "V100, one zone at 45%": lambda: availability("us-east-1d_v100_1"),
}
