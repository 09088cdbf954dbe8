"""A comparison of all policies by cost and deadlines met, on recorded clouds.

Sixteen trials run in parallel. Each takes 14 to 26 hours on the best on-demand machine. Deadlines are 1.15 and 2.5
times the longest trial, with refunds and without. Machines are faster or slower than stated. A policy that misses
the deadline in more than 1 of 100 runs is not compared by cost.
"""

from __future__ import annotations

import argparse

from benchmarks.common import Row, main, say
from benchmarks.provisioning.settings import SETTINGS, synthetic
from benchmarks.provisioning.studies import study, true_speeds
from thriftune.market.billing import EC2_SPOT, PER_SECOND
from thriftune.replay.what_if import PolicySummary, compare_policies

HOURS, SLACKS, SEEDS = 20.0, (1.15, 2.5), 6
OURS = "thrifty"
OTHERS = ("on_demand", "cheapest_spot", "fastest_spot", "step_cost", "elastic", "uniform_progress")
IN_TIME, DEARER, OVER_ORACLE = 0.99, 1.05, 1.25


def measure(options: argparse.Namespace) -> list[Row]:
    rows, ratios, in_time, oracle_ratios = [], [], [], []
    chosen = {"synthetic lifetimes": synthetic} if options.quick else SETTINGS
    for name, make in chosen.items():
        trace = make()
        has_lifetimes = any(kind.survival is not None for kind in trace.kinds) and "V100" not in name
        policies = [OURS, *OTHERS, *(["reuse"] if has_lifetimes else [])]
        for refunds in (False, True):
            billed = trace.billed(EC2_SPOT if refunds else PER_SECOND)
            for slack in SLACKS[:1] if options.quick else SLACKS:
                what = f"{name}, {'refunds' if refunds else 'no refunds'}, {slack:g} times the time"
                replayed_study, workload = study(billed, HOURS, slack)
                seeds = 1 if options.quick else SEEDS
                summaries = compare_policies(
                    replayed_study, billed, policies, workload, seeds=seeds, speeds=true_speeds(billed)
                )
                say(what)
                ours, rivals = summaries[0], [each for each in summaries[1:] if each.deadline_met >= IN_TIME]
                ratio = ours.cost / min(each.cost for each in rivals)
                ratios.append(ratio)
                in_time += [each.deadline_met for each in ours.outcomes]
                if not refunds and ours.oracle_ratio is not None:
                    oracle_ratios.append(ours.oracle_ratio)
                met = None if options.quick else ratio <= DEARER and ours.deadline_met >= IN_TIME
                figure = "; ".join(_describe(each) for each in summaries)
                rows.append(Row(what, figure, f"at most {DEARER:g} times the best in time", met, _data(summaries)))
    judge = not options.quick
    cheapest = sum(ratio <= 1.0 + 1e-9 for ratio in ratios)
    figure = f"{cheapest} of {len(ratios)}; {max(ratios):.3f} times the best at most"
    rows.append(
        Row(
            "thrifty is the cheapest in time",
            figure,
            "in every setting",
            cheapest == len(ratios) if judge else None,
        )
    )
    share = sum(in_time) / len(in_time)
    rows.append(Row("deadlines met", f"{share:.1%} of {len(in_time)}", "99%", share >= IN_TIME if judge else None))
    worst = max(oracle_ratios, default=1.0)
    figure = f"{sum(oracle_ratios) / max(1, len(oracle_ratios)):.3f} on average, {worst:.3f} at most"
    bar = f"at most {OVER_ORACLE:g}"
    rows.append(Row("over the oracle, no refunds", figure, bar, worst <= OVER_ORACLE if judge else None))
    return rows


def _describe(each: PolicySummary) -> str:
    late = "" if each.deadline_met >= IN_TIME else f" (in time {each.deadline_met:.0%})"
    ratio = "" if each.oracle_ratio is None else f" {each.oracle_ratio:.2f}"
    return f"{each.policy} ${each.cost:.2f} +- {each.cost_spread:.2f}{ratio}{late}"


def _data(summaries: list[PolicySummary]) -> dict[str, object]:
    return {each.policy: each.to_json() for each in summaries}


if __name__ == "__main__":
    raise SystemExit(main(measure))
