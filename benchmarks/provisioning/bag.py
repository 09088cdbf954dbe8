"""A bag of 1,000 short jobs on preemptible machines: what does it cost against on demand, and what do losses take?

Jobs of 14 minutes on a machine of 16 cores, as SciSpot's Nanoconfinement; each is one step, so that a job whose
machine is lost is done again from its beginning. 64 at a time. Lifetimes as recorded: half of the machines are
known to the policy, the others are those it meets. By the list, a preemptible one costs 1 / 4.73 of one on demand.
"""

from __future__ import annotations

import argparse

from benchmarks.common import Row, main, say
from benchmarks.provisioning.settings import preemptible, synthetic
from thriftune.engines.simulated import Curve
from thriftune.market.billing import GCP_PREEMPTIBLE
from thriftune.objectives import Objective
from thriftune.parameters import Float
from thriftune.provisioning.terms import Terms
from thriftune.search.random import Random
from thriftune.space import Space
from thriftune.spec import Spec
from thriftune.what_if import Asked, compare

JOBS, AT_A_TIME, MINUTES = 1000, 64, 14.0
CHEAPER, OVERHEAD = 5.0, 0.03


def measure(options: argparse.Namespace) -> list[Row]:
    trace = (synthetic if options.quick else preemptible)().billed(GCP_PREEMPTIBLE)
    speed = next(kind.speed for kind in trace.kinds if kind.name.endswith("-16"))
    seconds = 60.0 * MINUTES * speed
    jobs = 50 if options.quick else JOBS
    curve = Curve([1], [{"loss": 1.0}], [seconds])
    spec = Spec("bag", Space({"x": Float(0.0, 1.0)}), (Objective("loss", False),), 0, trials=jobs, max_steps=1)
    asked = Asked(spec, lambda: lambda _: curve, Random, lambda: None)
    terms = Terms(AT_A_TIME, jobs, seconds_per_step=seconds, restart_seconds=10.0)
    say("simulating")
    seeds = 1 if options.quick else 5
    found = compare(asked, trace, ["on_demand", "reuse", "thrifty"], terms, seeds=seeds)
    on_demand = found[0].cost
    rows = [Row("on demand", f"${on_demand:.2f}, {found[0].duration / 3600.0:.1f} h")]
    for each in found[1:]:
        cheaper = on_demand / each.cost
        stays = [trial.stays for outcome in each.outcomes for trial in outcome.replayed.result.trials]
        done, lost = len(stays), sum(len(own) - 1 for own in stays)
        spent = sum(stay.until - stay.since for own in stays for stay in own)
        useful = sum(own[-1].until - own[-1].since for own in stays)
        overhead = spent / useful - 1.0
        ours = each.policy == "thrifty" and not options.quick
        figure = f"{cheaper:.2f} times; ${each.cost:.2f} +- {each.cost_spread:.2f}, {each.duration / 3600.0:.1f} h"
        bar = f"at least {CHEAPER:g}"
        met = cheaper >= CHEAPER if ours else None
        rows.append(Row(f"{each.policy}: cheaper than on demand", figure, bar, met))
        figure = f"{overhead:.2%}; {lost / done:.2%} of the jobs lost their machine"
        met = overhead < OVERHEAD if ours else None
        rows.append(Row(f"{each.policy}: time that losses took", figure, f"under {OVERHEAD:.0%}", met))
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure))
