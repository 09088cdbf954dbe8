"""The time to simulate a study of ten days with each policy: sixteen trials on 24 machine types."""

from __future__ import annotations

import argparse
import statistics
import time

from benchmarks.common import Row, main, say
from benchmarks.provisioning.settings import prices_2016, synthetic
from benchmarks.provisioning.studies import study, true_speeds
from thriftune.market.billing import PER_SECOND
from thriftune.provisioning.policies import make_policy
from thriftune.replay.cloud_simulation import replay
from thriftune.replay.simulated_cloud import SimulatedCloud

POLICIES = ("on_demand", "cheapest_spot", "step_cost", "thrifty")
HOURS, BAR_SECONDS, TIMES = 245.0, 1.0, 3


def measure(options: argparse.Namespace) -> list[Row]:
    trace = (synthetic if options.quick else prices_2016)().billed(PER_SECOND)
    replayed_study, workload = study(trace, 5.0 if options.quick else HOURS, 1.1)
    speeds, rows = true_speeds(trace), []
    for name in POLICIES:
        seconds, days = [], 0.0
        for _ in range(1 if options.quick else TIMES):
            say(name)
            cloud = SimulatedCloud(trace.kinds, trace.preemptions(0))
            policy = make_policy(name, trace.kinds, workload)
            arguments = (
                replayed_study.spec,
                replayed_study.curves(),
                replayed_study.searcher(),
                replayed_study.stopper(),
            )
            started = time.perf_counter()
            result = replay(cloud, policy, workload, *arguments, start=trace.start, speeds=speeds)
            seconds.append(time.perf_counter() - started)
            days = result.seconds / 86_400.0
        median = statistics.median(seconds)
        met = None if options.quick else median < BAR_SECONDS
        bar = f"under {BAR_SECONDS:g} s"
        rows.append(Row(f"{name}: {days:.1f} days of 16 trials", f"{median:.2f} s", bar, met))
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure))
