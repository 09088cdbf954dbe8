"""Trials of nothing with thriftune. Prints the times at which the training functions ran, as JSON.

All noop_*.py do the same task: three parameters, random search, 2 workers, results on disk. The objective reads
the clock and returns it, so that the same thing is measured in every system: from the moment the first trial ran
to the moment the last one did. Start-up and the end of the last trial are left out for all alike.
"""

from __future__ import annotations

import json
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
    result = tt.tune(
        objective,
        SPACE,
        minimize="at",
        trials=trials,
        workers=2,
        searcher="random",
        seed=0,
        name="noop",
        store=folder / "studies.db",
        progress=False,
    )
    print(json.dumps([trial.value for trial in result.trials if trial.value is not None]))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
