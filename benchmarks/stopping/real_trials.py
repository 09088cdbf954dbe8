"""Measures what rules save on real trials: the digits example, trained on this machine with and without rules.

The same random configurations each time, a study a seed. Rules that set trials aside take them up again from the
checkpoints that the example saves. As good as without a rule: the best validation loss, averaged over the seeds,
is at most as much higher as that of one configuration differs from one training to the next.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import thriftune as tt
from benchmarks.common import ROOT, Row, main, say

RULES: dict[str, Any] = {
    "none": "none",
    "asha": "asha",
    "asha, set aside": tt.stopping.ASHA(how="pause"),
    "median": "median",
    "auto": "auto",
}
TRIALS, STEPS, SEEDS, AGAIN = 48, 40, 3, 6
BAR = 0.4


def measure(options: argparse.Namespace) -> list[Row]:
    example = _example()
    trials, steps, seeds = (3, 2, 1) if options.quick else (TRIALS, STEPS, SEEDS)
    found: dict[str, list[tuple[float, int]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(seeds):
            for name, rule in RULES.items():
                result = tt.tune(
                    example.train,
                    example.SPACE,
                    minimize="val_loss",
                    trials=trials,
                    max_steps=steps,
                    searcher="random",
                    stopping=rule,
                    seed=seed,
                    name=f"{name.replace(', ', '-').replace(' ', '-')}-{seed}",
                    store=Path(folder) / "s.db",
                    progress=False,
                )
                done = sum(len(trial.reports) for trial in result.trials)
                found.setdefault(name, []).append((float(result.best.value or 0.0), done))
                say(f"seed {seed}, {name}: best {result.best.value:.4f}, {done} steps")
        noise = _noise(example, result.best.config, steps, 2 if options.quick else AGAIN, Path(folder))
    rows = [Row("noise of the best validation loss from one training to the next", f"{noise:.4f}")]
    whole = np.array(found["none"])
    for name, values in found.items():
        told = np.array(values)
        share = float(told[:, 1].sum() / whole[:, 1].sum())
        worse = float((told[:, 0] - whole[:, 0]).mean())
        figure = f"best loss {told[:, 0].mean():.4f} ({worse:+.4f}), {share:.0%} of the steps"
        judged = name.startswith("asha") and not options.quick
        met = share <= BAR and worse <= noise if judged else None
        bar = f"at most {BAR:.0%} of the steps, the loss within the noise" if name.startswith("asha") else ""
        rows.append(Row(f"digits, {trials} trials of {steps} steps, {seeds} seeds: {name}", figure, bar, met))
    return rows


def _example() -> ModuleType:
    """Import the example by name, so that workers find it, too."""
    sys.path.insert(0, str(ROOT / "examples"))
    return importlib.import_module("digits")


def _noise(example: ModuleType, config: Any, steps: int, again: int, folder: Path) -> float:
    """Return the standard deviation of the final validation loss over repeated trainings of a configuration."""
    space = {name: tt.Choice([value]) for name, value in config.items()}
    result = tt.tune(
        example.train,
        space,
        minimize="val_loss",
        trials=again,
        max_steps=steps,
        searcher="random",
        stopping="none",
        seed=0,
        name="again",
        store=folder / "s.db",
        progress=False,
    )
    return float(np.std([trial.value for trial in result.trials if trial.value is not None], ddof=1))


if __name__ == "__main__":
    raise SystemExit(main(measure))
