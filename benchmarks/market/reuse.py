"""Keep the machine for the next job, or take a new one? Policies on recorded lifetimes (SciSpot Fig. 7 and 8).

As `python -m benchmarks.reproduce scispot` judges them, for each type, with bars. Jobs of 0.5 to 12 hours,
machines of all ages from 0 to 24 hours that are still alive. *memoryless* keeps the machine whatever its age;
*knowing* decides by the very curve that judges; *least* is the fewest failures that any decision could have,
whatever time it takes.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.common import Row, main, say
from benchmarks.market.lifetimes import recorded
from benchmarks.reproduce.scispot_studies import FEWEST, by_halves, mean_of

FAILURE_BAR, TIME_BAR = 0.5, 1.03
SHOWN = ("memoryless", "ours", "knowing", "least")


def measure(options: argparse.Namespace) -> list[Row]:
    lives = recorded(options.quick)
    rows, ratios, times = [], [], []
    for type in lives.types:
        if lives.ended[lives.type == type].sum() < FEWEST and not options.quick:
            continue
        say(type)
        halves = by_halves(lives, type)
        failure, hours = ([mean_of(halves, policy, part) for policy in SHOWN] for part in ("failure", "hours"))
        ratios.append(failure[1] / failure[0])
        times.append(hours[1] / hours[2])
        rows.append(
            Row(
                f"{type}: jobs that fail, memoryless / ours / knowing / least",
                " / ".join(f"{each:.3f}" for each in failure)
                + f"; hours over length {hours[1]:.3f} / {hours[2]:.3f}",
                data={"failure": failure, "hours": hours},
            )
        )
    judge = not options.quick
    ratio, time = float(np.mean(ratios)), float(np.mean(times))
    bar = f"at most {FAILURE_BAR:g} of memoryless"
    rows.append(Row("failures, over types", f"{ratio:.3f}", bar, ratio <= FAILURE_BAR if judge else None))
    bar = f"at most {TIME_BAR:g} of the knowing policy's"
    rows.append(Row("expected hours, over types", f"{time:.4f}", bar, time <= TIME_BAR if judge else None))
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure))
