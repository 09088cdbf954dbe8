"""Runs one method on some curve tables, in that method's own environment; writes one line of JSON for each run.

It needs NumPy and the peer; our own methods also need SciPy and threadpoolctl. Runs that are already in the file
are skipped, so this can be interrupted at any time.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
# Appended, so that no module of this project hides one of the peer's.
sys.path.append(str(Path(__file__).resolve().parent.parent.parent))
sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "src"))

from benchmarks.run_files import (
    Case,
    Entry,
    cases_of,
    limit_torch_to_one_thread,
    parse_numbers,
    parse_share,
    run_share,
)
from benchmarks.stopping import methods, results, tables
from benchmarks.stopping.replay import Nearest, replay

DIGITS = 10
"""Decimal digits of the times and regrets in the file."""


def run(entry: Entry, table: tables.CurveTable, seed: int, workers: int) -> dict[str, Any]:
    """Return the result of one run of a method on a table."""
    adapter = import_module(f"benchmarks.stopping.peer_{entry.adapter}")
    limit_torch_to_one_thread()
    started = time.process_time()
    if entry.peer is None:
        version = adapter.version()
        trace = adapter.simulate(table, seed, workers, entry.options)
    else:
        nearest = Nearest(table)
        method = adapter.Method(table.parameters, table.steps, seed, entry.options, nearest)
        version = method.version
        trace = replay(method, table, nearest, workers)
    cpu_seconds = round(time.process_time() - started, 3)
    figures = asdict(trace)
    for name in ("at", "regret"):
        figures[name] = [round(each, DIGITS) for each in figures[name]]
    about = {"method": entry.name, "table": table.name, "seed": seed, "workers": workers, "version": version}
    return {**about, **figures, "cpu_seconds": cpu_seconds}


def share(cases: Sequence[Case], index: int, count: int) -> list[Case]:
    """Return every `count`-th case, of different tables, because some tables take much longer than others."""
    table_count = len({table for table, _, _ in cases})
    return [case for i, case in enumerate(cases) if (i + i // table_count) % count == index]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", required=True)
    parser.add_argument("--tables", default="", help="names or kinds, separated by commas; all by default")
    parser.add_argument("--seeds", type=parse_numbers, default=parse_numbers("0-9"))
    parser.add_argument("--workers", type=parse_numbers, default=[1, 4, 16])
    parser.add_argument("--results", type=Path, default=results.FOLDER)
    parser.add_argument("--share", type=parse_share, default=(0, 1), help="i/n: every n-th run, from number i on")
    options = parser.parse_args()
    entry = methods.find(options.method)
    warnings.simplefilter("ignore")

    def run_case(case: Case) -> dict[str, Any]:
        name, seed, workers = case
        return run(entry, tables.get(name), seed, workers)

    def summary(result: dict[str, Any]) -> str:
        return f"{result['trials']} trials, {result['steps']} steps, {result['cpu_seconds']:.1f} s"

    cases = share(cases_of(tables.named(options.tables), options.seeds, options.workers), *options.share)
    run_share(entry.name, cases, results.file_of(options.results, entry.name), results.KEYS, run_case, summary)


if __name__ == "__main__":
    main()
