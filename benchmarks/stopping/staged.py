"""Learning curves with stages, because the learning rate drops; trained here, others come with thriftune."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.common import say
from benchmarks.search.tables import data
from benchmarks.stopping.tables import FOLDER

Array = npt.NDArray[np.float64]


def trained(count: int = 64, epochs: int = 60) -> Array:
    """Return validation losses of networks with a hidden layer, whose learning rate drops once or twice."""
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
