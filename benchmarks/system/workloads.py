"""Five workloads on three sets of real data, for the benchmarks of system tuning.

Two workloads share their model, and others their data. A step is an epoch, and usually takes 0.3 to 1.5 seconds on
one core.

No workload sets the number of threads, because that is tuned. No workload loads a library that it does not train
with, because that would add threads and memory. With the same number of threads, the same seed gives the same
figures, even if a trial is interrupted: random numbers depend on the trial's seed and the epoch alone.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

import thriftune as tt
from benchmarks.search.tables import data
from thriftune.space.parameters import Parameter

FILES = {"mnist": "mnist_12k.npz", "fashion": "fashion_mnist_12k.npz"}
"""Ten thousand images each to train on and two thousand to validate on."""

LENET_IMAGES, MLP_IMAGES, TREE_IMAGES = 6000, 10_000, 5000
SEQUENCES, VALIDATION_SEQUENCES, SEQUENCE_CHARACTERS = 2500, 600, 32
TREE_ROUNDS = 3  # an epoch; each grows a tree for every class

Array = npt.NDArray[Any]


class Train(Protocol):
    def __call__(self, trial: tt.Trial, share: float = 1.0) -> None:
        """Train. `share`: the share of an epoch's data; less than 1 only to see that the workload runs."""


@dataclass(frozen=True)
class Workload:
    """A workload. `config`: a configuration that learns well. `metric`: the metric to maximize."""

    name: str
    train: Train
    space: Mapping[str, Parameter]
    config: Mapping[str, Any]
    model: str
    data: str
    metric: str = "accuracy"
    max_steps: int = 10

    def missing(self) -> Path | None:
        """Return the data file that is missing, or None. THRIFTUNE_DATA names the folder with the data."""
        file = data() / FILES[self.data] if self.data in FILES else None
        return None if file is None or file.exists() else file


class Split(NamedTuple):
    """Training data and validation data."""

    x: Array
    y: Array
    val_x: Array
    val_y: Array


# --- the workloads ----------------------------------------------------------------------------------------


def lenet_mnist(trial: tt.Trial, share: float = 1.0) -> None:
    """Train LeNet-5, a small convolutional network, on handwritten digits."""
    _lenet(trial, "mnist", share)


def lenet_fashion(trial: tt.Trial, share: float = 1.0) -> None:
    """Train LeNet-5 on pieces of clothing."""
    _lenet(trial, "fashion", share)


def _lenet(trial: tt.Trial, name: str, share: float) -> None:
    from benchmarks.system.networks import train_lenet

    train_lenet(trial, _images(name), round(share * LENET_IMAGES))


def text_rnn(trial: tt.Trial, share: float = 1.0) -> None:
    """Train gated recurrent units to predict the next character."""
    from benchmarks.system.networks import train_characters

    train_characters(trial, _text(), round(share * SEQUENCES))


def boosted_trees(trial: tt.Trial, share: float = 1.0) -> None:
    """Train boosted trees, some rounds an epoch, on images of 14 x 14 pixels. Each trial draws its own images."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    images = _quarter("fashion")
    rows = np.random.default_rng(trial.seed).permutation(len(images.y))[: round(share * TREE_IMAGES)]
    x, y = images.x[rows], images.y[rows]
    trees = HistGradientBoostingClassifier(
        learning_rate=trial["learning_rate"],
        max_leaf_nodes=trial["max_leaf_nodes"],
        l2_regularization=trial["l2"],
        early_stopping=False,
        warm_start=True,
        random_state=trial.seed,
    )

    def save(folder: Path) -> None:
        (folder / "trees.pickle").write_bytes(pickle.dumps(trees))

    def load(folder: Path) -> None:
        nonlocal trees
        trees = pickle.loads((folder / "trees.pickle").read_bytes())

    trial.restore(load)
    for epoch in trial.steps():
        trees.set_params(max_iter=epoch * TREE_ROUNDS).fit(x, y)
        trial.report(accuracy=trees.score(images.val_x, images.val_y), save=save)


def numpy_network(trial: tt.Trial, share: float = 1.0) -> None:
    """Train two hidden layers by plain gradient descent, in NumPy alone."""
    x, y, val_x, val_y = _flat("mnist")
    rng = np.random.default_rng(trial.seed)
    widths = (x.shape[1], trial["width"], trial["width"], 10)
    layers = [rng.normal(0.0, np.sqrt(2.0 / fan), (fan, out)) for fan, out in pairwise(widths)]

    def save(folder: Path) -> None:
        np.savez(folder / "layers.npz", *layers)

    def load(folder: Path) -> None:
        with np.load(folder / "layers.npz") as kept:
            layers[:] = kept.values()

    trial.restore(load)
    # A learning rate that is too high gives values that are no numbers, and a trial no better than chance.
    with np.errstate(over="ignore", invalid="ignore"):
        for epoch in trial.steps():
            order = np.random.default_rng((trial.seed, epoch)).permutation(len(x))[: round(share * MLP_IMAGES)]
            for start in range(0, len(order), trial["batch_size"]):
                rows = order[start : start + trial["batch_size"]]
                for layer, slope in zip(layers, slopes(layers, x[rows], y[rows]), strict=True):
                    layer -= trial["lr"] * slope
            right = activations(layers, val_x)[-1].argmax(axis=1) == val_y
            trial.report(accuracy=right.mean(), save=save)


def activations(layers: list[Array], x: Array) -> list[Array]:
    """Return the input of each layer, and then the scores of the classes."""
    given = [x]
    for layer in layers[:-1]:
        given.append(np.maximum(given[-1] @ layer, 0.0))
    return [*given, given[-1] @ layers[-1]]


def slopes(layers: list[Array], x: Array, y: Array) -> list[Array]:
    """Return the gradient of the mean cross entropy, by every weight."""
    *given, scores = activations(layers, x)
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    chances[np.arange(len(y)), y] -= 1.0
    back = chances / len(y)
    found = []
    for layer, before in zip(reversed(layers), reversed(given), strict=True):
        found.append(before.T @ back)
        if before is not x:
            back = (back @ layer.T) * (before > 0.0)
    return found[::-1]


# --- their data, read once in a process -------------------------------------------------------------------


@cache
def _images(name: str) -> Split:
    """Read images as pixels from 0 to 1."""
    with np.load(data() / FILES[name]) as file:
        x, val_x = (file[part].astype(np.float32) / 255.0 for part in ("x_train", "x_test"))
        return Split(x, file["y_train"].astype(np.int64), val_x, file["y_test"].astype(np.int64))


@cache
def _flat(name: str) -> Split:
    """Read images as rows of pixels, in NumPy's usual precision."""
    x, y, val_x, val_y = _images(name)
    flat, val_flat = (pixels.reshape(len(pixels), -1).astype(np.float64) for pixels in (x, val_x))
    return Split(flat, y, val_flat, val_y)


@cache
def _quarter(name: str) -> Split:
    """Read images with each two by two pixels averaged."""
    x, y, val_x, val_y = _images(name)
    small, val_small = (p.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196) for p in (x, val_x))
    return Split(small, y, val_small, val_y)


@cache
def _text() -> Split:
    """Read Python's reference manual as sequences, each with the characters that follow.

    It has half a million characters of English and code. Other versions of Python have other text.
    """
    from pydoc_data.topics import topics

    text = "\n".join(topics[name] for name in sorted(topics))
    codes = np.frombuffer(text.encode("ascii", "replace"), np.uint8).astype(np.int64)
    length = SEQUENCE_CHARACTERS + 1
    sequences = codes[: len(codes) // length * length].reshape(-1, length)
    sequences = np.random.default_rng(0).permutation(sequences)
    held, kept = sequences[:VALIDATION_SEQUENCES], sequences[VALIDATION_SEQUENCES:]
    return Split(kept[:, :-1], kept[:, 1:], held[:, :-1], held[:, 1:])


# --- the list of workloads --------------------------------------------------------------------------------


def _powers(low: int, high: int) -> tt.Choice:
    """Return a choice of the powers of two from `low` to `high`, the usual batch sizes."""
    return tt.Choice([2**n for n in range(low.bit_length() - 1, high.bit_length())])


_LENET_SPACE = {
    "lr": tt.Float(1e-3, 0.3, log=True),
    "batch_size": _powers(32, 1024),  # PipeTune's range
    "momentum": tt.Float(0.0, 0.95),
    "dropout": tt.Float(0.0, 0.5),
}
_LENET_CONFIG = {"lr": 0.05, "batch_size": 32, "momentum": 0.8, "dropout": 0.1}

WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("lenet_mnist", lenet_mnist, _LENET_SPACE, _LENET_CONFIG, "lenet", "mnist"),
        Workload("lenet_fashion", lenet_fashion, _LENET_SPACE, _LENET_CONFIG, "lenet", "fashion"),
        Workload(
            "text_rnn",
            text_rnn,
            {
                "lr": tt.Float(1e-3, 3e-2, log=True),
                "batch_size": _powers(32, 512),
                "hidden": tt.Int(32, 128, log=True),
            },
            {"lr": 1e-2, "batch_size": 32, "hidden": 128},
            "gru",
            "text",
        ),
        Workload(
            "boosted_trees",
            boosted_trees,
            {
                "learning_rate": tt.Float(0.02, 0.5, log=True),
                "max_leaf_nodes": tt.Int(7, 63, log=True),
                "l2": tt.Float(1e-3, 10.0, log=True),
            },
            {"learning_rate": 0.2, "max_leaf_nodes": 31, "l2": 1.0},
            "trees",
            "fashion",
        ),
        Workload(
            "numpy_network",
            numpy_network,
            {
                "lr": tt.Float(1e-2, 1.0, log=True),
                "batch_size": _powers(32, 2048),
                "width": tt.Int(64, 512, log=True),
            },
            {"lr": 0.1, "batch_size": 32, "width": 256},
            "mlp",
            "mnist",
        ),
    )
}
