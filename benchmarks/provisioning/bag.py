"""The cost of a bag of 1,000 short jobs on preemptible machines, compared with on-demand machines.

The jobs are those of `python -m benchmarks.reproduce scispot`, with bars to pass: 14 minutes each on a machine of
16 cores, as in SciSpot's Nanoconfinement, 64 at a time. Lifetimes are recorded. The policy knows half of them in
advance, and the machines of the simulation have the other half. At list prices, a preemptible machine costs 1 /
4.73 of an on-demand one.
"""

from __future__ import annotations

import argparse

from benchmarks.common import Row, main, say
from benchmarks.provisioning.settings import preemptible, synthetic
from benchmarks.reproduce.scispot_studies import BAG_JOBS, bag

CHEAPER, OVERHEAD = 5.0, 0.03


def measure(options: argparse.Namespace) -> list[Row]:
    trace = (synthetic if options.quick else preemptible)()
    say("simulating")
    on_demand, *others = bag(trace, 50 if options.quick else BAG_JOBS, 1 if options.quick else 5)
    rows = [Row("on demand", f"${on_demand.dollars:.2f}, {on_demand.seconds / 3600.0:.1f} h")]
    for each in others:
        cheaper = on_demand.dollars / each.dollars
        ours = each.policy == "thrifty" and not options.quick
        figure = f"{cheaper:.2f} times; ${each.dollars:.2f} +- {each.spread:.2f}, {each.seconds / 3600.0:.1f} h"
        bar = f"at least {CHEAPER:g}"
        met = cheaper >= CHEAPER if ours else None
        rows.append(Row(f"{each.policy}: cheaper than on demand", figure, bar, met))
        figure = f"{each.overhead:.2%}; {each.lost:.2%} of the jobs lost their machine"
        met = each.overhead < OVERHEAD if ours else None
        rows.append(Row(f"{each.policy}: time that losses took", figure, f"under {OVERHEAD:.0%}", met))
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure))
