"""Times one method's suggestions at one size, in that method's own environment; prints JSON.

The history is the same for all methods: random configurations and the values of a smooth function. With 4 of them
pending it asks once (cold: nothing is kept from an earlier suggestion), then tells the oldest and asks again, some
rounds. CPU seconds of this process, which has one thread.
"""

from __future__ import annotations

import argparse
import json
import math
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

from benchmarks.run_files import limit_torch_to_one_thread
from benchmarks.search import methods, problems

PENDING = 4
CONTINUOUS: tuple[dict[str, Any], ...] = ({"type": "float", "low": 0.0, "high": 1.0},) * 6
MIXED: tuple[dict[str, Any], ...] = (
    {"type": "float", "low": 0.0, "high": 1.0},
    {"type": "float", "low": 1e-5, "high": 1.0, "log": True},
    {"type": "float", "low": -1.0, "high": 2.0},
    {"type": "int", "low": 1, "high": 10},
    {"type": "int", "low": 8, "high": 1024, "log": True},
    {"type": "choice", "choices": ["a", "b", "c", "d"]},
)


def space(dimensions: int, mixed: bool) -> dict[str, dict[str, Any]]:
    kinds = MIXED if mixed else CONTINUOUS
    return {f"x{i}": kinds[i % len(kinds)] for i in range(dimensions)}


def value(parameters: dict[str, dict[str, Any]], config: dict[str, Any]) -> float:
    total = 0.0
    for i, (name, p) in enumerate(parameters.items()):
        if p["type"] == "choice":
            u = p["choices"].index(config[name]) / (len(p["choices"]) - 1)
        elif p.get("log"):
            u = math.log(config[name] / p["low"]) / math.log(p["high"] / p["low"])
        else:
            u = (config[name] - p["low"]) / (p["high"] - p["low"])
        total += (u - 0.3 - 0.03 * i) ** 2 + 0.1 * math.sin(6 * u + i)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", required=True)
    parser.add_argument("--observations", type=int, required=True)
    parser.add_argument("--dimensions", type=int, required=True)
    parser.add_argument("--mixed", action="store_true")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    entry = methods.find(options.method)
    parameters = space(options.dimensions, options.mixed)
    rng = np.random.default_rng(options.seed)
    adapter = import_module(f"benchmarks.search.peer_{entry.adapter}")
    budget = options.observations + PENDING + options.rounds + 1
    method = adapter.Method(parameters, options.seed, budget, PENDING, entry.options)
    limit_torch_to_one_thread()
    for number in range(options.observations - 1):
        config = problems.draw(parameters, rng)
        method.tell(method.add(config), value(parameters, config))
        if number == 0:
            # Some peers always suggest the centre of the space first, so it is one of the observations.
            key, config = method.ask()
            method.tell(key, value(parameters, config))
    pending: deque[tuple[Any, dict[str, Any]]] = deque()
    for _ in range(PENDING):
        config = problems.draw(parameters, rng)
        pending.append((method.add(config), config))
    times = []
    for _ in range(options.rounds + 1):
        started = time.process_time()
        pending.append(method.ask())
        times.append(time.process_time() - started)
        key, config = pending.popleft()
        method.tell(key, value(parameters, config))
    print(json.dumps({"cold": times[0], "warm": times[1:], "version": method.version}))


if __name__ == "__main__":
    main()
