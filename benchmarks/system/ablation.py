"""Measure what each mechanism of system tuning brings: the full tuner against itself with one mechanism off.

Every side runs the same searches of real workloads. The sides take turns within each workload, in an order that
rotates from round to round, so that a slower phase of the machine disturbs all of them alike. The full tuner runs
twice in each round: the difference between the two is the noise. "V1" is the same search with `system="off"`.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from math import exp, log
from pathlib import Path
from statistics import fmean, median
from typing import Any
from unittest.mock import patch

import thriftune as tt
from benchmarks.common import Row, in_new_process, main, say, scratch
from benchmarks.system.studies import TINY, Outcome, Size, cpu_seconds, study
from thriftune.system import knowledge, next_setting, tuner
from thriftune.system.energy import busy_seconds
from thriftune.system.next_setting import NextSetting

WORKLOADS = ("lenet_fashion", "numpy_network", "text_rnn")
SIZE = Size(9, 2, 18, 3)

MOST_OTHERS_CORES, MOST_REPEATS = 0.15, 2
"""A study is repeated, at most twice, while other programs use more than this part of a core."""

FULL, CONTROL, V1 = "full", "full again", "V1"


def _without_lending() -> Any:
    return patch.object(tuner.CoreShares, "share", lambda shares, *_: shares.usual_threads)


def _without_probing() -> Any:
    choose = next_setting.choose_setting
    return patch.object(tuner, "choose_setting", lambda *a, **_: choose(*a, windows_left=0))


def _without_measuring() -> Any:
    """Apply kept memory and all cores of the trial at once, whatever was measured."""

    def choose(_: Any, possible: Any, *__: Any, **___: Any) -> NextSetting:
        values = {name: values[0] for name, values in possible.values.items() if values}
        return NextSetting({**values, **possible.fixed}, "always", False)

    return patch.multiple(tuner, choose_setting=choose, first_setting=choose)


def _without_other_trials() -> Any:
    return patch.object(knowledge, "pool", lambda _effects, prior: prior)


CHANGES: dict[str, Callable[[], Any]] = {
    "idle cores lent": _without_lending,
    "probing": _without_probing,
    "measuring (memory and all cores always)": _without_measuring,
    "other trials' effects": _without_other_trials,
}
SYSTEMS = {"knob memory": tt.System(knobs=["threads"]), "knob threads": tt.System(knobs=["memory"])}


def further(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=2, help="how often everything is measured")
    parser.add_argument("--workload", action="append", help="only this one; may be given again")
    parser.add_argument("--without", action="append", help="only this mechanism off; may be given again")


def measure(options: argparse.Namespace) -> list[Row]:
    size = TINY if options.quick else SIZE
    names = options.workload or WORKLOADS
    sides = [FULL, V1, CONTROL, *(options.without or (*SYSTEMS, *CHANGES))]
    outcomes: dict[tuple[str, str], list[Outcome]] = {}
    for number in range(1 if options.quick else options.rounds):
        with scratch() as folder:
            for name in names:
                shift = number * len(sides) // max(2, options.rounds)
                for side in (*sides[shift:], *sides[:shift]):
                    outcome = _outcome(name, side, number, folder, size, alone=not options.quick)
                    outcomes.setdefault((name, side), []).append(outcome)
    return [*(_row(side, names, outcomes) for side in sides[1:]), *_decisions(names, outcomes, sides)]


def _outcome(name: str, side: str, seed: int, folder: Path, size: Size, *, alone: bool) -> Outcome:
    """Run one study. With `alone`, wait for other programs to rest, and repeat it if they did not."""
    for repeat in range(MOST_REPEATS + 1):
        if alone:
            _wait_for_quiet()
        store = folder / f"store{repeat}"
        outcome, others_cores = in_new_process(run_side, name, side, seed, str(store / "studies.db"), size)
        shutil.rmtree(store)
        if not alone or others_cores < MOST_OTHERS_CORES:
            break
        say(f"{name}, {side}: other programs used {others_cores:.2f} cores; it is run again")
    probes = f"{outcome.probes} of {outcome.windows} windows probed"
    say(f"{name}, {side}: {outcome.seconds:.2f} s, {probes}, {dict(outcome.decisions)}")
    return outcome


def _wait_for_quiet() -> None:
    """Wait, at most a minute, until other programs leave the machine alone."""
    for _ in range(60):
        before = busy_seconds()
        time.sleep(1.0)
        if busy_seconds() - before < MOST_OTHERS_CORES:
            return


def run_side(name: str, side: str, seed: int, store: str, size: Size) -> tuple[Outcome, float]:
    """Run one study in this process. Return its outcome, and how many cores other programs used meanwhile."""
    Path(store).parent.mkdir()
    began, busy, own = time.perf_counter(), busy_seconds(), cpu_seconds()
    if side == V1:
        outcome = study(name, "V1", seed, store, size)
    elif side in CHANGES:
        with CHANGES[side]():
            outcome = study(name, "thriftune", seed, store, size)
    else:
        outcome = study(name, "thriftune", seed, store, size, SYSTEMS.get(side, "auto"))
    others = (busy_seconds() - busy) - (cpu_seconds() - own)
    return outcome, others / (time.perf_counter() - began)


def _row(side: str, names: Sequence[str], outcomes: dict[tuple[str, str], list[Outcome]]) -> Row:
    figures, everything = [], []
    for name in names:
        pairs = zip(outcomes[name, side], outcomes[name, FULL], strict=True)
        ratios = [other.seconds / full.seconds for other, full in pairs]
        everything += ratios
        figures.append(f"{name} {median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    mean = exp(fmean(map(log, everything)))
    what = f"{side}: time over that of {FULL}" if side in (V1, CONTROL) else f"without {side}: time over {FULL}'s"
    figure = f"mean {mean:.3f} ({min(everything):.3f} to {max(everything):.3f}); {'; '.join(figures)}"
    return Row(what, figure, data={"ratios": everything})


def _decisions(
    names: Sequence[str], outcomes: dict[tuple[str, str], list[Outcome]], sides: Sequence[str]
) -> list[Row]:
    """Return for each side how many decisions of each kind it took, over all workloads and rounds."""
    rows = []
    for side in sides:
        counts: Counter[str] = Counter()
        for name in names:
            for outcome in outcomes[name, side]:
                counts += outcome.decisions
        kinds = ", ".join(f"{by} {count}" for by, count in counts.most_common()) or "none"
        rows.append(Row(f"decisions, {side}", kinds))
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure, further=further))
