"""Run short trials on the cluster of RAY_ADDRESS, and print the rate of trials as JSON.

Arguments: the settings of main() as JSON. The rate is that between the runs of the first and the last trial. It
excludes the start and the end of the study, which are in the seconds of the whole study.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import thriftune as tt

STATE_BYTES = 100_000


def train(trial: tt.Trial) -> None:
    for step in trial.steps():
        time.sleep(float(os.environ["SECONDS"]))
        trial.report(loss=trial["x"] / step, at=time.time(), save=save if os.environ["SAVES"] else None)


def save(folder: Path) -> None:
    (folder / "state").write_bytes(os.urandom(STATE_BYTES))


def main(folder: str, storage: str | None, trials: int, seconds: float, saves: bool) -> dict[str, Any]:
    """Run a study; return its rate of trials and its duration in seconds.

    - `storage`: an object store; None: the nodes see the folder.
    - `seconds`: the time that each trial sleeps.
    - `saves`: each trial saves a checkpoint of STATE_BYTES.
    """
    credentials = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    began = time.time()
    result = tt.tune(
        train,
        {"x": tt.Float(0.0, 1.0)},
        minimize="loss",
        max_steps=1,
        trials=trials,
        engine=tt.Ray(
            address=os.environ["RAY_ADDRESS"],
            variables={**credentials, "SECONDS": str(seconds), "SAVES": "yes" if saves else ""},
        ),
        searcher="random",
        stopping="none",
        seed=0,
        name=Path(folder).name,
        store=Path(folder) / "studies.db",
        storage=storage,
        progress=False,
    )
    took = time.time() - began
    times = [trial.reports[-1].metrics["at"] for trial in result.trials if trial.reports]
    if len(times) != trials:
        raise SystemExit(f"{len(times)} of {trials} trials have reported")
    return {"rate": (trials - 1) / (max(times) - min(times)), "seconds": took}


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
