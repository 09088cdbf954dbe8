"""Boosted regression trees, grown one round a step on made-up data.

A round grows some trees side by side, each on rows of its own, and takes a part of their mean: so that a machine
with more cores has something to do, and a round has less noise than one tree.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import thriftune as tt

SAVE_EVERY = 10
TRAIN_ROWS = 8000
BATCHES_A_TREE = 8


def train(trial: tt.Trial) -> None:
    """Squared error, as a part of the target's variance."""
    from sklearn.tree import DecisionTreeRegressor

    x, y = _waves()
    guesses = np.zeros(len(y))

    def save(folder: Path) -> None:
        np.save(folder / "guesses.npy", guesses)

    def load(folder: Path) -> None:
        guesses[:] = np.load(folder / "guesses.npy")

    def grow(seed: int) -> Any:
        """What a tree adds, for every row there is."""
        rows = np.random.default_rng(seed).integers(TRAIN_ROWS, size=BATCHES_A_TREE * trial["batch"])
        tree = DecisionTreeRegressor(max_depth=trial["depth"], random_state=seed % 2**32)
        return tree.fit(x[rows], y[rows] - guesses[rows]).predict(x)

    trial.restore(load)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        for step in trial.steps():
            seeds = np.random.default_rng((trial.seed, step)).integers(2**32, size=trial["trees"]).tolist()
            guesses += trial["lr"] * np.mean(list(threads.map(grow, seeds)), axis=0)
            error = np.mean((guesses - y)[TRAIN_ROWS:] ** 2) / np.var(y[TRAIN_ROWS:])
            trial.report(squared_error=float(error), save=save if step % SAVE_EVERY == 0 else None)


@cache
def _waves(rows: int = 10000) -> tuple[Any, Any]:
    """Friedman's first function, with noise and features that say nothing; of mean zero."""
    from sklearn.datasets import make_friedman1

    x, y = make_friedman1(rows, n_features=10, noise=1.0, random_state=4)
    return x.astype(np.float32), y - y.mean()
