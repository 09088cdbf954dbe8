"""Make and train the workloads' networks in torch, which is imported with this module."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import thriftune as tt

if TYPE_CHECKING:
    from benchmarks.system.workloads import Split

ASCII = 128
EMBEDDING = 32


def train_lenet(trial: tt.Trial, split: Split, examples: int) -> None:
    """Train LeNet-5 as it is built today, with rectifiers and maximum pooling, on N x 28 x 28 pixels."""
    torch.manual_seed(trial.seed)
    net = nn.Sequential(
        nn.Unflatten(1, (1, 28)),
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Flatten(),
        *(nn.Linear(400, 120), nn.ReLU(), nn.Dropout(trial["dropout"])),
        *(nn.Linear(120, 84), nn.ReLU(), nn.Dropout(trial["dropout"])),
        nn.Linear(84, 10),
    )
    sgd = torch.optim.SGD(net.parameters(), lr=trial["lr"], momentum=trial["momentum"])
    _descend(trial, net, sgd, split, examples)


def train_characters(trial: tt.Trial, split: Split, examples: int) -> None:
    torch.manual_seed(trial.seed)
    net = _Characters(trial["hidden"])
    _descend(trial, net, torch.optim.Adam(net.parameters(), lr=trial["lr"]), split, examples)


class _Characters(nn.Module):  # type: ignore[misc]
    """Maps N x length characters to N x characters x length scores of the next character."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(ASCII, EMBEDDING)
        self.gru = nn.GRU(EMBEDDING, hidden, batch_first=True)
        self.scores = nn.Linear(hidden, ASCII)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.gru(self.embedding(x))
        scores: Tensor = self.scores(states)
        return scores.transpose(1, 2)


def _descend(
    trial: tt.Trial, net: nn.Module, optimizer: torch.optim.Optimizer, split: Split, examples: int
) -> None:
    """Train on `examples` examples an epoch, drawn anew for each; report the accuracy on validation data."""
    x, y, val_x, val_y = (torch.from_numpy(part) for part in split)

    def save(folder: Path) -> None:
        torch.save([net.state_dict(), optimizer.state_dict()], folder / "state.pt")

    def load(folder: Path) -> None:
        net_state, optimizer_state = torch.load(folder / "state.pt")
        net.load_state_dict(net_state)
        optimizer.load_state_dict(optimizer_state)

    trial.restore(load)
    for epoch in trial.steps():
        rng = np.random.default_rng((trial.seed, epoch))
        torch.manual_seed(int(rng.integers(2**32)))  # for dropout; the same after a resume
        net.train()
        order = torch.from_numpy(rng.permutation(len(x))[:examples])
        for start in range(0, len(order), trial["batch_size"]):
            rows = order[start : start + trial["batch_size"]]
            optimizer.zero_grad()
            loss: Any = functional.cross_entropy(net(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            right = net(val_x).argmax(dim=1) == val_y
        trial.report(accuracy=right.double().mean().item(), save=save)
