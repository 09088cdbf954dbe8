"""What is there to minimise? Test functions, mixed-type problems and real tuning tables, by name.

Two splits. `dev` may be looked at while the search is designed, `test` only to judge it; they share no function
and no dataset. NumPy and the standard library only, since this runs in every peer's environment.

Some peers begin at the centre of the space, so no problem has its optimum there: where the usual box is centred
on it, another one is used.
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
    """Standard deviation of what is added to each observed value; regret is taken without it."""

    @cached_property
    def median(self) -> float:
        """Of random configurations, each parameter uniform on its own scale: what normalised regret 1 means."""
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
        """Normalised: 0 at the optimum, 1 at the median random configuration."""
        return (value - self.optimum) / (self.median - self.optimum)


# --- configurations ---------------------------------------------------------------------------------------


def draw(parameters: Parameters, rng: np.random.Generator) -> dict[str, Any]:
    """A random configuration, each parameter uniform on its own scale, the active ones only."""
    return active(parameters, {name: _draw(p, rng) for name, p in parameters.items()})


def _draw(parameter: Mapping[str, Any], rng: np.random.Generator) -> Any:
    if parameter["type"] == "choice":
        return parameter["choices"][int(rng.integers(len(parameter["choices"])))]
    low, high = parameter["low"], parameter["high"]
    whole = parameter["type"] == "int"
    if whole:
        low, high = low - 0.5, high + 0.5
    if parameter.get("log"):
        value = math.exp(rng.uniform(math.log(low), math.log(high)))
    else:
        value = rng.uniform(low, high)
    value = round(value) if whole else value
    return min(max(value, parameter["low"]), parameter["high"])


def active(parameters: Parameters, config: Config) -> dict[str, Any]:
    """What of a flat configuration counts: parameters whose conditions hold, in the order of the space."""
    kept: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if holds(parameter, kept):
            kept[name] = config[name]
    return kept


def holds(parameter: Mapping[str, Any], config: Config) -> bool:
    """Whether the parameter is active in a configuration that has those before it."""
    when = parameter.get("when", {})
    return all(other in config and config[other] in wanted(value) for other, value in when.items())


def wanted(value: Any) -> list[Any]:
    """The values a condition allows; a single one may be written without a list."""
    return list(value) if isinstance(value, list | tuple) else [value]


# --- by name ----------------------------------------------------------------------------------------------

_TEST: dict[str, Callable[[], Problem]] = {}
_DEV: dict[str, Callable[[], Problem]] = {}
TABLES: set[str] = set()
"""Problems whose table has to be made first, see make_tables.py."""


def names(split: str) -> list[str]:
    """All problems of a split that can be had here."""
    if split == "test":
        return list(_TEST)
    return [name for name in _DEV if not name.startswith(("taskset", "lcbench")) or tables.data().is_dir()]


@cache
def get(name: str) -> Problem:
    """The problem of that name; its table is made first if need be."""
    made = _TEST.get(name) or _DEV.get(name)
    if made is None:
        raise SystemExit(f"problem {name!r} is not known; there are {', '.join([*_TEST, *_DEV])}")
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
