"""How soon is a study done where one comes after the other? (PipeTune, Figs. 13 and 14)

Studies of real workloads come at random, with exponential times between them, to a machine that runs one at a
time, in the order in which they came. Four in five are of kinds that earlier studies have taught, each of which
was run once before; the others are seen for the first time, each in a store of its own. Each study is really run,
by both sides in turns; the waiting is then counted up from what they took, over many draws of the times between
arrivals. These are such that the machine would be busy for 85 % of the time with Tune V1.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from statistics import fmean, quantiles

from benchmarks.common import Row, main, say, scratch
from benchmarks.system.studies import TINY, USUAL, Outcome, run

SEEN = ("lenet_mnist", "numpy_network", "text_rnn", "lenet_fashion")
UNSEEN = "boosted_trees"
STUDIES, DRAWS = 20, 1000
BUSY, BAR = 0.85, 0.30


def further(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--studies", type=int, default=STUDIES, help="how many come; one in five is unseen")


def measure(options: argparse.Namespace) -> list[Row]:
    studies, size = (2, TINY) if options.quick else (options.studies, USUAL)
    rng = random.Random(0)
    kinds = [SEEN[number % len(SEEN)] for number in range(studies)]  # by turns, as in the paper
    for place in rng.sample(range(studies), studies // 5):
        kinds[place] = UNSEEN
    took: dict[str, list[Outcome]] = {"V1": [], "thriftune": []}
    with scratch() as folder:
        for name in dict.fromkeys(SEEN):
            before = run(name, "thriftune", 100, folder / "thriftune.db", size)
            say(f"before the stream: {name}: {before.seconds:.1f} s")
        for number, name in enumerate(kinds):
            sides = ("V1", "thriftune") if number % 2 else ("thriftune", "V1")
            known_to = f"-{number}" if name == UNSEEN else ""
            for side in sides:
                took[side].append(run(name, side, number, folder / f"{side}{known_to}.db", size))
                say(f"{number + 1} of {studies}: {name} {side}: {took[side][-1].seconds:.1f} s")
    between = fmean(outcome.seconds for outcome in took["V1"]) / BUSY
    theirs, mine = ([o.seconds for o in took[side]] for side in ("V1", "thriftune"))
    ratios, waits = [], []
    for draw in range(DRAWS):
        times = random.Random(draw)
        arrivals = [times.expovariate(1 / between) for _ in kinds]
        v1, ours = responses(arrivals, theirs), responses(arrivals, mine)
        ratios.append(fmean(ours) / fmean(v1))
        waits.append((fmean(v1), fmean(ours)))
    less = 1 - fmean(ratios)
    tenths = quantiles(ratios, n=10)
    figure = (
        f"{less:.1%} shorter ({1 - tenths[-1]:.0%} to {1 - tenths[0]:.0%} in four of five draws): "
        f"{fmean(w for _, w in waits):.0f} instead of {fmean(w for w, _ in waits):.0f} s"
    )
    served = f"{fmean(mine):.1f} instead of {fmean(theirs):.1f} s on the machine"
    met = None if options.quick else less >= BAR
    return [
        Row(
            f"mean response time of {studies} studies, {studies // 5} of them unseen; {served}",
            figure,
            f"{BAR:.0%}",
            met,
        )
    ]


def responses(between: Sequence[float], took: Sequence[float]) -> list[float]:
    """From each study's arrival to its end, where one waits for the other."""
    found = []
    now = free = 0.0
    for gap, seconds in zip(between, took, strict=True):
        now += gap
        free = max(now, free) + seconds
        found.append(free - now)
    return found


if __name__ == "__main__":
    raise SystemExit(main(measure, further=further))
