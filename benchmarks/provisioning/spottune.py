"""SpotTune's comparison (its Figure 7) on the prices of 2016: its policy against one spot machine for all trials.

Six workloads of 16 configurations, trained for real and recorded (examples/workloads), their steps stretched so
that a trial takes ten hours on two cores. `step_cost` with theta 1.0 and 0.7 (then the best three go on), against
the spot machine with the lowest price and the fastest one, which are never outbid. Machines of 2 to 16 cores in
three zones; how much faster more cores are was measured with one and two, and goes on by Amdahl. Billed by the
second, the first hour let off if the machine is taken away in it.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace
from typing import Any

import thriftune as tt
from benchmarks.common import Row, main, say
from benchmarks.provisioning.settings import ON_DEMAND_2016, prices_of_2016, synthetic
from thriftune import recorded
from thriftune.clouds.traces import Trace, Type, of_prices
from thriftune.stopping.early_curve import EarlyCurve
from thriftune.what_if import Compared

THETA, TOP, HOURS, SEEDS = 0.7, 3, 10.0, 4
PAPER = {  # what is saved, and how many times the performance for the cost, against cheapest and fastest
    "theta 1.0": ((0.415, 0.8604), (2.65, 3.36)),
    "theta 0.7": ((0.7564, 0.9418), (13.11, 16.61)),
}


def measure(options: argparse.Namespace) -> list[Row]:
    names = recorded.names()[:1] if options.quick else recorded.names()
    rows, savings, ratios = [], [], []
    trace: Trace | None = None
    for name in names:
        say(name)
        types = {
            type: Type(1.0 / recorded.pace(name, cores), price) for type, (cores, price) in ON_DEMAND_2016.items()
        }
        if options.quick:
            trace = synthetic()
        else:
            trace = of_prices(prices_of_2016(), types) if trace is None else _with(trace, types)
        found = _compared(name, trace, 1 if options.quick else SEEDS)
        cheapest, fastest = found["cheapest_spot"], found["fastest_spot"]
        told = []
        for theta in ("theta 1.0", "theta 0.7"):
            ours = found[theta]
            saved = [1.0 - ours.cost / other.cost for other in (cheapest, fastest)]
            better = [other.cost * other.duration / (ours.cost * ours.duration) for other in (cheapest, fastest)]
            savings.append((theta, saved))
            ratios.append((theta, better))
            told.append(f"{theta} ${ours.cost:.2f}, {ours.duration / 3600.0:.1f} h")
        others = f"cheapest ${cheapest.cost:.2f}, {cheapest.duration / 3600.0:.1f} h; "
        others += f"fastest ${fastest.cost:.2f}, {fastest.duration / 3600.0:.1f} h"
        rows.append(Row(name, f"{'; '.join(told)}; {others}"))
    for theta, (paper_saved, paper_better) in PAPER.items():
        saved = [_mean([each[i] for which, each in savings if which == theta]) for i in (0, 1)]
        better = [_mean([each[i] for which, each in ratios if which == theta]) for i in (0, 1)]
        figure = f"{saved[0]:.0%} and {saved[1]:.0%}; paper {paper_saved[0]:.0%} and {paper_saved[1]:.0%}"
        rows.append(Row(f"{theta}: saved against cheapest and fastest", figure))
        figure = (
            f"{better[0]:.1f} and {better[1]:.1f} times; paper {paper_better[0]:.1f} and {paper_better[1]:.1f}"
        )
        rows.append(Row(f"{theta}: performance for the cost", figure))
    return rows


def _compared(name: str, trace: Trace, seeds: int) -> dict[str, Compared]:
    recording = recorded.load(name)
    per_trial = statistics.median(sum(curve.seconds) for _, curve in recording.rows)
    slower = HOURS * 3600.0 / per_trial / recorded.pace(name, 2)
    given: dict[str, Any] = {"workers": 16, "seeds": seeds, "slower": slower}
    given |= {"restart_seconds": 30.0, "save_seconds": 10.0}
    whole = tt.simulate(
        recording, cloud=trace, policies=["cheapest_spot", "fastest_spot", "step_cost"], stopping="none", **given
    )
    found = {each.policy: each for each in whole}
    found["theta 1.0"] = found.pop("step_cost")
    rule = EarlyCurve(theta=THETA, top=TOP)
    (found["theta 0.7"],) = tt.simulate(recording, cloud=trace, policies=["step_cost"], stopping=rule, **given)
    return found


def _with(trace: Trace, types: dict[str, Type]) -> Trace:
    """The same machines, as fast as they are for another workload: the market is learnt once."""
    kinds = [replace(kind, speed=types[kind.name.split(" ")[0]].speed) for kind in trace.kinds]
    return replace(trace, kinds=kinds)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    raise SystemExit(main(measure))
