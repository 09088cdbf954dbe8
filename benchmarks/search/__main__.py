"""Measures simple regret after 25, 50 and 100 evaluations, one and four at a time, compared with peers.

It does the runs that are missing in out/search/results, which takes the peers hours, and reports all runs. It can
be interrupted and started again at any time. The average rank is over problems and seeds; 1 is best, and ties
share the mean rank. Normalised regret is 0 at the optimum and 1 for the median random configuration. Its standard
error is by bootstrap over seeds.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.common import Row, main, say
from benchmarks.run_files import cases_of, parse_numbers, read, remove
from benchmarks.search import make_tables, methods, problems, results, runs
from benchmarks.search.report import Comparison

BUDGETS = (25, 50, 100)
SEEDS = parse_numbers("0-9")
SHARE_BAR = 0.8  # of the best peer's mean normalised regret at 50


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--split", choices=("test", "dev"), default="test")
    parser.add_argument(
        "--methods", default="", help="names separated by commas, or by spaces if one is a variant with options"
    )
    parser.add_argument("--problems", default="", help="names separated by commas, instead of a whole split")
    parser.add_argument("--seeds", type=parse_numbers, default=SEEDS, help="such as 0-9 (the default) or 0,3")
    parser.add_argument("--parallel", type=parse_numbers, default=[1, 4], help="1,4 is the default")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time; each has one thread")
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    parser.add_argument("--redo", action="store_true", help="do the chosen runs of thriftune's own methods again")
    parser.add_argument("--by-problem", action="store_true", help="also the mean regret at 50 on each problem")


def measure(options: argparse.Namespace) -> list[Row]:
    if not options.quick:
        return _measure(options, problems.OUT / "results")
    options.problems, options.seeds, options.parallel = "branin,network", [0, 1], [1, 4]
    options.methods = options.methods or "thriftune thriftune-random thriftune-sobol"
    with tempfile.TemporaryDirectory() as folder:
        return _measure(options, Path(folder))


def _measure(options: argparse.Namespace, folder: Path) -> list[Row]:
    budgets = (4, 8) if options.quick else BUDGETS
    named = options.problems.split(",") if options.problems else problems.names(options.split)
    chosen = _methods(options)
    if not options.report_only:
        if problems.TABLES.intersection(named):
            make_tables.make()
        for name in chosen:
            if options.redo and name.startswith(methods.OURS):
                cases = frozenset(cases_of(named, options.seeds, options.parallel))
                remove(results.file_of(folder, name), results.KEYS, cases)
        runs.complete(chosen, named, options.seeds, options.parallel, budgets[-1], folder, options.jobs)
    scales = {name: (problems.get(name).optimum, problems.get(name).median) for name in named}
    judged = not options.quick and options.split == "test" and not options.problems and len(options.seeds) >= 10
    rows = []
    for parallel in options.parallel:
        runs_of = {name: read(results.file_of(folder, name), results.KEYS) for name in chosen}
        there = {name: done for name, done in runs_of.items() if any(key[2] == parallel for key in done)}
        for name in chosen:
            if name not in there:
                rows.append(Row(f"{parallel} at a time: {name}", "no runs yet"))
            elif len({run["version"] for run in there[name].values()}) > 1:
                say(f"{name}: its runs are of several versions; --redo does them again")
        if there:
            compared = Comparison(there, scales, options.seeds, parallel, budgets)
            complete = judged and compared.cases == len(named) * len(options.seeds) and set(there) == set(chosen)
            rows += _rows(compared, parallel, budgets, complete, options.by_problem)
    return rows


def _methods(options: argparse.Namespace) -> list[str]:
    if options.methods:
        # The options of a variant contain commas, so variants are separated by spaces.
        text: str = options.methods
        names = text.split() if " " in text or ":" in text else text.split(",")
    else:
        names = list(methods.ENTRIES)
    return [name for name in names if not (options.without_peers and methods.find(name).peer)]


def _rows(compared: Comparison, parallel: int, budgets: Sequence[int], judge: bool, by_problem: bool) -> list[Row]:
    where = f"{parallel} at a time"
    if not compared.cases:
        return [Row(where, "no problem and seed that all methods have finished; choose fewer with --methods")]
    ranked = {n: compared.average_rank(n) for n in budgets}
    regret = {n: compared.mean_regret(n) for n in budgets}
    error = {n: compared.standard_error(n) for n in budgets}
    each = {n: compared.by_problem(n).tolist() for n in budgets}
    at = " / ".join(map(str, budgets))
    rows = [
        Row(
            f"{where}: problems and seeds that all methods have finished, of {_possible(compared)}",
            str(compared.cases),
        )
    ]
    for m in np.argsort(regret[budgets[1]]):
        name = compared.methods[m]
        figure = (
            f"rank {' / '.join(f'{ranked[n][m]:.2f}' for n in budgets)}; "
            f"regret {' / '.join(f'{regret[n][m]:.4f} ± {error[n][m]:.4f}' for n in budgets)}; "
            f"{compared.seconds[name]:.3f} s for a suggestion"
        )
        data = {
            "method": name,
            "parallel": parallel,
            "rank": {n: float(ranked[n][m]) for n in budgets},
            "regret": {n: float(regret[n][m]) for n in budgets},
            "standard_error": {n: float(error[n][m]) for n in budgets},
            "seconds_a_suggestion": compared.seconds[name],
            "by_problem": {n: dict(zip(compared.problems, each[n][m], strict=True)) for n in budgets},
        }
        rows.append(Row(f"{where}: {name} at {at}", figure, data=data))
    if by_problem:
        rows += _problem_rows(compared, parallel, budgets[1])
    if methods.OURS in compared.methods and len(compared.methods) > 1:
        rows += _bars(compared, parallel, budgets, judge)
    return rows


def _possible(compared: Comparison) -> int:
    return len(compared.problems) * len(compared.seeds)


def _problem_rows(compared: Comparison, parallel: int, n: int) -> list[Row]:
    each = compared.by_problem(n)
    rows = []
    for p, problem in enumerate(compared.problems):
        order = np.argsort(each[:, p])
        figure = ", ".join(f"{compared.methods[m]} {each[m, p]:.4f}" for m in order)
        rows.append(Row(f"{parallel} at a time: {problem}, regret at {n}", figure))
    return rows


def _bars(compared: Comparison, parallel: int, budgets: Sequence[int], judge: bool) -> list[Row]:
    ours = compared.methods.index(methods.OURS)
    others = [
        m for m, name in enumerate(compared.methods) if not name.startswith(methods.OURS + ":") and m != ours
    ]
    if not others:
        return []
    rows = []
    for n in budgets:
        rank = compared.average_rank(n)
        best = min(others, key=lambda m: float(rank[m]))
        rows.append(
            Row(
                f"average rank at {n}, {parallel} at a time",
                f"{rank[ours]:.2f}; the next best is {compared.methods[best]} with {rank[best]:.2f}",
                bar="best of all",
                met=bool(rank[ours] < rank[best]) if judge else None,
            )
        )
    middle = budgets[1]
    regret = compared.mean_regret(middle)
    best = min(others, key=lambda m: float(regret[m]))
    share = float(regret[ours] / regret[best])
    rows.append(
        Row(
            f"mean normalised regret at {middle}, {parallel} at a time",
            f"{share:.2f} of {compared.methods[best]}'s ({regret[ours]:.4f} against {regret[best]:.4f})",
            bar=f"at most {SHARE_BAR:g} of the best peer's",
            met=share <= SHARE_BAR if judge else None,
        )
    )
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure, further=add_options))
