"""Which way to tell that work is alike predicts best? Why the default is the nearest piece, and not k-means.

Random configurations of each workload are trained, each alone in a process of its own, and look at every
combination of knobs. Then each is asked for as if it were new: what would have been taken, by what the
others have shown? Once with the others of its own workload among them, and once without, where it is best not to
know.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence

import numpy as np

import thriftune as tt
from benchmarks.common import Row, fresh, main, say, scratch
from benchmarks.system.workloads import WORKLOADS
from thriftune.common.threads import THREAD_VARIABLES
from thriftune.system.knowledge import Learned
from thriftune.system.known_work import Work
from thriftune.system.similarity import SIMILARITIES, Agreement, Nearest, agreement

CONFIGURATIONS, EPOCHS = 5, 10


def further(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workload", action="append", help="only this one; may be given again")


def measure(options: argparse.Namespace) -> list[Row]:
    names = options.workload or list(WORKLOADS)
    works: dict[str, list[Work]] = {}
    for name in names:
        for seed in range(2 if options.quick else CONFIGURATIONS):
            with scratch() as folder:
                found = fresh(_trained, name, seed, str(folder / "s.db"), 2 if options.quick else EPOCHS)
            works.setdefault(name, []).extend(found)
            say(f"{name}, configuration {seed + 1}: {[dict(work.effects) for work in found]}")
    rows = []
    for kind in ("nearest", "kmeans"):
        all_works = [work for each in works.values() for work in each]
        known = agreement(SIMILARITIES.make(kind, {}), all_works)
        rows.append(Row(f"{kind}: {known.pieces} pieces of work, others of the workload known", _figure(known)))
        unseen = _unseen(kind, works)
        rows.append(Row(f"{kind}: the workload seen for the first time", unseen))
    return rows


def _figure(found: Agreement) -> str:
    if math.isnan(found.right):
        return "says nothing"
    regret = f"a step takes {found.regret:.1%} longer than at best"
    return f"right for {found.right:.0%} of those it speaks of; {regret}; silent for {found.abstained:.0%}"


def _unseen(kind: str, works: dict[str, list[Work]]) -> str:
    """Of how many it says that it does not know."""
    asked = silent = 0
    for name, own in works.items():
        others = [work for other, each in works.items() if other != name for work in each]
        similarity = SIMILARITIES.make(kind, {})
        for work in own:
            match = similarity.match(work.profile, others)
            asked += 1
            silent += match is None or not match.confident
    return f"silent for {silent} of {asked}"


def _trained(name: str, seed: int, store: str, epochs: int) -> Sequence[Work]:
    for variable in THREAD_VARIABLES:
        os.environ.pop(variable, None)
    load = WORKLOADS[name]
    config = tt.Space(dict(load.space)).sample(np.random.default_rng(seed))
    result = tt.tune(
        load.train,
        {parameter: tt.Choice([value]) for parameter, value in config.items()},
        maximize=load.metric,
        searcher="grid",
        trials=1,
        max_steps=epochs,
        stopping="none",
        system=tt.System(probing="grid"),
        store=store,
        progress=False,
    )
    learned = Learned(lambda _: (), Nearest(), lambda seen: seen.seconds / seen.steps)
    works = map(learned.work, result.history.trials)
    return [work for work in works if work is not None]


if __name__ == "__main__":
    raise SystemExit(main(measure, further=further))
