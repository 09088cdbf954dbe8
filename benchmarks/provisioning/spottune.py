"""SpotTune's comparison (its Figure 7) on the prices of 2016: its policy against one spot machine for all trials.

Six workloads of 16 configurations were trained and recorded (examples/workloads). Their steps are stretched so
that a trial takes ten hours on two cores. `step_cost` runs with theta 1.0, and with 0.7, after which the best
three trials continue. It is compared with the cheapest and the fastest spot machine, without a maximum price.
Machines have 2 to 16 cores in three zones. The speedup by cores was measured with one and two, and is extrapolated
by Amdahl's law. Time is billed by the second, and a machine that is preempted in its first hour is refunded.
"""

from __future__ import annotations

import argparse

from benchmarks.common import Row, main, say
from benchmarks.provisioning.settings import prices_of_2016, synthetic
from benchmarks.reproduce.spottune import SAVED, WORTH
from benchmarks.reproduce.spottune_studies import (
    CHEAPEST,
    EARLY,
    FASTEST,
    ON_DEMAND_2016,
    WHOLE,
    compared,
    paced,
    types,
)
from thriftune.replay import recorded
from thriftune.replay.traces import Trace, trace_from_prices

SEEDS = 4
OTHERS = (CHEAPEST, FASTEST)


def measure(options: argparse.Namespace) -> list[Row]:
    names = recorded.names()[:1] if options.quick else recorded.names()
    rows, savings, ratios = [], [], []
    trace: Trace | None = None
    for name in names:
        say(name)
        known = types(name, ON_DEMAND_2016)
        if options.quick:
            trace = synthetic()
        else:
            trace = trace_from_prices(prices_of_2016(), known) if trace is None else paced(trace, known)
        found = compared(name, trace, 1 if options.quick else SEEDS)
        cheapest, fastest = (found[other] for other in OTHERS)
        told = []
        for theta in (WHOLE, EARLY):
            ours = found[theta]
            saved = [1.0 - ours.cost / other.cost for other in (cheapest, fastest)]
            better = [other.cost * other.duration / (ours.cost * ours.duration) for other in (cheapest, fastest)]
            savings.append((theta, saved))
            ratios.append((theta, better))
            told.append(f"{theta} ${ours.cost:.2f}, {ours.duration / 3600.0:.1f} h")
        others = f"cheapest ${cheapest.cost:.2f}, {cheapest.duration / 3600.0:.1f} h; "
        others += f"fastest ${fastest.cost:.2f}, {fastest.duration / 3600.0:.1f} h"
        rows.append(Row(name, f"{'; '.join(told)}; {others}"))
    for theta in (WHOLE, EARLY):
        paper_saved, paper_better = ([each[theta, other] for other in OTHERS] for each in (SAVED, WORTH))
        saved = [_mean([each[i] for which, each in savings if which == theta]) for i in (0, 1)]
        better = [_mean([each[i] for which, each in ratios if which == theta]) for i in (0, 1)]
        figure = f"{saved[0]:.0%} and {saved[1]:.0%}; paper {paper_saved[0]:.0%} and {paper_saved[1]:.0%}"
        rows.append(Row(f"{theta}: saved against cheapest and fastest", figure))
        figure = (
            f"{better[0]:.1f} and {better[1]:.1f} times; paper {paper_better[0]:.1f} and {paper_better[1]:.1f}"
        )
        rows.append(Row(f"{theta}: performance for the cost", figure))
    return rows


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    raise SystemExit(main(measure))
