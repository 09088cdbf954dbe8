"""Simulated studies for SpotTune's Figures 7 to 9.

Studies use SpotTune's policy or a fixed spot machine. The workloads have 16 recorded configurations each. Their
steps are stretched so that a trial takes ten hours on two cores. Speeds were measured with one and two cores, and
follow Amdahl's law for more. Machines are billed by the second and are free if they are preempted within their
first hour.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.reproduce import Request
from thriftune.market.price_history import PriceHistory
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
"""Cores and on-demand dollars per hour, by type."""

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
_SAMPLED_TIMES = 4000  # per market, at which machines are started to see whether they are lost
_PRICE_TICK = 0.0001  # dollars per hour: the smallest difference of a maximum price from the price
_HOUR = 3600.0


# --- the market --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Market:
    """The prices and the machines on which studies are simulated."""

    prices: PriceHistory
    machines: Machines
    recorded: bool

    def trace(self, name: str) -> Trace:
        """Return the trace of this market, with the machines' speeds for a workload."""
        return trace_from_prices(self.prices, types(name, self.machines))

    def lost_within_hour(self, delta: tuple[float, float]) -> list[float]:
        """Return the share of machines lost within an hour, by market.

        The maximum price exceeds the price by a uniform random amount in the range `delta`, in dollars.
        """
        rng = np.random.default_rng(0)
        shares = []
        for series in self.prices.values():
            times = rng.uniform(series.start, series.end - _HOUR, _SAMPLED_TIMES)
            max_price = series.price_at(times) + rng.uniform(*delta, _SAMPLED_TIMES)
            shares.append(float(np.mean(series.next_above(max_price, times) < times + _HOUR)))
        return shares


RANDOM_DELTA, LEAST_DELTA = (LOWEST_DELTA, HIGHEST_DELTA), (_PRICE_TICK, _PRICE_TICK)


def market(request: Request) -> Market:
    """Return the recorded prices of 2016, or synthetic ones of the paper's machines.

    A quick run uses one zone of each type.
    """
    path = request.record(PRICES_2016)
    if path is None:
        request.progress("drawing synthetic prices")
        on_demand = {type: price for type, (_, price) in TABLE_3.items()}
        zones, days = (ZONES[:1], _QUICK_DAYS) if request.quick else (ZONES, _DAYS)
        rng = np.random.default_rng(0)
        return Market(synthetic_prices(on_demand, rng, zones=zones, days=days), TABLE_3, recorded=False)
    request.progress("reading the prices of 2016")
    history = PriceHistory.read(path)
    markets = [each for each in history.markets if each[0] in ON_DEMAND_2016]
    if request.quick:
        markets = list({type: (type, zone) for type, zone in reversed(markets)}.values())
    return Market(PriceHistory(history[each] for each in markets), ON_DEMAND_2016, recorded=True)


def types(name: str, machines: Machines) -> dict[str, TypeData]:
    """Return the machine types with their speeds for a workload."""
    return {type: TypeData(1.0 / recorded.pace(name, cores), price) for type, (cores, price) in machines.items()}


def paced(trace: Trace, types: Mapping[str, TypeData]) -> Trace:
    """Return the trace with other speeds.

    The models of preemptions are not fitted again.
    """
    kinds = [replace(kind, speed=types[kind.name.split(" ")[0]].speed) for kind in trace.kinds]
    return replace(trace, kinds=kinds)


# --- the simulations --------------------------------------------------------------------------------------


def compared(name: str, trace: Trace, seeds: int) -> dict[str, PolicySummary]:
    """Simulate the four approaches of Figure 7 for a workload."""
    whole = simulate(
        recorded.load(name),
        cloud=trace,
        policies=[CHEAPEST, FASTEST, "step_cost"],
        stopping="none",
        **_simulation_options(name, seeds),
    )
    by_approach = {each.policy: each for each in whole}
    by_approach[WHOLE] = by_approach.pop("step_cost")
    by_approach[EARLY] = at_theta(name, trace, THETA, seeds)
    return by_approach


def at_theta(name: str, trace: Trace, theta: float, seeds: int) -> PolicySummary:
    """Simulate SpotTune's policy and stopping rule.

    The best three trials continue to their end.
    """
    rule = EarlyCurve(theta=theta, top=TOP)
    (comparison,) = simulate(
        recorded.load(name), cloud=trace, policies=["step_cost"], stopping=rule, **_simulation_options(name, seeds)
    )
    return comparison


def _simulation_options(name: str, seeds: int) -> dict[str, Any]:
    per_trial = statistics.median(sum(curve.seconds) for _, curve in recorded.load(name).rows)
    slower = HOURS * _HOUR / per_trial / recorded.pace(name, 2)
    return {"workers": 16, "seeds": seeds, "slower": slower, "restart_seconds": 30.0, "save_seconds": 10.0}


# --- the results ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Selected:
    """The figures of one run until the best trials are selected.

    As in the paper, the work of the best trials after their selection does not count.
    """

    dollars: float
    seconds: float
    free_steps: float  # share of the steps that were done on refunded machines
    refunded: float  # refunded share of the dollars


def until_selected(run: CloudReplay, theta: float) -> Selected:
    """Return the figures of a run until the best trials are selected.

    That is when each trial has done theta of its steps, or has ended earlier.
    """
    steps = run.result.spec.max_steps
    assert steps is not None, "a recording has a last step"
    early = math.ceil(theta * steps)
    selected_at = max(_reached_at(trial, early) for trial in run.result.trials)
    paid, refunded, free, done = 0.0, 0.0, 0.0, 0.0
    for row in run.result.ledger.rows:
        if row.since >= selected_at:
            continue
        ended = row.end <= selected_at
        # A machine that still runs at the selection would be released then, and its time paid.
        paid += row.dollars if ended else row.price_per_hour * (selected_at - row.since) / _HOUR
        refunded += row.refunded if ended else 0.0
        useful_steps = math.fsum(
            work.steps_done - work.steps_lost for work in row.work if work.since < selected_at
        )
        done += useful_steps
        free += useful_steps if ended and row.refunded > 0.0 else 0.0
    refunded_share = refunded / (paid + refunded) if refunded else 0.0
    return Selected(paid, selected_at - run.start, free / done, refunded_share)


def _reached_at(trial: TrialRecord, step: int) -> float:
    """Return when the trial was paused at this step, or when it ended before."""
    attempts = trial.past_attempts
    return next((attempt.ended_at for attempt in attempts if attempt.last_step >= step), attempts[-1].ended_at)


Runs = Sequence[Selected]
"""The runs of one workload and approach, by seed."""


def runs_of(comparison: PolicySummary, theta: float) -> Runs:
    """Return the figures of each simulated run until the best trials are selected."""
    return [until_selected(outcome.replayed, theta) for outcome in comparison.outcomes]


def by_seed(ratios: Iterable[Sequence[float]]) -> tuple[float, float | None]:
    """Return the mean of numbers by workload and seed, and its spread over seeds.

    The deviation is that of the means over workloads; it is None for a single seed.
    """
    means = [statistics.fmean(each) for each in zip(*ratios, strict=True)]
    return statistics.fmean(means), statistics.stdev(means) if len(means) > 1 else None
