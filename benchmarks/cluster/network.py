"""A training function for the benchmarks: a network with two wide layers, and any number of workers."""

from __future__ import annotations

import os
from pathlib import Path

from thriftune.training.trial import Trial

BATCH = 512
WIDTH = int(os.environ.get("BENCHMARK_WIDTH", "1024"))
BATCHES_A_STEP = int(os.environ.get("BENCHMARK_BATCHES", "8"))


def train(trial: Trial) -> None:
    import numpy as np
    import torch
    from sklearn.datasets import load_digits
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    here = trial.distributed(backend="gloo")
    torch.manual_seed(trial.seed)
    digits = load_digits()
    x = torch.tensor(digits.data / 16.0, dtype=torch.float32)
    y = torch.tensor(digits.target)
    held_out = slice(0, 300)
    bare = torch.nn.Sequential(
        torch.nn.Linear(64, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(),
        torch.nn.Linear(WIDTH, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(bare.parameters(), lr=trial["lr"], momentum=trial["momentum"])

    def save(folder: Path) -> None:
        torch.save({"model": bare.state_dict(), "optimizer": optimizer.state_dict()}, folder / "state.pt")

    def load(folder: Path) -> None:
        state = torch.load(folder / "state.pt")
        bare.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    trial.restore(load)
    model = DistributedDataParallel(bare) if here.size > 1 else bare
    for step in trial.steps():
        rng = np.random.default_rng((trial.seed, step))
        for _ in range(BATCHES_A_STEP):
            batch = rng.integers(300, len(x), BATCH)
            optimizer.zero_grad()
            for piece in trial.pieces(BATCH):
                mine = torch.as_tensor(batch[piece.part])
                loss = torch.nn.functional.cross_entropy(model(x[mine]), y[mine])
                (loss * piece.weight).backward()
            optimizer.step()
        with torch.no_grad():
            held = torch.nn.functional.cross_entropy(bare(x[held_out]), y[held_out])
        trial.report(loss=held.item(), save=save)
