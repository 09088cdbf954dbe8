"""What do studies cost under SpotTune's policy, and on one spot machine for all trials? What Fig. 7 to 9 show.

Workloads of 16 configurations, trained for real and recorded, their steps stretched so that a trial takes ten
hours on two cores. How much faster more cores are was measured with one and two, and goes on by Amdahl. Billed by
the second, the first hour let off if the machine is taken away in it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.reproduce import Request
from thriftune.market.prices import PriceHistory
from thriftune.market.revocation.spottune_inputs import HIGHEST_DELTA, LOWEST_DELTA
from thriftune.market.synthetic import ZONES, synthetic_prices
from thriftune.replay import recorded
from thriftune.replay.cloud_simulation import CloudReplay
from thriftune.replay.simulation import simulate
from thriftune.replay.traces import Trace, TypeData, trace_from_prices
from thriftune.replay.what_if import PolicySummary
from thriftune.state.trial_record import TrialRecord
from thriftune.stopping.early_curve import EarlyCurve

THETA, TOP, HOURS = 0.7, 3, 10.0
CHEAPEST, FASTEST, WHOLE, EARLY = "cheapest_spot", "fastest_spot", "theta 1.0", "theta 0.7"

Machines = Mapping[str, tuple[int, float]]
"""Cores, and dollars an hour on demand, by type."""

TABLE_3: Machines = {
    "r4.large": (2, 0.133), "r3.xlarge": (4, 0.33), "r4.xlarge": (4, 0.266), "m4.2xlarge": (8, 0.4),
    "r4.2xlarge": (8, 0.532), "m4.4xlarge": (16, 0.8),
}  # fmt: skip
ON_DEMAND_2016: Machines = {
    "r3.large": (2, 0.166), "m1.xlarge": (4, 0.35), "d2.xlarge": (4, 0.69), "c1.xlarge": (8, 0.52),
    "d2.2xlarge": (8, 1.38), "m4.4xlarge": (16, 0.958),
}  # fmt: skip
PRICES_2016 = "spot_prices_useast1_2016-02-25_2016-04-09.csv.gz"

_QUICK_DAYS, _DAYS = 20.0, 45.0
_ASKED = 4000  # times at which a market is asked whether a machine would be lost
_BIT = 0.0001  # dollars an hour: the least that a maximum price can be above the price
_HOUR = 3600.0


# --- where ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Market:
    prices: PriceHistory
    machines: Machines
    recorded: bool

    def trace(self, name: str) -> Trace:
        """As fast as its machines are for that workload."""
        return trace_from_prices(self.prices, types(name, self.machines))

    def outbid(self, delta: tuple[float, float]) -> list[float]:
        """Of each market: the share of machines that are lost within an hour, whose maximum price is the price and
        so many dollars, evenly spread."""
        rng = np.random.default_rng(0)
        found = []
        for series in self.prices.values():
            at = rng.uniform(series.start, series.end - _HOUR, _ASKED)
            price = series.price_at(at) + rng.uniform(*delta, _ASKED)
            found.append(float(np.mean(series.next_above(price, at) < at + _HOUR)))
        return found


RANDOM_DELTA, LEAST_DELTA = (LOWEST_DELTA, HIGHEST_DELTA), (_BIT, _BIT)


def market(request: Request) -> Market:
    """The recorded prices of 2016, or made-up ones of the paper's machines. If quick, one zone of each type."""
    path = request.record(PRICES_2016)
    if path is None:
        request.told("making up prices")
        on_demand = {type: price for type, (_, price) in TABLE_3.items()}
        zones, days = (ZONES[:1], _QUICK_DAYS) if request.quick else (ZONES, _DAYS)
        rng = np.random.default_rng(0)
        return Market(synthetic_prices(on_demand, rng, zones=zones, days=days), TABLE_3, recorded=False)
    request.told("reading the prices of 2016")
    history = PriceHistory.read(path)
    markets = [each for each in history.markets if each[0] in ON_DEMAND_2016]
    if request.quick:
        markets = list({type: (type, zone) for type, zone in reversed(markets)}.values())
    return Market(PriceHistory(history[each] for each in markets), ON_DEMAND_2016, recorded=True)


def types(name: str, machines: Machines) -> dict[str, TypeData]:
    """As fast as they are for that workload."""
    return {type: TypeData(1.0 / recorded.pace(name, cores), price) for type, (cores, price) in machines.items()}


def paced(trace: Trace, types: Mapping[str, TypeData]) -> Trace:
    """The same machines, as fast as they are for another workload: the market is learnt once."""
    kinds = [replace(kind, speed=types[kind.name.split(" ")[0]].speed) for kind in trace.kinds]
    return replace(trace, kinds=kinds)


# --- what is run ------------------------------------------------------------------------------------------


def compared(name: str, trace: Trace, seeds: int) -> dict[str, PolicySummary]:
    """The four approaches of Fig. 7."""
    whole = simulate(
        recorded.load(name),
        cloud=trace,
        policies=[CHEAPEST, FASTEST, "step_cost"],
        stopping="none",
        **_given(name, seeds),
    )
    found = {each.policy: each for each in whole}
    found[WHOLE] = found.pop("step_cost")
    found[EARLY] = at_theta(name, trace, THETA, seeds)
    return found


def at_theta(name: str, trace: Trace, theta: float, seeds: int) -> PolicySummary:
    """SpotTune's policy and rule; the best three go on to their end."""
    rule = EarlyCurve(theta=theta, top=TOP)
    (found,) = simulate(
        recorded.load(name), cloud=trace, policies=["step_cost"], stopping=rule, **_given(name, seeds)
    )
    return found


def _given(name: str, seeds: int) -> dict[str, Any]:
    per_trial = statistics.median(sum(curve.seconds) for _, curve in recorded.load(name).rows)
    slower = HOURS * _HOUR / per_trial / recorded.pace(name, 2)
    return {"workers": 16, "seeds": seeds, "slower": slower, "restart_seconds": 30.0, "save_seconds": 10.0}


# --- what came of it --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Selected:
    """One run until the best are selected, as the paper counts: those that go on after it are not in it.

    `free_steps`: the share of the steps that were done on machines that cost nothing in the end.
    `refunded`: the share of the dollars that was let off.
    """

    dollars: float
    seconds: float
    free_steps: float
    refunded: float


def until_selected(run: CloudReplay, theta: float) -> Selected:
    """The best are selected when the last trial has come to theta of its steps, or to its own end before."""
    steps = run.result.spec.max_steps
    assert steps is not None, "a recording has a last step"
    early = math.ceil(theta * steps)
    at = max(_arrived(trial, early) for trial in run.result.trials)
    paid, let_off, free, done = 0.0, 0.0, 0.0, 0.0
    for row in run.result.ledger.rows:
        if row.since >= at:
            continue
        gone = row.end <= at
        # One that is still there would be given back then, and paid.
        paid += row.dollars if gone else row.price_per_hour * (at - row.since) / _HOUR
        let_off += row.refunded if gone else 0.0
        kept = math.fsum(work.steps_done - work.steps_lost for work in row.work if work.since < at)
        done += kept
        free += kept if gone and row.refunded > 0.0 else 0.0
    return Selected(paid, at - run.start, free / done, let_off / (paid + let_off) if let_off else 0.0)


def _arrived(trial: TrialRecord, step: int) -> float:
    """When it was set aside at that step, or ended before."""
    return next(
        (stay.ended_at for stay in trial.past_attempts if stay.last_step >= step), trial.past_attempts[-1].ended_at
    )


Runs = Sequence[Selected]
"""Of one workload and approach, by seed."""


def runs_of(found: PolicySummary, theta: float) -> Runs:
    return [until_selected(each.replayed, theta) for each in found.outcomes]


def by_seed(ratios: Iterable[Sequence[float]]) -> tuple[float, float | None]:
    """Of numbers by workload and seed: the mean over all, and how far the means over workloads differ by seed."""
    means = [statistics.fmean(each) for each in zip(*ratios, strict=True)]
    return statistics.fmean(means), statistics.stdev(means) if len(means) > 1 else None
