"""Two small networks that read digits: a plain convolutional one and a residual one, in torch.

A step is an epoch: so many of scikit-learn's 8 x 8 images, each moved and made noisy in another way every time.
After `drop_epoch` epochs the learning rate drops, and the curve goes on at another level.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import thriftune as tt

SAVE_EVERY = 10
TRAIN_IMAGES, EPOCH_IMAGES = 1200, 640
PIXELS, NOISE = 12, 0.25
RESIDUAL_RATE, RESIDUAL_DROP = 3e-3, 0.1


def train_convolutional(trial: tt.Trial) -> None:
    """Layers as AlexNet has them: convolutions, each with its pooling, and then dense ones."""
    torch.manual_seed(trial.seed)
    layers: list[nn.Module] = []
    for before, after in ((1, 8), (8, 16)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    net = nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(16 * (PIXELS // 4) ** 2, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    _train(trial, net, trial["lr"], trial["drop"])


def train_residual(trial: tt.Trial) -> None:
    """Residual blocks as ResNet has them, of its first or its second version."""
    torch.manual_seed(trial.seed)
    blocks = [_Block(8, trial["version"]) for _ in range(trial["blocks"])]
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.MaxPool2d(2),
        *blocks,
        nn.Flatten(),
        nn.Linear(8 * (PIXELS // 2) ** 2, 10),
    )
    _train(trial, net, RESIDUAL_RATE, RESIDUAL_DROP)


class _Block(nn.Module):  # type: ignore[misc]
    """Version 1 normalises what a convolution gives, version 2 what it takes."""

    def __init__(self, channels: int, version: int) -> None:
        super().__init__()
        self.version = version
        self.convolutions = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        (first, second), (norm, other) = self.convolutions, self.norms
        if self.version == 1:
            return functional.relu(x + other(second(functional.relu(norm(first(x))))))
        changed: Tensor = second(functional.relu(other(first(functional.relu(norm(x))))))
        return x + changed


def _train(trial: tt.Trial, net: nn.Module, rate: float, drop: float) -> None:
    """By Adam, on the cross entropy; reports that of images the network is never trained on."""
    images, labels, val_images, val_labels = _digits()
    adam = torch.optim.Adam(net.parameters(), lr=rate)

    def save(folder: Path) -> None:
        torch.save([net.state_dict(), adam.state_dict()], folder / "state.pt")

    def load(folder: Path) -> None:
        net_state, adam_state = torch.load(folder / "state.pt")
        net.load_state_dict(net_state)
        adam.load_state_dict(adam_state)

    trial.restore(load)
    for epoch in trial.steps():
        for group in adam.param_groups:
            group["lr"] = rate * (drop if epoch > trial["drop_epoch"] else 1.0)
        rng = np.random.default_rng((trial.seed, epoch))
        chosen = rng.permutation(TRAIN_IMAGES)[:EPOCH_IMAGES]
        seen = torch.from_numpy(_disturbed(images[chosen], rng))
        net.train()
        for start in range(0, EPOCH_IMAGES, trial["batch"]):
            rows = slice(start, start + trial["batch"])
            adam.zero_grad()
            loss: Any = functional.cross_entropy(net(seen[rows]), labels[chosen[rows]])
            loss.backward()
            adam.step()
        net.eval()
        with torch.no_grad():
            loss = functional.cross_entropy(net(val_images), val_labels)
        trial.report(cross_entropy=loss.item(), save=save if epoch % SAVE_EVERY == 0 else None)


@cache
def _digits() -> tuple[Any, Tensor, Tensor, Tensor]:
    """Images and labels to train on, and those to validate on, which are disturbed once and for all."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(5)
    order = rng.permutation(len(labels))
    images = (pixels[order] / 16.0).astype(np.float32).reshape(-1, 8, 8)
    told = torch.from_numpy(labels[order])
    held = torch.from_numpy(_disturbed(images[TRAIN_IMAGES:], rng))
    return images[:TRAIN_IMAGES], told[:TRAIN_IMAGES], held, told[TRAIN_IMAGES:]


def _disturbed(images: Any, rng: np.random.Generator) -> Any:
    """Each somewhere on a larger ground, under noise."""
    ground = rng.normal(0.0, NOISE, (len(images), 1, PIXELS, PIXELS)).astype(np.float32)
    for place, image, (down, right) in zip(
        ground, images, rng.integers(PIXELS - 7, size=(len(images), 2)), strict=True
    ):
        place[0, down : down + 8, right : right + 8] += image
    return ground
