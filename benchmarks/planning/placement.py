"""The time to place all trials of a large job on its machines.

1,000 trials of 1, 2, 4 and 8 workers fill all slots of 500 machines of 4 slots. They are placed from nothing,
after a third of them has changed size, and when a fifth has ended, on the fewest machines that can hold the
others.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from collections.abc import Callable
from typing import TypeVar

from benchmarks.common import Row, main, say
from thriftune.planning.placement import PlacementResult, place, place_on_fewer

SECONDS_BAR = 0.05
SHARES = {
    1: 0.52,
    2: 0.30,
    4: 0.14,
    8: 0.04,
}  # workers -> share of the trials; two workers on average
TRIALS, SLOTS = 1000, 4

T = TypeVar("T")


def mixed(trials: int, rng: random.Random) -> dict[int, int]:
    sizes = [workers for workers, share in SHARES.items() for _ in range(round(share * trials))]
    rng.shuffle(sizes)
    return dict(enumerate(sizes))


def swapped(wanted: dict[int, int], share: float, rng: random.Random) -> dict[int, int]:
    """Exchange the sizes of pairs of trials, so that this share of trials changes size and all still fit."""
    changed = dict(wanted)
    order = rng.sample(sorted(wanted), len(wanted))
    left = round(share * len(wanted)) // 2
    while left and order:
        first = order.pop()
        second = next((other for other in order if wanted[other] != wanted[first]), None)
        if second is not None:
            order.remove(second)
            changed[first], changed[second] = wanted[second], wanted[first]
            left -= 1
    return changed


def timed(call: Callable[..., T], *arguments: object) -> tuple[float, T]:
    """Return the CPU seconds and the result of a call."""
    started = time.process_time()
    result = call(*arguments)
    return time.process_time() - started, result


def measure(options: argparse.Namespace) -> list[Row]:
    trials, rounds = (100, 2) if options.quick else (TRIALS, 30)
    machines = {f"machine {number}": SLOTS for number in range(2 * trials // SLOTS)}
    taken: dict[str, list[tuple[float, int]]] = {}

    def note(what: str, seconds: float, placed: PlacementResult, wanted: dict[int, int]) -> None:
        if placed.unplaced:
            raise SystemExit(f"{what}: {len(placed.unplaced)} trials do not fit, though there is room")
        taken.setdefault(what, []).append((seconds, sum(wanted[trial] for trial in placed.moved)))

    for seed in range(rounds):
        rng = random.Random(seed)
        wanted = mixed(trials, rng)
        seconds, placed = timed(place, wanted, machines)
        note("from nothing", seconds, placed, wanted)
        before = placed.placement
        changed = swapped(wanted, 1 / 3, rng)
        note("a third have another size", *timed(place, changed, machines, before), changed)
        others = {trial: wanted[trial] for trial in rng.sample(sorted(wanted), trials * 4 // 5)}
        keep = math.ceil(sum(others.values()) / SLOTS)
        seconds, (placed, _) = timed(place_on_fewer, others, machines, before, keep)
        note("a fifth have ended, on the fewest machines", seconds, placed, others)
    say(f"{rounds} rounds: done")
    rows = []
    for what, each in taken.items():
        all_seconds, moved = zip(*each, strict=True)
        median, longest = statistics.median(all_seconds), max(all_seconds)
        figure = f"{1e3 * median:.1f} ms, {1e3 * longest:.1f} at most; {statistics.median(moved):g} workers moved"
        met = None if options.quick else median < SECONDS_BAR
        data = {"seconds": all_seconds, "moved_workers": moved}
        about = f"{trials} trials on {len(machines)} machines: {what}"
        rows.append(Row(about, figure, f"under {1e3 * SECONDS_BAR:g} ms", met, data))
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure))
