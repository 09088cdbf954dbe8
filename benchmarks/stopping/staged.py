"""Which learning curves have stages, since the learning rate drops? Recorded, trained and made-up ones."""

from __future__ import annotations

import csv
import gzip
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.common import say
from benchmarks.search.tables import data
from benchmarks.stopping.tables import FOLDER

Array = npt.NDArray[np.float64]


def recorded(name: str) -> Array:
    """Validation metrics of an application at several batch sizes. ImageNet: drops after 30 and 60 epochs."""
    with gzip.open(data() / "validation_curves.csv.gz", "rt") as file:
        rows = [row for row in csv.DictReader(file) if row["app"] == name]
    curves: dict[str, list[float]] = {}
    for row in rows:
        curves.setdefault(row["global_bsz"], []).append(float(row["metric"]))
    shortest = min(map(len, curves.values()))
    return np.array([curve[:shortest] for curve in curves.values()])


def made_up(count: int, steps: int = 90) -> Array:
    """Losses that settle by Eq. 4, and drop after about a third and two thirds of the steps; with noise."""
    random = np.random.default_rng(0)
    curves = np.empty((count, steps))
    for curve in curves:
        drops = [int(share * steps) for share in (random.uniform(0.25, 0.4), random.uniform(0.58, 0.69))]
        level = random.uniform(1, 4)
        spread = level * 10 ** random.uniform(-3.5, -1.7)
        for start, end in zip([0, *drops], [*drops, steps], strict=True):
            goal = level * random.uniform(0.3, 0.8)
            height = (level - goal) * (1 if start == 0 else random.uniform(0.1, 0.5))
            k = np.arange(end - start)
            curve[start:end] = goal + height / (1 + random.uniform(0.1, 1) * k + random.uniform(0, 0.1) * k**2)
            level = goal
        curve += spread * random.normal(size=steps)
    return curves


def trained(count: int = 64, epochs: int = 60) -> Array:
    """Validation losses of networks with a hidden layer, whose learning rate drops once or twice."""
    file = FOLDER / "staged-fashion.npz"
    if not file.exists():
        say(f"training {count} networks, once")
        losses = np.array([_train(np.random.default_rng(seed), epochs) for seed in range(count)])
        FOLDER.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(file, losses=losses)
    with np.load(file) as found:
        kept: Array = found["losses"]
    return kept


def _train(random: np.random.Generator, epochs: int, images: int = 3000) -> Array:
    with np.load(data() / "fashion_mnist_12k.npz") as found:
        x, y, held_x, held_y = (found[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    x, held_x = (each.reshape(len(each), -1).astype(np.float32) / 255 for each in (x[:images], held_x))
    hidden, batch = int(2 ** random.uniform(4, 7)), int(2 ** random.uniform(4, 8))
    rate, momentum = 10 ** random.uniform(-2.3, -0.5), random.uniform(0, 0.9)
    drops = set(random.choice(np.arange(epochs // 6, epochs - 5), random.integers(1, 3), replace=False).tolist())
    weights = [
        random.normal(size=(a, b)).astype(np.float32) / np.sqrt(a) for a, b in ((784, hidden), (hidden, 10))
    ]
    moved = [np.zeros_like(each) for each in weights]
    losses = []
    for epoch in range(epochs):
        rate *= random.uniform(0.05, 0.3) if epoch in drops else 1.0
        order = random.permutation(images)
        for start in range(0, images, batch):
            rows = order[start : start + batch]
            inner = np.maximum(x[rows] @ weights[0], 0)
            slope = _softmax(inner @ weights[1])
            slope[np.arange(len(rows)), y[rows]] -= 1
            slope /= len(rows)
            slopes = x[rows].T @ ((slope @ weights[1].T) * (inner > 0)), inner.T @ slope
            for i in (0, 1):
                moved[i] = momentum * moved[i] - (1 - momentum) * rate * slopes[i]
                weights[i] += moved[i]
        chances = _softmax(np.maximum(held_x @ weights[0], 0) @ weights[1])
        losses.append(-np.log(np.maximum(chances[np.arange(len(held_y)), held_y], 1e-12)).mean())
    return np.array(losses, dtype=float)


def _softmax(a: Any) -> Any:
    shifted = np.exp(a - a.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)
