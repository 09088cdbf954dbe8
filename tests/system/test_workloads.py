"""The workloads whose use of the machine is measured: they learn, resume exactly, and set no knob themselves."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from functools import partial
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import thriftune as tt
from benchmarks.system.workloads import WORKLOADS, Workload, activations, slopes
from tests.conftest import needs_torch

SHARE = 0.2
THREADS = {"openmp": min(2, len(os.sched_getaffinity(0))), "blas": 1}
"""Not one of OpenMP's: a workload that asked for one would go unseen. The threads of BLAS wait for each other in a
loop, for which a busy machine has no time."""

LEARNED = {  # after two epochs of a fifth of the data; a guess is right for a tenth of the images
    "lenet_mnist": 0.5,
    "lenet_fashion": 0.4,
    "text_rnn": 0.25,
    "boosted_trees": 0.6,
    "numpy_network": 0.7,
}
NOT_ITS_OWN = {"lenet": "sklearn", "gru": "sklearn", "trees": "torch", "mlp": "torch"}


def watched(name: str, trial: tt.Trial) -> None:
    """The first two trials are alike but that one is killed after its first epoch; the third has another seed."""
    trial.run = replace(trial.run, seed=trial.id // 2)
    report = trial.report

    def record(**metrics: Any) -> None:
        wrong = [pool for pool in threadpool_info() if pool["num_threads"] != THREADS[pool["user_api"]]]
        assert not wrong, wrong
        assert NOT_ITS_OWN[WORKLOADS[name].model] not in sys.modules
        report(**metrics)
        if (trial.id, trial.attempt) == (1, 1):
            os.kill(os.getpid(), signal.SIGKILL)

    trial.report = record  # type: ignore[method-assign, assignment]
    WORKLOADS[name].train(trial, share=SHARE)


@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(each, id=name, marks=needs_torch if each.model in ("lenet", "gru") else ())
        for name, each in WORKLOADS.items()
    ],
)
def test_it_learns_and_goes_on_as_if_never_interrupted(
    workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing := workload.missing():
        pytest.skip(f"no {missing.name}: THRIFTUNE_DATA names the folder that holds it")
    monkeypatch.setenv("OMP_NUM_THREADS", str(THREADS["openmp"]))
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", str(THREADS["blas"]))
    result = tt.tune(
        partial(watched, workload.name),
        {name: tt.Choice([value]) for name, value in workload.config.items()},
        maximize=workload.metric,
        trials=3,
        max_steps=2,
        workers=1,
        searcher="random",
        stopping="none",
        store=tmp_path / "s.db",
        progress=False,
    )
    assert [trial.error for trial in result.trials] == [None, None, None]
    whole, killed, _ = result.trials
    assert (killed.attempts, killed.resumed_from) == (2, 1)
    curve, killed_curve, other_curve = ([report.metrics for report in trial.reports] for trial in result.trials)
    assert killed_curve == curve  # to the last digit: the same seed, on as many threads
    assert other_curve != curve
    assert all(report.saved for report in whole.reports)
    assert curve[-1][workload.metric] > LEARNED[workload.name]


def test_each_is_found_by_its_name_and_its_configuration_is_one_of_its_space() -> None:
    for name, workload in WORKLOADS.items():
        assert workload.name == name == getattr(workload.train, "__name__", None)
        assert tt.Space(workload.space).check(workload.config) == workload.config


def test_pairs_share_their_model_their_data_or_neither() -> None:
    pairs = permutations(WORKLOADS.values(), 2)
    alike = {(one.model == other.model, one.data == other.data) for one, other in pairs}
    assert alike == {(True, False), (False, True), (False, False)}


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("lenet_mnist", 32, 1024),
        ("lenet_fashion", 32, 1024),
        ("text_rnn", 32, 512),
        ("numpy_network", 32, 2048),
    ],
)
def test_batches_double_from_the_least_to_the_most(name: str, least: int, most: int) -> None:
    sizes = WORKLOADS[name].space["batch_size"]
    assert isinstance(sizes, tt.Choice)
    assert sizes.choices[0] == least
    assert sizes.choices[-1] == most
    assert all(after == 2 * before for before, after in pairwise(sizes.choices))


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRIFTUNE_DATA", str(tmp_path))
    assert WORKLOADS["lenet_mnist"].missing() == tmp_path / "mnist_12k.npz"
    assert WORKLOADS["boosted_trees"].missing() == tmp_path / "fashion_mnist_12k.npz"
    assert WORKLOADS["text_rnn"].missing() is None
    (tmp_path / "mnist_12k.npz").touch()
    assert WORKLOADS["lenet_mnist"].missing() is None


def test_the_slopes_are_those_of_the_loss() -> None:
    """Against what a small change of each weight does."""
    rng = np.random.default_rng(3)
    layers = [rng.normal(size=shape) for shape in ((4, 5), (5, 5), (5, 3))]
    x, y = rng.normal(size=(7, 4)), rng.integers(3, size=7)

    def loss() -> float:
        scores = activations(layers, x)[-1]
        return float(np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(y)), y]))

    little = 1e-6
    for layer, slope in zip(layers, slopes(layers, x, y), strict=True):
        for place in np.ndindex(*layer.shape):
            kept = layer[place]
            layer[place] = kept + little
            above = loss()
            layer[place] = kept - little
            below = loss()
            layer[place] = kept
            assert (above - below) / (2 * little) == pytest.approx(slope[place], abs=1e-7)
