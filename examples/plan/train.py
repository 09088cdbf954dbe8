"""Softmax regression by stochastic gradient descent, on made-up images: small enough to be read at a glance."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import thriftune as tt

CLASSES, PIXELS = 10, 64


@cache
def images() -> tuple[Any, Any]:
    """Of each class one prototype, and noise that makes some of them look like others."""
    rng = np.random.default_rng(0)
    labels = rng.integers(CLASSES, size=4000)
    prototypes = rng.normal(size=(CLASSES, PIXELS))
    return 0.35 * prototypes[labels] + rng.normal(size=(4000, PIXELS)), labels


def train(trial: tt.Trial) -> None:
    pixels, labels = images()
    weights = np.zeros((PIXELS, CLASSES))

    def save(folder: Path) -> None:
        np.save(folder / "weights.npy", weights)

    def load(folder: Path) -> None:
        weights[:] = np.load(folder / "weights.npy")

    trial.restore(load)
    for step in trial.steps():
        rows = np.random.default_rng((trial.seed, step)).integers(3000, size=trial["batch"])
        error = probabilities(pixels[rows], weights)
        error[np.arange(len(rows)), labels[rows]] -= 1.0
        weights -= trial["lr"] * (pixels[rows].T @ error / len(rows) + trial["decay"] * weights)
        right = probabilities(pixels[3000:], weights)[np.arange(1000), labels[3000:]]
        trial.report(val_loss=float(-np.log(right + 1e-12).mean()), save=save)


def probabilities(pixels: Any, weights: Any) -> Any:
    scores = pixels @ weights
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
