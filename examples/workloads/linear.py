"""Logistic regression, a support vector machine and linear regression, by gradient descent in small batches.

A step is an epoch. The data are made up: as wide, and as hard to tell apart, as the sets that papers train such
models on, and the same each time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import thriftune as tt

SAVE_EVERY = 10
"""Epochs. One takes some milliseconds; to save its state takes as long."""

SVM_DECAY_BATCHES = 1000


class Data(NamedTuple):
    train_x: Any
    train_y: Any
    val_x: Any
    val_y: Any


def train_logistic(trial: tt.Trial) -> None:
    """Cross entropy; classes are 0 and 1."""
    _descend(trial, _two_classes(), trial["decay_batches"], _logistic_slope, "cross_entropy", _cross_entropy)


def train_svm(trial: tt.Trial) -> None:
    """Hinge loss; classes are -1 and 1. The RBF kernel's features are random ones (Rahimi and Recht 2007)."""
    data = _rings(trial["kernel"])
    _descend(trial, data, SVM_DECAY_BATCHES, _hinge_slope, "hinge_loss", _hinge_loss)


def train_linear(trial: tt.Trial) -> None:
    """Mean squared error, as a part of the target's variance."""
    _descend(trial, _years(), trial["decay_batches"], _squared_slope, "squared_error", _squared_error)


def _descend(
    trial: tt.Trial,
    data: Data,
    decay_batches: int,
    slope: Callable[[Any, Any], Any],
    metric: str,
    loss: Callable[[Any, Any], float],
) -> None:
    """After every so many batches the rate is multiplied by `decay`. `slope`: of the loss, by the score."""
    weights = np.zeros(data.train_x.shape[1], dtype=np.float32)

    def save(folder: Path) -> None:
        np.save(folder / "weights.npy", weights)

    def load(folder: Path) -> None:
        weights[:] = np.load(folder / "weights.npy")

    trial.restore(load)
    batch = trial["batch"]
    starts = np.arange(0, len(data.train_y) - batch + 1, batch)
    for epoch in trial.steps():
        order = np.random.default_rng((trial.seed, epoch)).permutation(starts)
        for number, start in enumerate(order.tolist(), (epoch - 1) * len(order)):
            rate = trial["lr"] * trial["decay"] ** (number // decay_batches)
            x, y = data.train_x[start : start + batch], data.train_y[start : start + batch]
            weights -= np.float32(rate / batch) * (slope(x @ weights, y) @ x)
        value = loss(data.val_x @ weights, data.val_y)
        trial.report({metric: value}, save=save if epoch % SAVE_EVERY == 0 else None)


# --- losses and their slopes --------------------------------------------------------------------------------


def _logistic_slope(scores: Any, labels: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-scores)) - labels


def _cross_entropy(scores: Any, labels: Any) -> float:
    return float(np.mean(np.logaddexp(0.0, scores) - labels * scores))


def _hinge_slope(scores: Any, signs: Any) -> Any:
    return np.where(signs * scores < 1.0, -signs, np.float32(0.0))


def _hinge_loss(scores: Any, signs: Any) -> float:
    return float(np.mean(np.maximum(0.0, 1.0 - signs * scores)))


def _squared_slope(guesses: Any, targets: Any) -> Any:
    return 2.0 * (guesses - targets)


def _squared_error(guesses: Any, targets: Any) -> float:
    return float(np.mean((guesses - targets) ** 2) / np.var(targets))


# --- made-up data -------------------------------------------------------------------------------------------


@cache
def _two_classes(rows: int = 18000, features: int = 2000) -> Data:
    """As wide as Epsilon; a few of its features vary much and most of them little."""
    rng = np.random.default_rng(1)
    scales = (1.0 + np.arange(features) / 20.0) ** -0.75
    x = rng.standard_normal((rows, features), dtype=np.float32) * scales.astype(np.float32)
    scores = x @ rng.standard_normal(features, dtype=np.float32)
    chances = 1.0 / (1.0 + np.exp(-1.5 * scores / scores.std()))
    return _parted(x, (rng.random(rows) < chances).astype(np.float32), 16000)


@cache
def _rings(kernel: str, rows: int = 18000, features: int = 20, waves: int = 1500) -> Data:
    """One class lies around the other, and somewhat aside, so that a plane parts them in some measure."""
    rng = np.random.default_rng(2)
    signs = np.where(rng.random(rows) < 0.5, 1.0, -1.0).astype(np.float32)
    x = rng.standard_normal((rows, features), dtype=np.float32) * np.where(signs > 0, 1.0, 1.5)[:, None]
    x[:, :4] += 0.25 * signs[:, None]
    if kernel == "rbf":
        width = 2.0 * np.sqrt(features)
        points = x @ (rng.standard_normal((features, waves)) / width) + rng.uniform(0.0, 2.0 * np.pi, waves)
        x = np.sqrt(2.0 / waves) * np.cos(points)
        x *= np.sqrt(features)  # so that one learning rate suits both kernels
    return _parted(x.astype(np.float32), signs, 15000)


@cache
def _years(rows: int = 75000, features: int = 90) -> Data:
    """As many features as YearPredictionMSD has, which go together, so that some directions are learned slowly;
    a third of the target is noise."""
    rng = np.random.default_rng(3)
    hidden = rng.standard_normal((rows, features))
    turned, _ = np.linalg.qr(rng.standard_normal((features, features)))
    ranks = 1.0 + np.arange(features)
    x = hidden * ranks**-0.75 @ turned
    y = hidden @ (rng.standard_normal(features) * ranks**-0.25)
    y = y / y.std() + np.sqrt(0.5) * rng.standard_normal(rows)
    return _parted(x.astype(np.float32), (y / y.std()).astype(np.float32), 60000)


def _parted(x: Any, y: Any, rows: int) -> Data:
    return Data(x[:rows], y[:rows], x[rows:], y[rows:])
