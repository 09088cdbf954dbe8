"""Does the missing runs of stopping methods, each in its own environment, with one thread for each worker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.missing_runs import do_missing_runs
from benchmarks.run_files import cases_of
from benchmarks.stopping import methods, results

WORKER = Path(__file__).with_name("replay_worker.py")


def complete(
    names: Sequence[str],
    tables: Sequence[str],
    seeds: Sequence[int],
    workers: Sequence[int],
    folder: Path,
    jobs: int = 1,
) -> None:
    """Do the runs that are not in the results yet, method by method, in `jobs` processes at a time."""
    arguments = ["--tables", ",".join(tables), "--seeds", ",".join(map(str, seeds))]
    arguments += ["--workers", ",".join(map(str, workers)), "--results", str(folder)]
    cases = cases_of(tables, seeds, workers)
    for name in names:
        file = results.file_of(folder, name)
        do_missing_runs(methods.find(name), cases, file, results.KEYS, WORKER, arguments, jobs)
