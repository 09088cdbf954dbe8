"""On which clouds are policies compared? Recorded prices, lifetimes, availability; with refunds and without.

Whatever a policy knows of how long machines live was learnt from before the study begins, or from other machines
than those it meets.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby

import numpy as np

from benchmarks.search.tables import data
from thriftune.clouds.fates import AbovePrice, Available, Drawn, Fate
from thriftune.market.billing import EC2_SPOT, PER_SECOND
from thriftune.market.lifetime import Exponential, KaplanMeier, Lifetimes, fit_lifetime
from thriftune.market.prices import PriceHistory
from thriftune.market.revocation.model import RevocationModel
from thriftune.market.revocation.tabulated import Tabulated
from thriftune.planning.kinds import Kind

DAY = 86_400.0
SERIAL = 0.1  # of a step, by Amdahl
QUEUE, INIT, NOTICE = 60.0, 60.0, 120.0

TYPES_2016 = {  # cores, dollars an hour on demand
    "r3.large": (2, 0.166), "m1.xlarge": (4, 0.35), "d2.xlarge": (4, 0.69), "c1.xlarge": (8, 0.52),
    "d2.2xlarge": (8, 1.38), "m4.4xlarge": (16, 0.958),
}  # fmt: skip
TYPES_2021 = {
    "r4.xlarge": (4, 0.266), "c4.2xlarge": (8, 0.398), "r4.2xlarge": (8, 0.532), "i3.2xlarge": (8, 0.624),
    "m4.4xlarge": (16, 0.8), "r4.4xlarge": (16, 1.064),
}  # fmt: skip
TYPES_2024 = {  # how many times as fast as the first, dollars an hour on demand
    "g4dn.xlarge": (1.0, 0.526), "g6.xlarge": (1.6, 0.8048), "g5.xlarge": (2.0, 1.006), "p3.2xlarge": (2.6, 3.06),
}  # fmt: skip
PREEMPTIBLE = {  # cores, dollars an hour on demand; preemptible ones cost a fifth to a quarter
    "n1-highcpu-2": (2, 0.0709, 0.015), "n1-highcpu-4": (4, 0.1418, 0.03), "n1-highcpu-8": (8, 0.2836, 0.06),
    "n1-highcpu-16": (16, 0.5672, 0.12), "n1-highcpu-32": (32, 1.1344, 0.24),
}  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """A cloud, and when a study may begin on it."""

    name: str
    kinds: Sequence[Kind]
    fates: Callable[[int], Mapping[str, Fate]]  # by seed
    starts: Sequence[float]
    end: float

    def billed(self, refunds: bool) -> Setting:
        """With what is taken in the first hour let off, or not."""
        spot = EC2_SPOT if refunds else PER_SECOND
        kinds = [kind if kind.lasts else replace(kind, billing=spot) for kind in self.kinds]
        return replace(self, kinds=kinds, name=f"{self.name}, {'refunds' if refunds else 'no refunds'}")


def faster(cores: float) -> float:
    return 1.0 / (SERIAL + (1.0 - SERIAL) / cores)


def on_demand(type: str, price: float, speed: float) -> Kind:
    return Kind(f"{type} on demand", price, speed=speed, queue=QUEUE, init=INIT)


@cache
def prices_2016(starts: int = 4) -> Setting:
    history = PriceHistory.read(data() / "spot_prices_useast1_2016-02-25_2016-04-09.csv.gz")
    first = max(history[market].start for market in history.markets if market[0] in TYPES_2016)
    end = min(history[market].end for market in history.markets)
    learnt = first + 18 * DAY
    kinds, fates = [], {}
    for (type, zone), series in history.items():
        if type not in TYPES_2016:
            continue
        cores, price = TYPES_2016[type]
        model = RevocationModel().fit(series.window(series.start, learnt))
        kind = Kind(
            f"{type} {zone}", series, speed=faster(cores), revocation=Tabulated(model, series, learnt, end),
            notice_seconds=NOTICE, queue=QUEUE, init=INIT, on_demand_price=price,
        )  # fmt: skip
        kinds.append(kind)
        fates[kind.name] = AbovePrice(series)
    kinds += [on_demand(type, price, faster(cores)) for type, (cores, price) in TYPES_2016.items()]
    begin = np.linspace(learnt, end - 12 * DAY, starts).tolist()
    return Setting("prices of 2016", kinds, lambda _: fates, begin, end)


def _with_lifetimes(name: str, file: str, types: Mapping[str, tuple[float, float]], days: float) -> Setting:
    """Prices that tell nothing of revocation; machines live as preemptible ones did."""
    history = PriceHistory.read(data() / file)
    lives = Lifetimes.read(data() / "gcp_preemptions_2019_us-central1-c.csv.gz")
    names = lives.types
    kinds, truth = [], {}
    first = max(history[market].start for market in history.markets if market[0] in types)
    end = min(one.end for one in history.values())
    for number, (type, zone) in enumerate(market for market in history.markets if market[0] in types):
        cores, price = types[type]
        kept = lives.type == names[number % len(names)]
        known = fit_lifetime(lives.hours[kept][::2], lives.ended[kept][::2])
        kind = Kind(
            f"{type} {zone}", history[type, zone], speed=cores, survival=known, notice_seconds=NOTICE, queue=QUEUE,
            init=INIT, on_demand_price=price,
        )  # fmt: skip
        kinds.append(kind)
        truth[kind.name] = KaplanMeier.fit(lives.hours[kept][1::2], lives.ended[kept][1::2])
    kinds += [on_demand(type, price, cores) for type, (cores, price) in types.items()]

    def fates(seed: int) -> dict[str, Fate]:
        return {name: Drawn(each, 1000 * seed + i) for i, (name, each) in enumerate(truth.items())}

    return Setting(name, kinds, fates, np.linspace(first, end - days * DAY, 4).tolist(), end)


@cache
def prices_2021() -> Setting:
    types = {type: (faster(cores), price) for type, (cores, price) in TYPES_2021.items()}
    return _with_lifetimes("prices of 2021", "spot_prices_useast1_2021-03_2021-05.csv.gz", types, 12)


@cache
def prices_2024() -> Setting:
    return _with_lifetimes("prices of 2024-26", "spot_prices_useast1_2024-01_2026-03.csv.gz", TYPES_2024, 12)


@cache
def preemptible() -> Setting:
    lives = Lifetimes.read(data() / "gcp_preemptions_2019_us-central1-c.csv.gz")
    kinds, truth = [], {}
    for type, (cores, price, spot) in PREEMPTIBLE.items():
        kept = lives.type == type
        known = fit_lifetime(lives.hours[kept][::2], lives.ended[kept][::2])
        kinds.append(
            Kind(
                type,
                spot,
                speed=faster(cores),
                survival=known,
                notice_seconds=30.0,
                queue=QUEUE,
                init=INIT,
                on_demand_price=price,
            )
        )
        truth[type] = KaplanMeier.fit(lives.hours[kept][1::2], lives.ended[kept][1::2])
        kinds.append(on_demand(type, price, faster(cores)))

    def fates(seed: int) -> dict[str, Fate]:
        return {name: Drawn(each, 1000 * seed + i) for i, (name, each) in enumerate(truth.items())}

    return Setting("preemptible lifetimes", kinds, fates, [0.0, 1e6, 2e6, 3e6], np.inf)


@cache
def availability(prefix: str = "availability/1-node/aws-02-15-2023") -> Setting:
    traces = json.loads(gzip.decompress((data() / "spot_availability_traces.json.gz").read_bytes()))
    kinds, fates = [], {}
    learnt, ends = 0.0, []
    for name, trace in traces.items():
        if not name.startswith(prefix):
            continue
        gap = trace["gap_seconds"]
        counts = np.repeat([value for value, _ in trace["rle"]], [count for _, count in trace["rle"]])
        changes = np.flatnonzero(np.diff(counts, prepend=-1))
        # Each zone is the same to every trial: one obtainable machine stands for as many as are wanted.
        fate = Available(changes * gap, counts[changes] * 64, len(counts) * gap)
        learnt = 14 * DAY
        past = counts[: int(learnt / gap)] > 0
        runs = [len(list(run)) for up, run in groupby(past.tolist()) if up]
        zone = name.rsplit("/", 1)[1]
        kinds.append(
            Kind(
                zone,
                0.918,
                survival=Exponential(max(0.1, float(np.mean(runs or [1])) * gap / 3600.0)),
                queue=QUEUE,
                init=INIT,
                on_demand_price=3.06,
                availability=float(past.mean()),
            )
        )
        fates[zone] = fate
        ends.append(len(counts) * gap)
    kinds.append(on_demand("V100", 3.06, 1.0))
    return Setting(
        "availability of V100",
        kinds,
        lambda _: fates,
        np.linspace(learnt, min(ends) - 8 * DAY, 4).tolist(),
        min(ends),
    )
