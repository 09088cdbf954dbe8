"""A comparison of the predicted time and cost of plans with their execution in the simulator.

The conductor executes optimal plans for RubberBand's jobs and for Hyperband, for tight to loose deadlines, on the
simulated engine and cloud. Machines have random (lognormal) queue and init latencies. Trials differ in speed by a
twentieth and take time to start and to save. The prediction is an expectation, so it is compared with the mean of
twenty seeds: with only three, the plans for the tightest deadlines, which wait for machines for half of their
time, may be 8 % off by chance.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.common import Row, main, say
from thriftune.planning import CloudProfile, JobSpec, Latency, Profile, frontier, hyperband, successive_halving
from thriftune.replay.plan_simulation import execute_plan

SECONDS = {1: 4.0, 2: 2.2, 4: 1.3, 8: 0.9}
PROFILE = Profile(SECONDS, std=0.05 * SECONDS[1], startup=3.0, checkpoint=1.0)
CLOUDS = {
    billing: CloudProfile(
        slots=4,
        price_per_hour=12.24,
        queue=Latency(10.0, 3.0),
        init=Latency(15.0, 4.0),
        billing=billing,
        minimum=60.0,
        data_gb=10.0,
        data_price=0.01,
    )
    for billing in ("per_instance", "per_function")
}
JOBS: dict[str, JobSpec] = {
    "SHA(64, 4, 508)": successive_halving(64, 4, 508, 2),
    "SHA(32, 1, 50, 3)": successive_halving(32, 1, 50, 3),
    "Hyperband(1, 27, 3)": hyperband(1, 27, 3),
}
PLANS, SEEDS = 4, 20
BAR = 0.03


def measure(options: argparse.Namespace) -> list[Row]:
    jobs = {"SHA(8, 1, 7)": successive_halving(8, 1, 7, 2)} if options.quick else JOBS
    rows, off = [], []
    for job, spec in jobs.items():
        for billing, cloud in CLOUDS.items():
            every = frontier(spec, PROFILE, cloud, points=24)
            chosen = [every[i] for i in sorted({round(x) for x in np.linspace(0, len(every) - 1, PLANS)})]
            for plan in chosen:
                found = [execute_plan(plan, seed) for seed in range(SEEDS)]
                seconds, dollars = [each.seconds for each in found], [each.dollars for each in found]
                errors = np.mean(seconds) / plan.duration - 1.0, np.mean(dollars) / plan.cost - 1.0
                off.append(errors)
                figure = f"{plan.duration:.0f} s and ${plan.cost:.2f} predicted; {np.mean(seconds):.0f} s "
                figure += f"({errors[0]:+.1%}) and ${np.mean(dollars):.2f} ({errors[1]:+.1%}) executed"
                machines = ", ".join(str(stage.machines) for stage in plan.stages)
                data = {"predicted": [plan.duration, plan.cost], "seconds": seconds, "dollars": dollars}
                rows.append(Row(f"{job}, {billing}, machines {machines}", figure, data=data))
            say(f"{job}, {billing}: done")
    table = np.abs(np.array(off))
    for i, what in enumerate(("duration", "cost")):
        mean, worst = table[:, i].mean(), table[:, i].max()
        met = None if options.quick else bool(worst <= BAR)
        about = f"{what}: mean of {SEEDS} seeds against the prediction"
        rows.append(Row(about, f"off by {mean:.1%} on average, {worst:.1%} at most", f"within {BAR:.0%}", met))
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure))
