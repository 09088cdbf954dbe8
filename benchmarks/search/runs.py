"""Does the missing runs of search methods, each in its own environment, with one thread for each worker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.missing_runs import do_missing_runs
from benchmarks.run_files import cases_of
from benchmarks.search import methods, results

WORKER = Path(__file__).with_name("worker.py")


def complete(
    names: Sequence[str],
    problems: Sequence[str],
    seeds: Sequence[int],
    parallel: Sequence[int],
    evaluations: int,
    folder: Path,
    jobs: int = 1,
) -> None:
    """Do the runs that are not in the results yet, method by method, in `jobs` processes at a time."""
    arguments = ["--problems", ",".join(problems), "--seeds", ",".join(map(str, seeds))]
    arguments += ["--parallel", ",".join(map(str, parallel)), "--evaluations", str(evaluations)]
    arguments += ["--results", str(folder)]
    cases = cases_of(problems, seeds, parallel)
    for name in names:
        file = results.file_of(folder, name)
        do_missing_runs(methods.find(name), cases, file, results.KEYS, WORKER, arguments, jobs)
