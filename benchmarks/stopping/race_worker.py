"""Races one method on some tables, in that method's own environment; one line of JSON for every finished run.

It needs NumPy and the peer; ours need SciPy and threadpoolctl besides. A run that is in the file already is
skipped, so this can be interrupted at any time. Seeds are outermost: whatever is done is balanced over the tables.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
# Last, so that no name of the project hides one of the peer's.
sys.path.append(str(Path(__file__).resolve().parent.parent.parent))
sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "src"))

from benchmarks.search.worker import one_thread
from benchmarks.stopping import methods, results, tables
from benchmarks.stopping.replay import Nearest, replay

DIGITS = 10


def run(entry: methods.Entry, table: tables.CurveTable, seed: int, workers: int) -> dict[str, Any]:
    adapter = import_module(f"benchmarks.stopping.peer_{entry.adapter}")
    one_thread()
    started = time.process_time()
    if entry.peer is None:
        version = adapter.version()
        trace = adapter.race(table, seed, workers, entry.options)
    else:
        nearest = Nearest(table)
        method = adapter.Method(table.parameters, table.steps, seed, entry.options, nearest)
        version = method.version
        trace = replay(method, table, nearest, workers)
    cpu_seconds = round(time.process_time() - started, 3)
    told = asdict(trace)
    for name in ("at", "regret"):
        told[name] = [round(each, DIGITS) for each in told[name]]
    about = {"method": entry.name, "table": table.name, "seed": seed, "workers": workers, "version": version}
    return {**about, **told, "cpu_seconds": cpu_seconds}


def share(cases: Sequence[results.Case], number: int, of: int) -> list[results.Case]:
    """Every `of`-th, but not of the same table each time: some take much longer than others."""
    a_round = len({table for table, _, _ in cases})
    return [case for i, case in enumerate(cases) if (i + i // a_round) % of == number]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", required=True)
    parser.add_argument("--tables", default="", help="names or kinds, with commas; all by default")
    parser.add_argument("--seeds", type=results.numbers, default=results.numbers("0-9"))
    parser.add_argument("--workers", type=results.numbers, default=[1, 4, 16])
    parser.add_argument("--results", type=Path, default=results.FOLDER)
    parser.add_argument("--share", default="0/1", help="i/n: every n-th run only, beginning with the i-th")
    options = parser.parse_args()
    entry = methods.find(options.method)
    warnings.simplefilter("ignore")
    named = tables.named(options.tables)
    file = results.file_of(options.results, entry.name)
    there = results.read(file)
    number, of = map(int, options.share.split("/"))
    for case in share(results.cases(named, options.seeds, options.workers), number, of):
        if case in there:
            continue
        name, seed, workers = case
        what = f"{name}, seed {seed}, workers {workers}"
        try:
            done = run(entry, tables.get(name), seed, workers)
        except Exception:
            # A peer that fails on one table is to be seen, and shall not end the others.
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.with_suffix(".errors.txt").open("a") as errors:
                errors.write(f"--- {what}\n{traceback.format_exc()}")
            print(f"{entry.name} failed: {what}", file=sys.stderr, flush=True)
            continue
        results.append(file, done)
        figures = f"{done['trials']} trials, {done['steps']} steps, {done['cpu_seconds']:.1f} s"
        print(f"{entry.name}: {what}: {figures}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
