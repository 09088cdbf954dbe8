"""Run no-op trials with thriftune, and print the times at which the training functions ran, as JSON.

All noop_*.py do the same task: three parameters, random search, 2 workers, results on disk. The objective returns
the time, so every system is measured in the same way: from the run of the first trial to the run of the last one.
This excludes the start of the system and the end of the last trial.

With `ray` as the first argument, the trials run on the cluster of RAY_ADDRESS, and the script also prints when it
called tune().
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
    *engine, trial_count, output = sys.argv[1:]
    if engine not in ([], ["ray"]):
        raise SystemExit(f"{engine}: the first argument must be 'ray' or the number of trials")
    main(int(trial_count), Path(output), on_ray=bool(engine))
