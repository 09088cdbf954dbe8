"""Run no-op trials with Ray Tune, on actors that are reused ("reuse") or with a new actor per trial ("fresh").

See noop_thriftune.py for the task. This script runs in Ray's environment and imports nothing of this project.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import ray
from ray import tune

SPACE = {
    "lr": tune.loguniform(1e-4, 1e-1),
    "width": tune.lograndint(16, 257),
    "act": tune.choice(["relu", "tanh"]),
}


def objective(config: dict[str, Any]) -> dict[str, float]:
    _ = config["lr"], config["width"], config["act"]
    return {"at": time.time()}


def run(name: str, trials: int, folder: Path, *, reuse: bool) -> list[float]:
    tuner = tune.Tuner(
        tune.with_resources(objective, {"cpu": 1}),
        param_space=SPACE,
        tune_config=tune.TuneConfig(
            metric="at", mode="min", num_samples=trials, max_concurrent_trials=2, reuse_actors=reuse
        ),
        run_config=tune.RunConfig(name=name, storage_path=str(folder), verbose=0),
    )
    return [result.metrics["at"] for result in tuner.fit()]


def main(actors: str, trials: int, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ray-") as scratch:  # Ray's sockets need a short path
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=scratch,
        )
        try:
            run("warm-up", 4, folder, reuse=actors == "reuse")
            times = run("noop", trials, folder, reuse=actors == "reuse")
        finally:
            ray.shutdown()
    print(json.dumps(times))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
