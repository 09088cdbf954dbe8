"""Trials of nothing with Ray Tune, with what its documentation says makes it fast: warm actors that are reused,
no loggers beside its own experiment state, no output.

See noop_thriftune.py for the task. It runs in an environment of its own, so it imports nothing of this project.
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

# Read by Ray on import. Without the CSV, JSON and TensorBoard files, its experiment state alone is its record.
os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_DEDUP_LOGS"] = "0"

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


def run(name: str, trials: int, folder: Path) -> list[float]:
    tuner = tune.Tuner(
        tune.with_resources(objective, {"cpu": 1}),
        param_space=SPACE,
        tune_config=tune.TuneConfig(
            metric="at", mode="min", num_samples=trials, max_concurrent_trials=2, reuse_actors=True
        ),
        run_config=tune.RunConfig(name=name, storage_path=str(folder), verbose=0),
    )
    return [result.metrics["at"] for result in tuner.fit()]


def main(trials: int, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ray-") as scratch:  # its sockets need a short path
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=scratch,
        )
        try:
            run("warm-up", 4, folder)
            times = run("noop", trials, folder)
        finally:
            ray.shutdown()
    print(json.dumps(times))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
