"""Trials of nothing with thriftune on a Ray cluster that runs, that of RAY_ADDRESS.

Prints as JSON when it called tune(), and when the training functions ran. See
benchmarks/noop_thriftune.py for the task.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import thriftune as tt
from thriftune.parameters import Parameter

SPACE: dict[str, Parameter] = {
    "lr": tt.Float(1e-4, 1e-1, log=True),
    "width": tt.Int(16, 256, log=True),
    "act": tt.Choice(["relu", "tanh"]),
}


def objective(trial: tt.Trial) -> float:
    _ = trial["lr"], trial["width"], trial["act"]
    return time.time()


def main(trials: int, folder: Path) -> None:
    called = time.time()
    result = tt.tune(
        objective,
        SPACE,
        minimize="at",
        trials=trials,
        workers=2,
        engine=tt.Ray(address=os.environ["RAY_ADDRESS"]),
        searcher="random",
        seed=0,
        name="noop",
        store=folder / "studies.db",
        progress=False,
    )
    times = [trial.value for trial in result.trials if trial.value is not None]
    print(json.dumps({"called": called, "times": times}))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
