"""The time to plan the largest of RubberBand's jobs, and to simulate a plan a thousand times."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from benchmarks.common import Row, main, say
from thriftune.planning import CloudProfile, Latency, Profile, frontier, successive_halving
from thriftune.planning.plan_finder import plan

PROFILE = Profile({2**power: 12.0 / 2 ** (0.85 * power) for power in range(6)}, startup=5.0, checkpoint=2.0)
CLOUD = CloudProfile(slots=4, price_per_hour=12.24, queue=10.0, init=15.0, minimum=60.0, max_machines=256)
DEADLINES = (1.2, 1.6, 2.5)  # relative to the fastest plan
ROUNDS = 5


def measure(options: argparse.Namespace) -> list[Row]:
    n, last = (64, 512) if options.quick else (512, 4096)
    job, rounds = successive_halving(n, 4, last), 1 if options.quick else ROUNDS
    every = frontier(job, PROFILE, CLOUD, points=2)
    rows = []
    slowest = 0.0
    for times in DEADLINES:
        deadline = times * every[0].duration
        taken = _median(lambda deadline=deadline: plan(job, PROFILE, CLOUD, deadline=deadline), rounds)  # type: ignore[misc]
        found = plan(job, PROFILE, CLOUD, deadline=deadline)
        slowest = max(slowest, taken)
        figure = f"{taken:.3f} s; ${found.cost:.2f}, gap {found.gap:.1e}"
        rows.append(Row(f"SHA({n}, 4, {last}), {times:g} times the quickest", figure))
        say(f"{times:g} times the quickest: done")
    met = None if options.quick else slowest < 1.0
    rows.append(Row("exact, 1,024 accelerators", f"{slowest:.3f} s at most", "under 1 s", met))
    taken = _median(lambda: frontier(job, PROFILE, CLOUD), rounds)
    rows.append(Row("its frontier, 40 deadlines", f"{taken:.2f} s"))
    noisy = replace(PROFILE, std=1.0)
    cloud = replace(CLOUD, queue=Latency(10.0, 5.0), init=Latency(15.0, 5.0))
    deadline = 1.6 * every[0].duration
    taken = _median(lambda: plan(job, noisy, cloud, deadline=deadline), 1)
    rows.append(Row("with noise, and a probability to keep to", f"{taken:.2f} s"))
    small = plan(successive_halving(64, 4, 508), noisy, cloud, deadline="1h")
    taken = _median(lambda: small.simulate(1000), rounds)
    met = None if options.quick else taken < 0.5
    rows.append(Row("1,000 executions of a 64-trial plan", f"{taken:.3f} s", "under 0.5 s", met))
    return rows


def _median(call: Callable[[], object], rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return float(np.median(taken))


if __name__ == "__main__":
    raise SystemExit(main(measure))
