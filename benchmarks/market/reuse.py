"""Reuse policies on recorded lifetimes (SciSpot Fig. 7 and 8).

They are evaluated as in `python -m benchmarks.reproduce scispot`, for each type. Jobs have 0.5 to 12 hours.
Machines have all ages from 0 to 24 hours at which some are alive. *memoryless* always reuses the machine.
*knowing* decides by the curve that evaluates it. *least* has the fewest failures of all possible decisions,
whatever the time.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.common import Row, main, say
from benchmarks.market.lifetimes import recorded
from benchmarks.reproduce.scispot_studies import MIN_PREEMPTIONS, by_halves, mean_of

FAILURE_BAR, TIME_BAR = 0.5, 1.03
SHOWN = ("memoryless", "ours", "knowing", "least")


def measure(options: argparse.Namespace) -> list[Row]:
    lives = recorded(options.quick)
    rows, ratios, times = [], [], []
    for type in lives.types:
        if lives.ended[lives.type == type].sum() < MIN_PREEMPTIONS and not options.quick:
            continue
        say(type)
        halves = by_halves(lives, type)
        failure, hours = ([mean_of(halves, policy, name) for policy in SHOWN] for name in ("failure", "hours"))
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
    check_bars = not options.quick
    ratio, time = float(np.mean(ratios)), float(np.mean(times))
    bar = f"at most {FAILURE_BAR:g} of memoryless"
    rows.append(Row("failures, over types", f"{ratio:.3f}", bar, ratio <= FAILURE_BAR if check_bars else None))
    bar = f"at most {TIME_BAR:g} of the knowing policy's"
    rows.append(Row("expected hours, over types", f"{time:.4f}", bar, time <= TIME_BAR if check_bars else None))
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure))
