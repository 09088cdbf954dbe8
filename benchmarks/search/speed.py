"""Measures the CPU time of a suggestion at 50, 200 and 500 observations of 6 and 12 parameters, 4 pending.

Thriftune and the peers that fit a Gaussian process, each in a process of its own with one thread, interleaved, at
the same history; see speed_worker.py. What counts is the median of the suggestions after the first one; the first,
for which nothing is kept from before, stands beside it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import peers
from benchmarks.common import Row, main, say
from benchmarks.search import methods

PASSES, ROUNDS = 2, 4
SHARE_BAR = 0.2  # of the fastest peer's time
SECONDS_BAR = 0.05  # at 100 observations and 6 parameters


@dataclass(frozen=True)
class Case:
    observations: int
    dimensions: int
    mixed: bool

    def __str__(self) -> str:
        kind = "mixed" if self.mixed else "continuous"
        return f"n = {self.observations}, d = {self.dimensions}, {kind}"


CASES = tuple(
    Case(n, d, mixed)
    for d, sizes in ((6, (50, 100, 200, 500)), (12, (50, 200, 500)))
    for mixed in (False, True)
    for n in sizes
)


def times_of(name: str, case: Case, rounds: int, seed: int) -> dict[str, Any]:
    """Return the times of one new process: "cold" of the first suggestion, "warm" of the others, in seconds."""
    entry = methods.find(name)
    python = peers.python(entry.peer) if entry.peer else sys.executable
    script = Path(__file__).with_name("speed_worker.py")
    # With -P, the peer's imports cannot find our modules by accident.
    command = [str(python), "-P", str(script), "--method", name, "--observations", str(case.observations)]
    command += ["--dimensions", str(case.dimensions), "--rounds", str(rounds), "--seed", str(seed)]
    run = subprocess.run([*command, *["--mixed"] * case.mixed], capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"{name} failed at {case}:\n{run.stderr[-4000:]}")
    told: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    say(f"{case}: {name}: {told['cold']:.3f} s, then {median(told['warm']):.3f} s")
    return told


def measure(options: argparse.Namespace) -> list[Row]:
    others = [] if options.without_peers else [name for name, entry in methods.ENTRIES.items() if entry.gaussian]
    cases, passes, rounds = ((Case(8, 6, True),), 1, 1) if options.quick else (CASES, PASSES, ROUNDS)
    rows = []
    for case in cases:
        cold: dict[str, list[float]] = {name: [] for name in (methods.OURS, *others)}
        warm: dict[str, list[float]] = {name: [] for name in cold}
        for number in range(passes):
            for name in cold:
                told = times_of(name, case, rounds, number)
                cold[name].append(told["cold"])
                warm[name] += told["warm"]
        rows += _rows(case, cold, warm, judge=not options.quick)
    return rows


def _rows(case: Case, cold: dict[str, list[float]], warm: dict[str, list[float]], judge: bool) -> list[Row]:
    seconds = {name: median(times) for name, times in warm.items()}
    first = {name: median(times) for name, times in cold.items()}
    ours = seconds.pop(methods.OURS)
    data = {"cold": cold, "warm": warm}
    rows = []
    if (case.observations, case.dimensions) == (100, 6):
        rows.append(
            Row(
                f"{case}: thriftune",
                f"{ours * 1000:.0f} ms (first {first[methods.OURS] * 1000:.0f} ms)",
                bar=f"under {SECONDS_BAR * 1000:g} ms",
                met=ours < SECONDS_BAR if judge else None,
            )
        )
    figure = f"{ours * 1000:.0f} ms (first {first[methods.OURS] * 1000:.0f} ms)"
    if not seconds:
        return [*rows, Row(f"{case}: a suggestion", figure, data=data)]
    fastest = min(seconds, key=lambda name: seconds[name])
    others = ", ".join(f"{name} {seconds[name]:.2f} s (first {first[name]:.2f} s)" for name in seconds)
    return [
        *rows,
        Row(
            f"{case}: a suggestion",
            f"{figure}; {ours / seconds[fastest]:.2f} of {fastest}'s; {others}",
            bar=f"at most {SHARE_BAR:g} of the fastest GP peer's",
            met=ours / seconds[fastest] <= SHARE_BAR if judge else None,
            data=data,
        ),
    ]


if __name__ == "__main__":
    raise SystemExit(main(measure))
