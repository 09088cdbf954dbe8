"""What does a checkpoint schedule that knows the hazard gain over Young-Daly's?

Bathtub lifetimes with the parameters SciSpot reports. Young-Daly saves at the interval of machines without memory
that live as long on average; both are judged by the same evaluator, which follows every loss and restart.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np

from benchmarks.common import Row, main, say
from benchmarks.reproduce.scispot_studies import FITS, RESTART_HOURS
from thriftune.market.checkpoint_schedule import Job, best_schedule, young_daly_schedule
from thriftune.market.running_time import mean_hours

AGES = (0.0, 6.0, 12.0, 20.0)
WORK = (1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 20.0)
CHECKPOINT_MINUTES = (1.0, 5.0)


def measure(options: argparse.Namespace) -> list[Row]:
    machines, work = (FITS[:1], (1.0, 4.0)) if options.quick else (FITS, WORK)
    rows, every = [], []
    for machine in machines:
        lifetimes = f"A {machine.part:g}, tau1 {machine.early_hours:g} h, mean {mean_hours(machine):.1f} h"
        for minutes in CHECKPOINT_MINUTES:
            for hours in work:
                told, worst, longest = [], math.inf, 0.0
                for age in AGES:
                    job = Job(hours, minutes / 60.0, RESTART_HOURS, age)
                    started = time.perf_counter()
                    best = best_schedule(job, machine).expected_hours
                    longest = max(longest, time.perf_counter() - started)
                    theirs = young_daly_schedule(job, machine).expected_hours
                    # Of what Young-Daly takes, and of what it takes beyond the work itself.
                    told.append((theirs, 1.0 - best / theirs, (theirs - best) / (theirs - hours)))
                    worst = min(worst, theirs - best)
                every += told
                met = None if options.quick else worst >= 0.0
                gains = ", ".join(f"{gain:.1%} ({over:.0%})" for _, gain, over in told)
                what = f"{lifetimes}: {minutes:g} min, {hours:g} h job"
                data = {"ages": AGES, "young_daly_hours": [one[0] for one in told], "seconds": longest}
                rows.append(Row(what, gains, "none below 0", met, data | {"gain": [one[1] for one in told]}))
            say(f"A {machine.part:g}, {minutes:g} min: done")
    gain = np.array([one[1:] for one in every])
    about = f"gain at ages {', '.join(f'{age:g}' for age in AGES)} h, and as a share of Young-Daly's overhead"
    mean_gain = f"mean {gain[:, 0].mean():.1%} ({gain[:, 1].mean():.0%}), least {gain[:, 0].min():.2%}"
    return [Row(about, f"{mean_gain}, most {gain[:, 0].max():.1%}"), *rows]


if __name__ == "__main__":
    raise SystemExit(main(measure))
