"""The problems by name: test functions, mixed-type problems and real tuning tables.

The problems are in two splits, which share no function and no dataset: `dev` is for the design of the search, and
`test` only for judging it. This module needs only NumPy and the standard library, because it runs in every peer's
environment.

Some peers start at the centre of the space. No problem therefore has its optimum there: if the usual box is
centred on the optimum, another box is used.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search import functions, tables

OUT = Path(__file__).resolve().parent.parent.parent / "out" / "search"
DRAWS = 20_000

Config = Mapping[str, Any]
Parameters = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Problem:
    """A function to minimise over parameters written as in thriftune's Space.to_json()."""

    name: str
    split: str
    kind: str
    """function, mixed or table."""
    parameters: Parameters
    function: Callable[[Config], float]
    """The value without noise; takes the active parameters only."""
    optimum: float
    noise: float = 0.0
    """The standard deviation of the noise on each observed value; regret is computed without noise."""

    @cached_property
    def median(self) -> float:
        """Return the median value of random configurations, at which normalised regret is 1.

        Each parameter is uniform on its own scale. The median is stored in a file, as it takes long to compute.
        """
        rng = np.random.default_rng(20260801)
        first = [self.function(draw(self.parameters, rng)) for _ in range(64)]
        seen = hashlib.sha256(json.dumps([repr(value) for value in first]).encode()).hexdigest()[:12]
        file = OUT / "medians" / f"{self.name}-{seen}.json"
        if not file.exists():
            rest = [self.function(draw(self.parameters, rng)) for _ in range(DRAWS - len(first))]
            file.parent.mkdir(parents=True, exist_ok=True)
            partial = file.with_suffix(f".{os.getpid()}")
            partial.write_text(json.dumps(float(np.median(first + rest))))
            partial.replace(file)
        return float(json.loads(file.read_text()))

    def regret(self, value: float) -> float:
        """Return the normalised regret: 0 at the optimum, 1 at the median random configuration."""
        return (value - self.optimum) / (self.median - self.optimum)


# --- configurations ---------------------------------------------------------------------------------------


def draw(parameters: Parameters, rng: np.random.Generator) -> dict[str, Any]:
    """Return the active parameters of a random configuration, each uniform on its own scale."""
    return active(parameters, {name: _draw(p, rng) for name, p in parameters.items()})


def _draw(parameter: Mapping[str, Any], rng: np.random.Generator) -> Any:
    if parameter["type"] == "choice":
        return parameter["choices"][int(rng.integers(len(parameter["choices"])))]
    low, high = parameter["low"], parameter["high"]
    is_int = parameter["type"] == "int"
    if is_int:
        low, high = low - 0.5, high + 0.5
    if parameter.get("log"):
        value = math.exp(rng.uniform(math.log(low), math.log(high)))
    else:
        value = rng.uniform(low, high)
    value = round(value) if is_int else value
    return min(max(value, parameter["low"]), parameter["high"])


def active(parameters: Parameters, config: Config) -> dict[str, Any]:
    """Return the parameters of a configuration whose conditions hold, in the order of the space."""
    active_config: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if holds(parameter, active_config):
            active_config[name] = config[name]
    return active_config


def holds(parameter: Mapping[str, Any], config: Config) -> bool:
    """Return whether a parameter is active, given a configuration of the parameters before it."""
    when = parameter.get("when", {})
    return all(other in config and config[other] in wanted(value) for other, value in when.items())


def wanted(value: Any) -> list[Any]:
    """Return the values that a condition allows; a single one may be given without a list."""
    return list(value) if isinstance(value, list | tuple) else [value]


# --- by name ----------------------------------------------------------------------------------------------

_TEST: dict[str, Callable[[], Problem]] = {}
_DEV: dict[str, Callable[[], Problem]] = {}
TABLES: set[str] = set()
"""The problems whose tables make_tables.py makes."""


def names(split: str) -> list[str]:
    """Return the problems of a split whose data is available."""
    if split == "test":
        return list(_TEST)
    return [name for name in _DEV if not name.startswith(("taskset", "lcbench")) or tables.data().is_dir()]


@cache
def get(name: str) -> Problem:
    """Return a problem by name; its table must exist, see make_tables.py."""
    made = _TEST.get(name) or _DEV.get(name)
    if made is None:
        raise SystemExit(f"problem {name!r} is not known; use one of {', '.join([*_TEST, *_DEV])}")
    return made()


def _analytic(split: str, name: str, function: functions.Function, noise: float = 0.0) -> None:
    def make() -> Problem:
        return Problem(name, split, function.kind, function.parameters, function, function.optimum, noise)

    (_TEST if split == "test" else _DEV)[name] = make


def _table(split: str, name: str, load: Callable[[], tables.Table]) -> None:
    def make() -> Problem:
        table = load()
        return Problem(name, split, "table", table.parameters, table, table.optimum)

    TABLES.add(name)
    (_TEST if split == "test" else _DEV)[name] = make


_analytic("test", "branin", functions.BRANIN)
_analytic("test", "hartmann6", functions.HARTMANN6)
_analytic("test", "ackley5", functions.ACKLEY5)
_analytic("test", "rosenbrock4", functions.ROSENBROCK4)
_analytic("test", "levy8", functions.LEVY8)
_analytic("test", "network", functions.NETWORK)
_analytic("test", "optimizer", functions.OPTIMIZER)
_table("test", "svm-digits", lambda: tables.svm("digits"))
_table("test", "trees-cancer", lambda: tables.trees("cancer"))
_table("test", "mlp-vehicle", lambda: tables.mlp("vehicle"))
_table("test", "fcnet-protein", lambda: tables.fcnet("protein_structure"))
_table("test", "nas-cifar100", lambda: tables.nas("cifar100"))

_analytic("dev", "styblinski5", functions.STYBLINSKI5)
_analytic("dev", "hartmann3", functions.HARTMANN3)
_analytic("dev", "shekel4", functions.SHEKEL4)
_analytic("dev", "michalewicz5", functions.MICHALEWICZ5)
_analytic("dev", "griewank6", functions.GRIEWANK6)
_analytic("dev", "dixonprice4", functions.DIXONPRICE4)
_analytic("dev", "goldstein", functions.GOLDSTEIN)
_analytic("dev", "sphere8", functions.SPHERE8)
_analytic("dev", "camel-noisy", functions.CAMEL, noise=0.5)
_analytic("dev", "kiln", functions.KILN)
_analytic("dev", "pipeline", functions.PIPELINE)
_table("dev", "svm-wine", lambda: tables.svm("wine"))
_table("dev", "trees-diabetes", lambda: tables.trees("diabetes"))
_table("dev", "mlp-segment", lambda: tables.mlp("segment"))
_table("dev", "fcnet-naval", lambda: tables.fcnet("naval_propulsion"))
_table("dev", "nas-cifar10", lambda: tables.nas("cifar10"))
_table("dev", "taskset-lstm", lambda: tables.taskset(4))
_table("dev", "lcbench-189906", lambda: tables.lcbench("189906"))
