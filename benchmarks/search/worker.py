"""Runs one method on some problems, in that method's own environment; writes one line of JSON for each run.

Runs that are already in the file are skipped, so this can be interrupted at any time.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections import deque
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
# Appended, so that no module of this project hides one of the peer's.
sys.path.append(str(Path(__file__).resolve().parent.parent.parent))

import numpy as np

from benchmarks.run_files import (
    Case,
    Entry,
    cases_of,
    limit_torch_to_one_thread,
    parse_numbers,
    parse_share,
    run_share,
)
from benchmarks.search import methods, problems, results

EVALUATIONS = 100


def run(entry: Entry, problem: problems.Problem, seed: int, parallel: int, budget: int) -> dict[str, Any]:
    """Return the result of `budget` evaluations, `parallel` at a time; the oldest pending one completes first."""
    adapter = import_module(f"benchmarks.search.peer_{entry.adapter}")
    limit_torch_to_one_thread()
    noise = np.random.default_rng([seed, 7])
    method = adapter.Method(problem.parameters, seed, budget, parallel, entry.options)
    pending: deque[tuple[Any, dict[str, Any]]] = deque()
    values: list[float] = []
    observed: list[float] = []
    ask_seconds: list[float] = []
    tell_seconds: list[float] = []
    while len(values) < budget:
        while len(pending) < parallel and len(values) + len(pending) < budget:
            started = time.process_time()
            pending.append(method.ask())
            ask_seconds.append(time.process_time() - started)
        key, config = pending.popleft()
        value = problem.function(config)
        values.append(value)
        observed.append(value + problem.noise * float(noise.normal()) if problem.noise else value)
        started = time.process_time()
        method.tell(key, observed[-1])
        tell_seconds.append(time.process_time() - started)
    result = {
        "method": entry.name,
        "problem": problem.name,
        "seed": seed,
        "parallel": parallel,
        "version": method.version,
        "values": values,
        "ask_seconds": [round(seconds, 5) for seconds in ask_seconds],
        "tell_seconds": round(sum(tell_seconds), 4),
    }
    return result | {"observed": observed} if problem.noise else result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", required=True)
    parser.add_argument("--problems", required=True, help="names or splits, separated by commas")
    parser.add_argument("--seeds", type=parse_numbers, default=parse_numbers("0-9"))
    parser.add_argument("--parallel", type=parse_numbers, default=[1])
    parser.add_argument("--evaluations", type=int, default=EVALUATIONS)
    parser.add_argument("--results", type=Path, default=problems.OUT / "results")
    parser.add_argument("--share", type=parse_share, default=(0, 1), help="i/n: every n-th run, from number i on")
    options = parser.parse_args()
    entry = methods.find(options.method)
    warnings.simplefilter("ignore")
    chosen = [
        name
        for part in options.problems.split(",")
        for name in (problems.names(part) if part in ("test", "dev") else [part])
    ]

    def run_case(case: Case) -> dict[str, Any]:
        name, seed, parallel = case
        return run(entry, problems.get(name), seed, parallel, options.evaluations)

    index, count = options.share
    cases = cases_of(chosen, options.seeds, options.parallel)[index::count]
    file = results.file_of(options.results, entry.name)
    run_share(
        entry.name, cases, file, results.KEYS, run_case, lambda result: f"{sum(result['ask_seconds']):.1f} s"
    )


if __name__ == "__main__":
    main()
