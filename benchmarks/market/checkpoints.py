"""The gain of checkpoint schedules that know the hazard, over Young-Daly's.

Lifetimes are bathtubs with the parameters that SciSpot reports. Young-Daly's interval assumes a constant hazard
with the same mean lifetime. The same evaluator computes both expected times; it follows every loss and restart.
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
    rows, all_results = [], []
    for machine in machines:
        lifetimes = f"A {machine.part:g}, tau1 {machine.early_hours:g} h, mean {mean_hours(machine):.1f} h"
        for minutes in CHECKPOINT_MINUTES:
            for hours in work:
                results, smallest_gain, longest = [], math.inf, 0.0
                for age in AGES:
                    job = Job(hours, minutes / 60.0, RESTART_HOURS, age)
                    started = time.perf_counter()
                    best = best_schedule(job, machine).expected_hours
                    longest = max(longest, time.perf_counter() - started)
                    young_daly = young_daly_schedule(job, machine).expected_hours
                    # The gain as a share of Young-Daly's time, and of its overhead beyond the work.
                    overhead_gain = (young_daly - best) / (young_daly - hours)
                    results.append((young_daly, 1.0 - best / young_daly, overhead_gain))
                    smallest_gain = min(smallest_gain, young_daly - best)
                all_results += results
                met = None if options.quick else smallest_gain >= 0.0
                gains = ", ".join(f"{gain:.1%} ({overhead_gain:.0%})" for _, gain, overhead_gain in results)
                what = f"{lifetimes}: {minutes:g} min, {hours:g} h job"
                data = {"ages": AGES, "young_daly_hours": [result[0] for result in results], "seconds": longest}
                rows.append(
                    Row(what, gains, "none below 0", met, data | {"gain": [result[1] for result in results]})
                )
            say(f"A {machine.part:g}, {minutes:g} min: done")
    gain = np.array([result[1:] for result in all_results])
    about = f"gain at ages {', '.join(f'{age:g}' for age in AGES)} h, and as a share of Young-Daly's overhead"
    mean_gain = f"mean {gain[:, 0].mean():.1%} ({gain[:, 1].mean():.0%}), least {gain[:, 0].min():.2%}"
    return [Row(about, f"{mean_gain}, most {gain[:, 0].max():.1%}"), *rows]


if __name__ == "__main__":
    raise SystemExit(main(measure))
