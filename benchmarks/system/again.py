"""What does a study cost that is like an earlier one? Second and later studies of each workload, in one store.

Other configurations each time, by another seed; the later studies are smaller than the first. Nothing should be
looked at any more: what is best is known after a trial's first window, or before.
"""

from __future__ import annotations

import argparse

from benchmarks.common import Row, main, say, scratch
from benchmarks.system.studies import SMALL, TINY, USUAL, run
from benchmarks.system.workloads import WORKLOADS


def further(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=2, help="how many studies follow the first")
    parser.add_argument("--workload", action="append", help="only this one; may be given again")


def measure(options: argparse.Namespace) -> list[Row]:
    rows = []
    rounds, sizes = (1, (TINY, TINY)) if options.quick else (options.rounds, (USUAL, SMALL))
    for name in options.workload or WORKLOADS:
        with scratch() as folder:
            found = []
            for seed in range(rounds + 1):
                found.append(run(name, "thriftune", seed, folder / "s.db", sizes[seed > 0]))
                say(f"{name}: {found[-1].looks} of {found[-1].windows} windows looked, {found[-1].seconds:.1f} s")
        first, *later = found
        looks = sum(outcome.looks for outcome in later)
        windows, turned = (sum(getattr(each, name) for each in later) for name in ("windows", "turned"))
        late = sum(outcome.late for outcome in later)
        figure = (
            f"{looks} of {windows} windows looked ({first.looks} of {first.windows} in the first study); "
            f"{turned - late} of {turned} trials turned before or after their first window, or as cores came free"
        )
        met = None if options.quick else looks == 0 and late == 0
        rows.append(Row(f"{rounds} later studies like an earlier one, {name}", figure, "0; all", met))
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure, further=further))
