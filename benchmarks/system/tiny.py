"""Run a study with steps of a millisecond on one core, where no knob can gain anything."""

from __future__ import annotations

import os
import time

import numpy as np

import thriftune as tt

TRIALS = 3


def train(trial: tt.Trial) -> None:
    """Train with about a millisecond of linear algebra a step."""
    x = np.random.default_rng(trial.seed).normal(size=(120, 120))
    cpu = time.process_time()
    for _ in trial.steps():
        for _ in range(10):
            x = np.tanh(x @ x / 11)
        trial.report(loss=float(x[0, 0]), cpu=time.process_time() - cpu)


def one(side: str, store: str, steps: int) -> tuple[float, float]:
    """Run the study; return the seconds of its trials, and their CPU seconds."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    result = tt.tune(
        train,
        {"x": tt.Float(0.0, 1.0)},
        minimize="loss",
        trials=TRIALS,
        max_steps=steps,
        searcher="random",
        stopping="none",
        system=side,
        store=store,
        progress=False,
    )
    return sum(trial.seconds for trial in result.trials), sum(trial.metrics["cpu"] for trial in result.trials)
