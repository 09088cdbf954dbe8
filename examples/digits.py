"""Tunes a small neural network on scikit-learn's handwritten digits, on this machine's cores.

    python examples/digits.py --store out/studies.db --plot out/digits.png

Kill it at any time and run it again: it goes on where it was. `thriftune show digits --store out/studies.db` looks
at it, also while it runs. It ends with the best network, which it loads, its configuration and where it is saved.
"""

from __future__ import annotations

import argparse
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import thriftune as tt

SPACE = {
    "lr": tt.Float(1e-4, 1e-1, log=True),
    "width": tt.Int(8, 256, log=True),
    "batch": tt.Choice([16, 64, 256]),
    "alpha": tt.Float(1e-6, 1e-1, log=True),
    "act": tt.Choice(["relu", "tanh"]),
}


@cache
def digits() -> Any:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    return train_test_split(images / 16.0, labels, test_size=0.3, random_state=0, stratify=labels)


def train(trial: tt.Trial) -> None:
    from sklearn.metrics import log_loss
    from sklearn.neural_network import MLPClassifier

    train_x, val_x, train_y, val_y = digits()
    net = MLPClassifier(
        hidden_layer_sizes=(trial["width"],),
        activation=trial["act"],
        learning_rate_init=trial["lr"],
        batch_size=trial["batch"],
        alpha=trial["alpha"],
        random_state=trial.seed,
    )

    def save(folder: Path) -> None:
        (folder / "net.pickle").write_bytes(pickle.dumps(net))

    def load(folder: Path) -> None:
        nonlocal net
        net = saved_network(folder)

    trial.restore(load)
    for _ in trial.steps():
        net.partial_fit(train_x, train_y, classes=range(10))
        trial.report(
            val_loss=log_loss(val_y, net.predict_proba(val_x)),
            val_accuracy=net.score(val_x, val_y),
            save=save,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Tunes a small network on scikit-learn's digits.")
    parser.add_argument("--store", type=Path, default="out/studies.db")
    parser.add_argument("--trials", type=int, default=96)
    parser.add_argument("--max-steps", type=int, default=40)
    parser.add_argument("--plot", type=Path, help="Draw the learning curves into this file (needs matplotlib).")
    options = parser.parse_args()

    result = tt.tune(
        train,
        SPACE,
        minimize="val_loss",
        trials=options.trials,
        max_steps=options.max_steps,
        seed=0,
        name="digits",
        store=options.store,
    )
    if options.plot is not None:
        options.plot.parent.mkdir(parents=True, exist_ok=True)
        result.plot().savefig(options.plot)
    best = result.best
    net = best.load(saved_network)
    _, val_x, _, val_y = digits()
    accuracy = net.score(val_x, val_y)
    print(f"best model   validation loss {best.value:.4f}, accuracy {accuracy:.1%} (trial {best.id})")
    for name, value in best.config.items():
        print(f"             {name} = {value}")
    print(f"saved in     {best.checkpoint}")
    print(f"cost         {result.cost}")
    if options.plot is not None:
        print(f"picture      {options.plot}")
    print(f"look closer  thriftune show {result.name} --store {options.store}")


def saved_network(folder: Path) -> Any:
    """Return the network that a trial has saved in a folder."""
    return pickle.loads((folder / "net.pickle").read_bytes())


if __name__ == "__main__":
    main()
