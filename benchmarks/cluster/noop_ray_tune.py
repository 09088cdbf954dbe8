"""Runs trials that do nothing with Ray Tune, on the running cluster at RAY_ADDRESS.

The first argument says whether actors are reused ("reuse") or each trial gets a new one ("fresh"). This script
runs in an environment of its own, so it imports nothing of this project. Its output is like that of
../noop_thriftune.py.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from ray import tune

SPACE = {
    "lr": tune.loguniform(1e-4, 1e-1),
    "width": tune.lograndint(16, 257),
    "act": tune.choice(["relu", "tanh"]),
}


def objective(config: dict[str, Any]) -> dict[str, float]:
    _ = config["lr"], config["width"], config["act"]
    return {"at": time.time()}


def main(actors: str, trials: int, folder: Path) -> None:
    called = time.time()
    tuner = tune.Tuner(
        tune.with_resources(objective, {"cpu": 1}),
        param_space=SPACE,
        tune_config=tune.TuneConfig(
            metric="at", mode="min", num_samples=trials, max_concurrent_trials=2, reuse_actors=actors == "reuse"
        ),
        run_config=tune.RunConfig(name="noop", storage_path=str(folder), verbose=0),
    )
    times = [result.metrics["at"] for result in tuner.fit()]
    print(json.dumps({"called": called, "times": times}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
