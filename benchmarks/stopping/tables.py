"""Which learning curves? Recorded and trained ones, as tables: a row a configuration, a column a step.

TaskSet's and LCBench's come from the recorded data (LCBench's by its surrogate, at random configurations). Boosted
trees are trained with scikit-learn, some minutes each: with the learning rate and the subsampling searched, their
curves cross. What has to be made is made once, in out/stopping/tables.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import peers
from benchmarks.common import say
from benchmarks.search import tables as search_tables
from benchmarks.search.problems import draw
from benchmarks.search.tables import ROOT, data

FOLDER = ROOT / "out" / "stopping" / "tables"

Array = npt.NDArray[np.float64]
Parameters = Mapping[str, Mapping[str, Any]]

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
    """What was recorded. Values are to be minimised; NaN: the training had diverged by then."""

    name: str
    kind: str
    parameters: Parameters
    configs: list[dict[str, Any]]
    values: Array  # (n, steps)
    seconds: Array  # (n, steps) of each step

    @property
    def steps(self) -> int:
        return int(self.values.shape[1])

    @cached_property
    def optimum(self) -> float:
        return float(np.nanmin(self.values))

    @cached_property
    def median(self) -> float:
        """Of the last values: what a random configuration comes to."""
        last = self.values[:, -1]
        return float(np.median(np.where(np.isfinite(last), last, np.inf)))

    def regret(self, value: float) -> float:
        """Normalised: 0 is the least value of all, 1 the median of the last ones."""
        return (value - self.optimum) / (self.median - self.optimum)


def names() -> list[str]:
    found = [f"trees-{dataset}" for dataset in ("cancer", "diabetes", "wine", "friedman")]
    if data().is_dir():
        found += [f"taskset-{task}" for task in range(6)] + [f"lcbench-{task}" for task in lcbench_tasks()[:6]]
    return found


@cache
def get(name: str) -> CurveTable:
    kind, _, which = name.partition("-")
    if kind == "taskset":
        return _taskset(int(which))
    parameters = TREES if kind == "trees" else search_tables.LCBENCH
    file = FOLDER / f"{name}.npz"
    if not file.exists():
        say(f"making the curves {name}, once")
        made = _train_trees(which) if kind == "trees" else _ask_lcbench(which)
        FOLDER.mkdir(parents=True, exist_ok=True)
        partial = FOLDER / f"{name}.partial.npz"
        np.savez_compressed(partial, configs=json.dumps(made[0]), values=made[1], seconds=made[2])
        partial.replace(file)
    with np.load(file) as found:
        return CurveTable(
            name, kind, parameters, json.loads(str(found["configs"])), found["values"], found["seconds"]
        )


def _taskset(task: int) -> CurveTable:
    with np.load(data() / "taskset_text_rnn_6x1000x51.npz") as found:
        hp, values = found["hp"].copy(), found["valid_loss"][task].astype(float)
    hp[:, 1:3] = 1 - hp[:, 1:3]
    parameters = search_tables.taskset(task).parameters
    low, high = ([p[end] for p in parameters.values()] for end in ("low", "high"))
    configs = [dict(zip(parameters, row, strict=True)) for row in np.clip(hp, low, high).tolist()]
    return CurveTable(f"taskset-{task}", "taskset", parameters, configs, values, np.ones(values.shape))


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


def _ask_lcbench(task: str, count: int = 1000) -> tuple[list[dict[str, Any]], Array, Array]:
    """Validation error, and the seconds of each epoch."""
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


def _train_trees(dataset: str, count: int = 1000) -> tuple[list[dict[str, Any]], Array, Array]:
    """Held-out log loss or mean squared error after every fifth tree, and the seconds of so many trees."""
    rng = np.random.default_rng(sum(dataset.encode()))
    configs = [dict(draw(TREES, rng)) for _ in range(count)]
    values, seconds = [], []
    with ProcessPoolExecutor() as pool:
        for losses, took in pool.map(_train_one, [dataset] * count, configs, chunksize=10):
            values.append(losses)
            seconds.append([took / TREES_STEPS] * TREES_STEPS)
            if len(values) % 100 == 0:
                say(f"{dataset}: {len(values)} of {count} configurations trained")
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
