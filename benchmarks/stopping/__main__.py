"""Measures regret over virtual time of stopping rules, ours and the peers', on tables of learning curves.

Trials replay recorded curves on a virtual clock, at 1, 4 and 16 workers. The time is enough for 32 whole
trainings, for 4 by each worker, and for 64 if curves cross. It does the runs that are missing in
out/stopping/results and reports all runs. It can be interrupted and started again at any time. Regret is 0 at the
lowest value of a table and 1 at the median of the final values; ± is over seeds.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Row, main, say
from benchmarks.run_files import Runs, cases_of, parse_numbers, read, remove
from benchmarks.stopping import methods, results, runs, tables
from benchmarks.stopping.plot import plot
from benchmarks.stopping.report import Comparison, compare, index_of, reached_at, share_of_time

SHOWN = (0.1, 0.25, 0.5, 1.0)  # shares of the time
PREDICTABLE = ("taskset", "lcbench")  # kinds of tables whose early values predict the final ones
BEST = "bayes+asha:eta=2,how=pause"
RANDOM_BAR, PEER_BAR = 0.25, 0.7
NOISE = 2.0  # standard errors of a paired difference


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tables", default="", help=f"names or kinds ({', '.join(tables.KINDS)}), separated by commas"
    )
    parser.add_argument("--methods", default="", help="names separated by commas, or by spaces if one has options")
    parser.add_argument("--best", default=BEST, help=f"our method that peers are compared with; {BEST} by default")
    parser.add_argument("--seeds", type=parse_numbers, default=parse_numbers("0-9"), help="such as 0-9 or 0,3")
    parser.add_argument("--workers", type=parse_numbers, default=[1, 4, 16], help="1,4,16 is the default")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time; each has one thread")
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    parser.add_argument("--redo", action="store_true", help="do the chosen runs of thriftune's own methods again")


def measure(options: argparse.Namespace) -> list[Row]:
    if not options.quick:
        return _measure(options, results.FOLDER)
    options.tables, options.seeds, options.workers = tables.TOY, [0, 1], [1, 4]
    options.methods = options.methods or "random,random+asha,random+auto"
    with tempfile.TemporaryDirectory() as folder:
        return _measure(options, Path(folder))


def _measure(options: argparse.Namespace, folder: Path) -> list[Row]:
    named = tables.named(options.tables)
    chosen = methods.split_names(options.methods) if options.methods else list(methods.DEFAULT_METHODS)
    chosen = [name for name in chosen if not (options.without_peers and methods.find(name).peer)]
    if not options.report_only:
        for name in named:
            tables.get(name)
        for name in chosen:
            if options.redo and methods.find(name).peer is None:
                wanted = cases_of(named, options.seeds, options.workers)
                remove(results.file_of(folder, name), results.KEYS, frozenset(wanted))
        runs.complete(chosen, named, options.seeds, options.workers, folder, options.jobs)
    whole = not (options.quick or options.tables or options.methods) and len(options.seeds) >= 10
    found = {name: read(results.file_of(folder, name), results.KEYS) for name in chosen}
    for name, done in found.items():
        if len({run["version"] for run in done.values()}) > 1:
            say(f"{name}: its runs are of several versions; --redo does ours again")
    rows: list[Row] = []
    pictured: dict[int, Comparison] = {}
    for workers in options.workers:
        there = {name: done for name, done in found.items() if any(case[2] == workers for case in done)}
        rows += [Row(f"{workers} at a time: {name}", "no runs yet") for name in chosen if name not in there]
        if not there:
            continue
        compared = compare(there, named, options.seeds, workers)
        possible = len(named) * len(options.seeds)
        rows.append(
            Row(
                f"{workers} at a time: tables and seeds that all methods have finished, of {possible}",
                str(compared.cases),
            )
        )
        if compared.cases:
            judge = whole and compared.cases == possible and len(there) == len(chosen)
            rows += _rows(compared, f"{workers} at a time", options.best, judge)
            pictured[workers] = compared.only([name.partition("-")[0] for name in named])
    if pictured and not options.quick:
        plot(pictured)
    return rows + _cost_rows(found)


def _rows(compared: Comparison, where: str, best: str, judge: bool) -> list[Row]:
    kinds = list(dict.fromkeys(name.partition("-")[0] for name in compared.tables))
    groups: list[tuple[str, ...]] = [(kind,) for kind in kinds]
    for several in (PREDICTABLE, tuple(kinds)):
        if len(several) > 1 and set(several) <= set(kinds) and several not in groups:
            groups.append(several)
    rows = []
    for group in groups:
        part = compared.only(group)
        if part.tables:
            about = f"{where}, {' and '.join(group)}"
            rows += _regret_rows(part, about)
            rows += _bar_rows(part, about, best, judge and group == PREDICTABLE)
    for table in compared.only([tables.CROSSING]).tables:
        rows += _crossing_rows(compared, where, table, judge)
    return rows


def _regret_rows(part: Comparison, about: str) -> list[Row]:
    """Return a row for each method, the lowest final regret first."""
    rows = []
    for name in sorted(part.methods, key=lambda name: float(part.mean(name)[-1])):
        mean = part.mean(name)
        shown = {time: (float(mean[index_of(time)]), part.standard_error(name, time)) for time in SHOWN}
        figure = "regret " + " / ".join(f"{regret:.4f} ± {error:.4f}" for regret, error in shown.values())
        data: dict[str, Any] = {"method": name, "group": about, "regret": shown, "tables": part.tables}
        if methods.BASELINE in part.methods:
            data["random_at"] = reached_at(mean, part.mean(methods.BASELINE)[-1])
            figure += f"; {methods.BASELINE}'s final regret at {data['random_at']:.3f}"
        rows.append(Row(f"{about}: {name} at {' / '.join(f'{time:g}' for time in SHOWN)}", figure, data=data))
    return rows


def _bar_rows(part: Comparison, about: str, best: str, judge: bool) -> list[Row]:
    """Return a row for each peer with the time until our best method reaches the peer's final regret."""
    rows: list[Row] = []
    if best not in part.methods:
        return rows
    ours, ours_by_table = part.mean(best), part.by_table(best)
    for name in part.methods:
        if name == best or (name not in methods.PEERS and name != methods.BASELINE):
            continue
        theirs = part.by_table(name)
        if name == methods.BASELINE:
            limit = RANDOM_BAR
            share = reached_at(ours, part.mean(name)[-1])
            each = [reached_at(mine, other[-1]) for mine, other in zip(ours_by_table, theirs, strict=True)]
            bar = f"at most {limit:g} of the time"
        else:
            limit = PEER_BAR
            share = share_of_time(ours, part.mean(name))
            each = [share_of_time(mine, other) for mine, other in zip(ours_by_table, theirs, strict=True)]
            bar = f"at most {limit:g} of its time"
        many = f"on {sum(one <= limit for one in each)} of {len(each)} tables"
        figure = f"{share:.3f}; within the bar {many}" if np.isfinite(share) else f"never; within the bar {many}"
        data = {"share": share, "by_table": dict(zip(part.tables, each, strict=True))}
        met = share <= limit if judge else None
        rows.append(Row(f"{about}: {best} time to the final regret of {name}", figure, bar, met, data))
    return rows


def _crossing_rows(compared: Comparison, where: str, table: str, judge: bool) -> list[Row]:
    """Return a row for each of our searchers: final regret by rule, and whether `auto` is as good as the best."""
    rows = []
    ours = [name for name in compared.methods if name not in methods.PEERS]
    for searcher in dict.fromkeys(methods.searcher_and_rule(name)[0] for name in ours):
        rules = {
            methods.searcher_and_rule(name)[1]: name
            for name in ours
            if methods.searcher_and_rule(name)[0] == searcher
        }
        if len(rules) < 2:
            continue
        final = {rule: compared.final(name, table) for rule, name in rules.items()}
        order: Sequence[str] = sorted(final, key=lambda rule: final[rule][0])
        figure = ", ".join(f"{rule} {final[rule][0]:.4f} ± {final[rule][1]:.4f}" for rule in order)
        bar, met = "", None
        if "auto" in rules:
            bar = f"auto within {NOISE:g} standard errors of the best, and of none"
            held = [rule for rule in dict.fromkeys((order[0], "none")) if rule in rules and rule != "auto"]
            worse = {rule: compared.difference(rules["auto"], rules[rule], table) for rule in held}
            figure += "".join(f"; auto {d:+.4f} ± {error:.4f} of {rule}" for rule, (d, error) in worse.items())
            if judge:
                met = all(difference <= NOISE * error for difference, error in worse.values())
        rows.append(Row(f"{where}, {table}: final regret, {searcher} with", figure, bar, met))
    return rows


def _cost_rows(found: dict[str, Runs]) -> list[Row]:
    rows = []
    for name, done in found.items():
        if done:
            seconds = [run["cpu_seconds"] for run in done.values()]
            figure = f"{np.mean(seconds):.1f} s of one core on average, {max(seconds):.1f} s at most"
            rows.append(Row(f"a run of {name}", figure))
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure, further=add_options))
