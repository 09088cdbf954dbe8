"""Runs one method on some problems, in that method's own environment; one line of JSON for every finished run.

A run that is in the file already is skipped, so this can be interrupted at any time. Seeds are outermost: whatever
is done is balanced over the problems.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
import warnings
from collections import deque
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
# Last, so that no name of the project hides one of the peer's.
sys.path.append(str(Path(__file__).resolve().parent.parent.parent))

import numpy as np

from benchmarks.search import methods, problems, results

EVALUATIONS = 100


def one_thread() -> None:
    """Torch also counts for itself; it is only looked at where the method has loaded it."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


def run(entry: methods.Entry, problem: problems.Problem, seed: int, parallel: int, budget: int) -> dict[str, Any]:
    """Keeps `parallel` evaluations pending; the oldest completes first, and the next is asked for at once."""
    adapter = import_module(f"benchmarks.search.peer_{entry.adapter}")
    one_thread()
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
    done = {
        "method": entry.name,
        "problem": problem.name,
        "seed": seed,
        "parallel": parallel,
        "version": method.version,
        "values": values,
        "ask_seconds": [round(seconds, 5) for seconds in ask_seconds],
        "tell_seconds": round(sum(tell_seconds), 4),
    }
    return done | {"observed": observed} if problem.noise else done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", required=True)
    parser.add_argument("--problems", required=True, help="names or splits, with commas")
    parser.add_argument("--seeds", type=results.numbers, default=results.numbers("0-9"))
    parser.add_argument("--parallel", type=results.numbers, default=[1])
    parser.add_argument("--evaluations", type=int, default=EVALUATIONS)
    parser.add_argument("--results", type=Path, default=problems.OUT / "results")
    parser.add_argument("--share", default="0/1", help="i/n: every n-th run only, beginning with the i-th")
    options = parser.parse_args()
    entry = methods.find(options.method)
    warnings.simplefilter("ignore")
    chosen = [
        name
        for given in options.problems.split(",")
        for name in (problems.names(given) if given in ("test", "dev") else [given])
    ]
    file = results.file_of(options.results, entry.name)
    there = results.read(file)
    runs = [(name, seed, p) for seed in options.seeds for p in options.parallel for name in chosen]
    number, of = map(int, options.share.split("/"))
    for name, seed, parallel in runs[number::of]:
        if (name, seed, parallel) in there:
            continue
        try:
            done = run(entry, problems.get(name), seed, parallel, options.evaluations)
        except Exception:
            # A peer that fails on one problem is to be seen, and shall not end the others.
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.with_suffix(".errors.txt").open("a") as errors:
                errors.write(f"--- {name}, seed {seed}, parallel {parallel}\n{traceback.format_exc()}")
            print(f"{entry.name} failed: {name}, seed {seed}, parallel {parallel}", file=sys.stderr, flush=True)
            continue
        results.append(file, done)
        took = sum(done["ask_seconds"])
        print(f"{entry.name}: {name}, seed {seed}, parallel {parallel}: {took:.1f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
