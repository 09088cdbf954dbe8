"""Keep the machine for the next job, or take a new one? Policies on recorded lifetimes (SciSpot Fig. 7 and 8).

Of each type, the default form is fitted to half of the machines, with the other types of the family as relatives;
what would have come of its decisions is told by the Kaplan-Meier curve of the other half, and the other way round.
Jobs of 0.5 to 12 hours, machines of all ages from 0 to 24 hours that are still alive. *memoryless* keeps the
machine whatever its age; *knowing* decides by the very curve that judges; *least* is the fewest failures that any
decision could have, whatever time it takes.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.common import Row, main, say
from benchmarks.market.lifetimes import FEWEST, recorded
from thriftune.market.lifetime import KaplanMeier, Lifetime, fit_lifetime
from thriftune.market.reuse import reuse
from thriftune.market.running_time import expected_hours, failure_probability

JOBS = np.arange(0.5, 12.01, 0.5)
AGES = np.arange(0.0, 24.0, 0.25)
FAILURE_BAR, TIME_BAR = 0.5, 1.03


def measure(options: argparse.Namespace) -> list[Row]:
    lives = recorded(options.quick)
    rows, ratios, times = [], [], []
    for type in lives.types:
        own = lives.type == type
        if lives.ended[own].sum() < FEWEST and not options.quick:
            continue
        say(type)
        order = np.random.default_rng(0).permutation(np.flatnonzero(own))
        halves = order[: len(order) // 2], order[len(order) // 2 :]
        told = []
        for fitted, judged in (halves, halves[::-1]):
            relatives = [(lives.hours[~own], lives.ended[~own])]
            model = fit_lifetime(lives.hours[fitted], lives.ended[fitted], relatives=relatives)
            told.append(_policies(model, KaplanMeier.fit(lives.hours[judged], lives.ended[judged])))
        failure, hours = np.mean(told, axis=0)
        ratios.append(failure[1] / failure[0])
        times.append(hours[1] / hours[2])
        rows.append(
            Row(
                f"{type}: jobs that fail, memoryless / ours / knowing / least",
                " / ".join(f"{each:.3f}" for each in failure)
                + f"; hours over length {hours[1]:.3f} / {hours[2]:.3f}",
                data={"failure": failure.tolist(), "hours": hours.tolist()},
            )
        )
    judge = not options.quick
    ratio, time = float(np.mean(ratios)), float(np.mean(times))
    bar = f"at most {FAILURE_BAR:g} of memoryless"
    rows.append(Row("failures, over types", f"{ratio:.3f}", bar, ratio <= FAILURE_BAR if judge else None))
    bar = f"at most {TIME_BAR:g} of the knowing policy's"
    rows.append(Row("expected hours, over types", f"{time:.4f}", bar, time <= TIME_BAR if judge else None))
    return rows


def _policies(model: Lifetime, truth: KaplanMeier) -> tuple[list[float], list[float]]:
    """Of memoryless, ours, the knowing policy and the one with the least failures: the mean probability that a job
    fails, and expected hours over the length of the job, over jobs and ages to which machines live."""
    ages = AGES[truth.survival(AGES) > 0.0][:, None]
    fails, fresh_fails = failure_probability(truth, JOBS, ages), failure_probability(truth, JOBS)
    kept = [
        np.ones_like(fails, dtype=bool),
        reuse(model, JOBS, ages),
        reuse(truth, JOBS, ages),
        fails <= fresh_fails,
    ]
    takes, fresh_takes = expected_hours(truth, JOBS, ages), expected_hours(truth, JOBS)
    failure = [float(np.where(keep, fails, fresh_fails).mean()) for keep in kept]
    hours = [float((np.where(keep, takes, fresh_takes) / JOBS).mean()) for keep in kept]
    return failure, hours


if __name__ == "__main__":
    raise SystemExit(main(measure))
