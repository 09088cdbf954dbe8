"""The shipped, recorded and synthetic learning curves to predict.

Each function returns an array (configurations, steps). A value is NaN after the training diverged.
"""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import numpy.typing as npt

from thriftune.errors import SettingError
from thriftune.replay import recorded

Array = npt.NDArray[np.float64]

TASKSET = "taskset_text_rnn_6x1000x51.npz"
VALIDATION = "validation_curves.csv.gz"


def shipped(name: str) -> Array:
    """Return the curves of a workload that ships with thriftune; all are minimised."""
    recording = recorded.load(name)
    metric = recording.objectives[0].metric
    return np.array([[report[metric] for report in curve.metrics] for _, curve in recording.rows])


def taskset(path: Path, task: int) -> Array:
    """Return the validation losses of a recurrent network in one of TaskSet's tasks.

    They have 1,000 configurations of the optimiser and 51 steps.
    """
    try:
        with np.load(path) as arrays:
            losses: Array = arrays["valid_loss"][task].astype(float)
    except (KeyError, IndexError, ValueError, OSError) as error:
        raise SettingError(
            f"{path}: has no valid_loss with {task + 1} tasks ({error}); get the file again"
        ) from None
    return losses


def validation(path: Path, application: str) -> Array:
    """Return the metric of an application at several batch sizes.

    On ImageNet, the learning rate drops after 30 and 60 epochs.
    """
    with gzip.open(path, "rt") as file:
        rows = [row for row in csv.DictReader(file) if row["app"] == application]
    curves: dict[str, list[float]] = {}
    for row in rows:
        curves.setdefault(row["global_bsz"], []).append(float(row["metric"]))
    shortest = min(map(len, curves.values()))
    return np.array([curve[:shortest] for curve in curves.values()])


def synthetic(count: int, steps: int = 90) -> Array:
    """Return noisy losses that follow Eq. 4.

    They drop after about a third and two thirds of the steps.
    """
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
