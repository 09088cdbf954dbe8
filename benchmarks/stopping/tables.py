"""Recorded and trained learning curves as tables, with a row for each configuration and a column for each step.

TaskSet's and LCBench's come from the recorded data (LCBench's by its surrogate, at random configurations). Boosted
trees are trained with scikit-learn, some minutes each: with the learning rate and the subsampling searched, their
curves cross. What has to be made is made once, in out/stopping/tables; from there NumPy alone reads it, in every
peer's environment and on machines without the data.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.search import tables as search_tables
from benchmarks.search.problems import draw
from benchmarks.search.tables import ROOT, TASKSET, data

FOLDER = ROOT / "out" / "stopping" / "tables"

Array = npt.NDArray[np.float64]
Parameters = Mapping[str, Mapping[str, Any]]
Curves = tuple[list[dict[str, Any]], Array, Array]
"""Configurations, values and seconds."""

TREES: Parameters = {
    "rate": {"type": "float", "low": 1e-3, "high": 1.0, "log": True},
    "subsample": {"type": "float", "low": 0.1, "high": 1.0},
    "depth": {"type": "int", "low": 1, "high": 7},
    "leaf": {"type": "int", "low": 1, "high": 32, "log": True},
    "features": {"type": "float", "low": 0.1, "high": 1.0},
}
TREES_A_STEP, TREES_STEPS = 5, 60
LCBENCH_STEPS = 52


@dataclass(frozen=True)
class CurveTable:
    """Recorded learning curves. Values are minimised; NaN means that the training had diverged."""

    name: str
    kind: str
    parameters: Parameters
    configs: list[dict[str, Any]]
    values: Array  # (n, steps)
    seconds: Array  # (n, steps), for each step

    @property
    def steps(self) -> int:
        return int(self.values.shape[1])

    @cached_property
    def optimum(self) -> float:
        return float(np.nanmin(self.values))

    @cached_property
    def median(self) -> float:
        """Return the median final value, that of a typical random configuration."""
        last = self.values[:, -1]
        return float(np.median(np.where(np.isfinite(last), last, np.inf)))

    def regret(self, value: float) -> float:
        """Return the normalised regret: 0 at the lowest value, 1 at the median of the final values."""
        return (value - self.optimum) / (self.median - self.optimum)


CROSSING = "trees"
KINDS = ("taskset", "lcbench", CROSSING)
TOY = "toy-0"
"""A made-up table for quick tests."""


def names() -> list[str]:
    """Return all tables that exist or can be made here."""
    found = [f"trees-{dataset}" for dataset in ("cancer", "diabetes", "wine", "friedman")]
    if not importlib.util.find_spec("sklearn"):
        found = [name for name in found if _file(name).exists()]
    if data().is_dir():
        found += [f"taskset-{task}" for task in range(6)] + [f"lcbench-{task}" for task in lcbench_tasks()[:6]]
    else:
        for kind in ("taskset", "lcbench"):
            found += [file.stem for file in sorted(FOLDER.glob(f"{kind}-*.npz"))][:6]
    return found


def named(written: str) -> list[str]:
    """Return the tables of names or kinds separated by commas; all of names() for an empty text."""
    found: list[str] = []
    for given in written.split(",") if written else KINDS:
        found += [name for name in names() if name.partition("-")[0] == given] if given in KINDS else [given]
    return found


@cache
def get(name: str) -> CurveTable:
    kind, _, which = name.partition("-")
    if name == TOY:
        return _toy()
    if kind not in KINDS:
        raise SystemExit(f"table {name!r} is not known; use one of {', '.join(names())}")
    file = _file(name)
    if not file.exists():
        print(f"making the curves {name}, once", file=sys.stderr, flush=True)
        make: dict[str, Callable[[str], Curves]] = {
            "trees": _train_trees,
            "lcbench": _ask_lcbench,
            "taskset": _copy_taskset,
        }
        made = make[kind](which)
        FOLDER.mkdir(parents=True, exist_ok=True)
        partial = FOLDER / f"{name}.partial.npz"
        np.savez_compressed(partial, configs=json.dumps(made[0]), values=made[1], seconds=made[2])
        partial.replace(file)
    parameters = {"trees": TREES, "lcbench": search_tables.LCBENCH, "taskset": TASKSET}[kind]
    with np.load(file) as found:
        return CurveTable(
            name, kind, parameters, json.loads(str(found["configs"])), found["values"], found["seconds"]
        )


def _file(name: str) -> Path:
    return FOLDER / f"{name}.npz"


def _toy() -> CurveTable:
    """Return made-up losses that converge at different speeds, and diverge near an edge of the space."""
    parameters: Parameters = {
        "rate": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
        "depth": {"type": "int", "low": 1, "high": 8},
        "kind": {"type": "choice", "choices": ["plain", "gated"]},
    }
    rng = np.random.default_rng(0)
    configs = [draw(parameters, rng) for _ in range(200)]
    rate = np.log10([config["rate"] for config in configs])
    depth = np.array([config["depth"] for config in configs])
    gated = np.array([config["kind"] == "gated" for config in configs])
    goal = (rate + 2) ** 2 + 0.05 * (depth - 5) ** 2 + 0.5 * ~gated
    steps = np.arange(1, 10)
    values = goal[:, None] + 3.0 / (steps * 10.0 ** (rate[:, None] / 4 + 1))
    values[(rate > -0.4)[:, None] & (steps > 4)] = np.nan
    return CurveTable(TOY, "toy", parameters, configs, values, np.outer(1 + 0.2 * depth, np.ones(len(steps))))


# --- TaskSet ----------------------------------------------------------------------------------------------


def _copy_taskset(which: str) -> Curves:
    """Return validation losses of an RNN; all steps take equally long."""
    task = int(which)
    with np.load(data() / "taskset_text_rnn_6x1000x51.npz") as found:
        hp, values = found["hp"].copy(), found["valid_loss"][task].astype(float)
    hp[:, 1:3] = 1 - hp[:, 1:3]
    low, high = ([p[end] for p in TASKSET.values()] for end in ("low", "high"))
    configs = [dict(zip(TASKSET, row, strict=True)) for row in np.clip(hp, low, high).tolist()]
    return configs, values, np.ones(values.shape)


# --- LCBench ----------------------------------------------------------------------------------------------

_ASK_ONNX = """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
with numpy.load(sys.argv[2]) as given:
    numpy.save(sys.argv[3], session.run(None, dict(given))[0])
"""


def lcbench_tasks() -> list[str]:
    known = json.loads((data() / "lcbench_surrogate" / "encoding.json").read_text())["OpenML_task_id"]
    return sorted(task for task in known if task.isdigit())


def _ask_lcbench(task: str, count: int = 1000) -> Curves:
    """Return validation errors, and the seconds of each epoch."""
    from benchmarks import peers

    home = data() / "lcbench_surrogate"
    number = json.loads((home / "encoding.json").read_text())["OpenML_task_id"][task]
    rng = np.random.default_rng(int(task))
    configs = [dict(draw(search_tables.LCBENCH, rng)) for _ in range(count)]
    rows = np.array([[config[name] for name in search_tables.LCBENCH] for config in configs])
    epochs = np.arange(1.0, LCBENCH_STEPS + 1)
    asked = np.concatenate([np.tile(epochs, count)[:, None], np.repeat(rows, len(epochs), axis=0)], axis=1)
    with tempfile.TemporaryDirectory() as folder:
        question, answer = f"{folder}/asked.npz", f"{folder}/answer.npy"
        np.savez(question, x_cat=np.full((len(asked), 1), number, dtype=np.int32), x_cont=asked.astype(np.float32))
        command = [str(peers.python("onnxruntime")), "-c", _ASK_ONNX, str(home / "model.onnx"), question, answer]
        subprocess.run(command, check=True)
        told = np.load(answer).astype(float).reshape(count, len(epochs), -1)
    seconds = np.diff(np.maximum.accumulate(told[:, :, 0], axis=1), axis=1, prepend=0.0)
    usual = np.median(seconds, axis=1, keepdims=True)
    return configs, 1.0 - told[:, :, 1] / 100.0, np.maximum(seconds, 0.1 * usual)


# --- boosted trees ----------------------------------------------------------------------------------------


def _train_trees(dataset: str, count: int = 1000) -> Curves:
    """Return held-out log losses or mean squared errors after every fifth tree, and the seconds of each step."""
    rng = np.random.default_rng(sum(dataset.encode()))
    configs = [dict(draw(TREES, rng)) for _ in range(count)]
    values, seconds = [], []
    with ProcessPoolExecutor() as pool:
        for losses, took in pool.map(_train_one, [dataset] * count, configs, chunksize=10):
            values.append(losses)
            seconds.append([took / TREES_STEPS] * TREES_STEPS)
            if len(values) % 100 == 0:
                print(f"{dataset}: {len(values)} of {count} configurations trained", file=sys.stderr, flush=True)
    return configs, np.array(values), np.array(seconds)


def _train_one(dataset: str, config: Mapping[str, Any]) -> tuple[list[float], float]:
    from sklearn import datasets
    from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor
    from sklearn.metrics import log_loss, mean_squared_error
    from sklearn.model_selection import train_test_split

    x, y = {
        "cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
        "diabetes": lambda: datasets.load_diabetes(return_X_y=True),
        "wine": lambda: datasets.load_wine(return_X_y=True),
        "friedman": lambda: datasets.make_friedman1(n_samples=500, noise=1.0, random_state=0),
    }[dataset]()
    x, held_x, y, held_y = train_test_split(x, y, test_size=0.4, random_state=0)
    classify = dataset in ("cancer", "wine")
    began = time.process_time()
    model = (GradientBoostingClassifier if classify else GradientBoostingRegressor)(
        learning_rate=config["rate"],
        n_estimators=TREES_A_STEP * TREES_STEPS,
        subsample=config["subsample"],
        max_depth=config["depth"],
        min_samples_leaf=config["leaf"],
        max_features=config["features"],
        random_state=0,
    ).fit(x, y)
    took = time.process_time() - began
    staged = list(model.staged_predict_proba(held_x) if classify else model.staged_predict(held_x))
    losses = [
        log_loss(held_y, each, labels=model.classes_) if classify else mean_squared_error(held_y, each)
        for each in staged[TREES_A_STEP - 1 :: TREES_A_STEP]
    ]
    return losses, took
