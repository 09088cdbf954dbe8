"""Measure what system tuning costs where it can gain nothing: on one core, with epochs of a millisecond.

The same study runs with `system="auto"` and "off", twice in each round. The side that runs first also runs last,
so that a slower phase of the machine disturbs both alike. Figures are the ratios of wall time and of the trials'
CPU time, and the time of reading the counters relative to the least time between two readings.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median

from benchmarks.common import Row, in_new_process, main, say, scratch
from benchmarks.system.tiny import TRIALS, one
from thriftune.system.counters import Counters
from thriftune.system.energy import EnergyMeter
from thriftune.system.gauge import LEAST_STEP_SECONDS

ROUNDS, STEPS = 15, 1500
BAR, READING_BAR = 0.02, 0.01


def measure(options: argparse.Namespace) -> list[Row]:
    rounds, steps = (1, 50) if options.quick else (ROUNDS, STEPS)
    walls, cpus = [], []
    for number in range(rounds):
        with scratch() as folder:
            found: dict[str, list[tuple[float, float]]] = {"auto": [], "off": []}
            first, second = ("auto", "off") if number % 2 else ("off", "auto")
            for turn, side in enumerate((first, second, second, first)):
                found[side].append(in_new_process(one, side, str(Path(folder) / f"{turn}.db"), steps))
            (wall, cpu), (wall_off, cpu_off) = (map(sum, zip(*found[side], strict=True)) for side in found)
            walls.append(wall / wall_off)
            cpus.append(cpu / cpu_off)
            say(f"round {number + 1}: {walls[-1] - 1:+.1%} of time, {cpus[-1] - 1:+.1%} of CPU time")
    reading = _reading_seconds()
    judge = not options.quick
    spread = f"{min(walls) - 1:+.1%} to {max(walls) - 1:+.1%}"
    return [
        Row(
            f"longer by, 1 core, {TRIALS} trials of {steps} steps of about a millisecond",
            f"{median(walls) - 1:+.1%} of time ({spread}), {median(cpus) - 1:+.1%} of CPU time",
            f"under {BAR:.0%}",
            median(walls) - 1 < BAR if judge else None,
        ),
        Row(
            "counters and energy, read once each fifth of a second, which is the most",
            f"{reading * 1e6:.0f} microseconds, {reading / LEAST_STEP_SECONDS:.3%}",
            f"under {READING_BAR:.0%}",
            reading / LEAST_STEP_SECONDS < READING_BAR if judge else None,
        ),
    ]


def _reading_seconds() -> float:
    counters, energy = Counters(), EnergyMeter()
    times = []
    for _ in range(500):
        began = time.perf_counter()
        counters.read()
        energy.take(1.0)
        times.append(time.perf_counter() - began)
    return median(times)


if __name__ == "__main__":
    raise SystemExit(main(measure))
