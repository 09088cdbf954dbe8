"""Measure tuning time and the winner's training time with system tuning (PipeTune, Fig. 11).

Each side runs the same search of real workloads on this machine: successive halving over the same configurations.
(The paper's HyperBand runs several of these at a time.) The sides take turns within each workload, so that a
slower phase of the machine disturbs all of them alike.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import fmean, median

from benchmarks.common import Row, main, say, scratch
from benchmarks.system.studies import TINY, USUAL, Outcome, run, run_alone
from benchmarks.system.workloads import WORKLOADS

ORDER = ("lenet_mnist", "lenet_fashion", "numpy_network", "boosted_trees", "text_rnn")
TUNING_BAR, WINNER_BAR, SLOWER_BAR = 0.226, 1.7, 0.02


def further(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is measured")
    parser.add_argument("--workload", action="append", help="only this one; may be given again")
    parser.add_argument(
        "--plain", action="store_true", help="also with the threads that libraries take by themselves"
    )


def measure(options: argparse.Namespace) -> list[Row]:
    names = [name for name in ORDER if name in (options.workload or ORDER)]
    sides = ("V1", "thriftune", "V2", *(["plain"] if options.plain else []))
    rounds = 1 if options.quick else options.rounds
    tuned: dict[tuple[str, str], list[Outcome]] = {}
    trained: dict[tuple[str, str], list[Outcome]] = {}
    for number in range(rounds):
        with scratch() as folder:
            for name in names:
                turn = number % len(sides)
                for side in (*sides[turn:], *sides[:turn]):
                    found = run(name, side, number, folder / f"{side}.db", TINY if options.quick else USUAL)
                    tuned.setdefault((name, side), []).append(found)
                    say(f"round {number + 1}: {name} {side}: {found.seconds:.1f} s, {found.accuracy:.3f}")
                for side in ("thriftune", "V1", "V2"):
                    winner = tuned[name, side][-1].config
                    again = run_alone(name, side, winner, folder / f"{side}.db", 2 if options.quick else None)
                    trained.setdefault((name, side), []).append(again)
                    say(f"round {number + 1}: {name} {side}'s winner: {again.training_seconds:.1f} s")
    judged = not options.quick and set(names) == set(ORDER)
    return [*_tuning(names, sides, tuned, judged), *_training(names, trained, judged), *_rest(names, tuned)]


def _tuning(
    names: Sequence[str], sides: Sequence[str], tuned: dict[tuple[str, str], list[Outcome]], judged: bool
) -> list[Row]:
    rows = []
    less: dict[str, float] = {}
    for name in names:
        mine = [outcome.seconds for outcome in tuned[name, "thriftune"]]
        figures = []
        for side in sides:
            if side == "thriftune":
                continue
            theirs = [outcome.seconds for outcome in tuned[name, side]]
            ratios = [m / t for m, t in zip(mine, theirs, strict=True)]
            figures.append(f"{1 - median(ratios):+.1%} of {side} ({min(ratios):.2f} to {max(ratios):.2f})")
            if side == "V1":
                less[name] = 1 - median(ratios)
        met = less[name] >= -SLOWER_BAR if judged else None
        what = f"tuning time less, {name}: median {median(mine):.1f} s"
        rows.append(Row(what, "; ".join(figures), f"not over {SLOWER_BAR:.0%} slower than V1", met))
    best = max(less, key=lambda name: less[name])
    met = less[best] >= TUNING_BAR if judged else None
    figure = f"{less[best]:.1%} ({best})"
    return [Row("tuning time less than V1, best workload", figure, f"{TUNING_BAR:.1%}", met), *rows]


def _training(names: Sequence[str], trained: dict[tuple[str, str], list[Outcome]], judged: bool) -> list[Row]:
    rows, as_good = [], []
    faster: dict[str, float] = {}
    for name in names:
        as_good.append(_to_the_same(name, trained[name, "thriftune"], trained[name, "V2"]))
        mine = [outcome.training_seconds for outcome in trained[name, "thriftune"]]
        figures = []
        for side in ("V1", "V2"):
            theirs = [outcome.training_seconds for outcome in trained[name, side]]
            ratios = [t / m for m, t in zip(mine, theirs, strict=True)]
            figures.append(
                f"{median(ratios):.2f} times as fast as {side}'s ({min(ratios):.2f} to {max(ratios):.2f})"
            )
            if side == "V2":
                faster[name] = median(ratios)
        rows.append(Row(f"training of the winner, {name}: median {median(mine):.1f} s", "; ".join(figures)))
    best = max(faster, key=lambda name: faster[name])
    met = faster[best] >= WINNER_BAR if judged else None
    figure = f"{faster[best]:.2f} times ({best})"
    best_row = Row("training of the winner against V2's, best workload", figure, f"{WINNER_BAR} times", met)
    return [best_row, *rows, *as_good]


def _to_the_same(name: str, mine: Sequence[Outcome], theirs: Sequence[Outcome]) -> Row:
    """Return how much sooner our winner reaches the best accuracy of V2's winner.

    V2 prefers smaller models, which are faster and less accurate.
    """
    ratios, missed = [], 0
    for own, other in zip(mine, theirs, strict=True):
        best = max(accuracy for _, accuracy in other.curve)
        own_seconds, other_seconds = own.seconds_to(best), other.seconds_to(best)
        if own_seconds is None or other_seconds is None:
            missed += 1
        else:
            ratios.append(other_seconds / own_seconds)
    never = f"; never in {missed} of {len(mine)}" if missed else ""
    figure = f"{median(ratios):.2f} times as fast ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else ""
    return Row(f"training of the winner, {name}, until as accurate as V2's", f"{figure}{never}".lstrip("; "))


def _rest(names: Sequence[str], tuned: dict[tuple[str, str], list[Outcome]]) -> list[Row]:
    rows = []
    for name in names:
        metric = WORKLOADS[name].metric
        by_side = {side: outcomes for (which, side), outcomes in tuned.items() if which == name}
        accuracy = ", ".join(f"{side} {fmean(o.accuracy for o in each):.3f}" for side, each in by_side.items())
        rows.append(Row(f"{metric} of the best trial, {name}", accuracy))
        mine = tuned[name, "thriftune"]
        joules = ", ".join(f"{side} {fmean(o.joules for o in each):.0f}" for side, each in by_side.items())
        rows.append(Row(f"energy of tuning, {name}: an estimate by CPU time, in joules", joules))
        rows.append(Row(f"probed windows, {name}", ", ".join(f"{o.probes} of {o.windows}" for o in mine)))
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure, further=further))
