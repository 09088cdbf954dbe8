"""Trials of nothing with thriftune. Prints the times at which the training functions ran, as JSON.

All noop_*.py do the same task: three parameters, random search, 2 workers, results on disk. The objective reads
the clock and returns it, so that the same thing is measured in every system: from the moment the first trial ran
to the moment the last one did. Start-up and the end of the last trial are left out for all alike.

With `ray` as the first argument, on the cluster of RAY_ADDRESS; then it also prints when it called tune().
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import thriftune as tt
from thriftune.space.parameters import Parameter

SPACE: dict[str, Parameter] = {
    "lr": tt.Float(1e-4, 1e-1, log=True),
    "width": tt.Int(16, 256, log=True),
    "act": tt.Choice(["relu", "tanh"]),
}


def objective(trial: tt.Trial) -> float:
    _ = trial["lr"], trial["width"], trial["act"]
    return time.time()


def main(trials: int, folder: Path, *, on_ray: bool) -> None:
    called = time.time()
    result = tt.tune(
        objective,
        SPACE,
        minimize="at",
        trials=trials,
        workers=2,
        engine=tt.Ray(address=os.environ["RAY_ADDRESS"]) if on_ray else "local",
        searcher="random",
        seed=0,
        name="noop",
        store=folder / "studies.db",
        progress=False,
    )
    times = [trial.value for trial in result.trials if trial.value is not None]
    print(json.dumps({"called": called, "times": times} if on_ray else times))


if __name__ == "__main__":
    *where, number, to = sys.argv[1:]
    if where not in ([], ["ray"]):
        raise SystemExit(f"{where}: only 'ray' can come first")
    main(int(number), Path(to), on_ray=bool(where))
