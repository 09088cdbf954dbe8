"""Run the study of kills.py. Its trials report from several threads, and write down each report that returned.

The script's argument is its settings as JSON. Only trials write to the witness file: one line after each
`report()` that has returned.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import thriftune as tt
from thriftune.errors import StudyInterrupted

INTERRUPTED = 75
"""The exit status after SIGTERM, when the study can be resumed."""

NAME = "killed"

TAG = "tag"
"""The metric that makes each report of an attempt unique."""

THREADS, STEPS, TRIALS = 3, 9, 40
STEP_SECONDS = 0.03


def train(trial: tt.Trial) -> None:
    """Report each step from several threads, and then once more with a checkpoint."""
    witness = os.open(os.environ["KILLS_WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    last_step = [0]

    def write(**line: object) -> None:
        common = {"trial": trial.id, "attempt": trial.attempt, "pid": os.getpid()}
        os.write(witness, json.dumps(common | line).encode() + b"\n")

    def save(folder: Path) -> None:
        (folder / "step").write_text(str(last_step[0]))

    def load(folder: Path) -> None:
        last_step[0] = int((folder / "step").read_text())

    def report(thread: int, step: int) -> None:
        tag = step * THREADS + thread
        trial.report({"loss": trial["x"] + 1 / step, TAG: float(tag)})
        write(tag=tag)

    trial.restore(load)
    write()
    for step in trial.steps():
        time.sleep(STEP_SECONDS)
        threads = [threading.Thread(target=report, args=(thread, step)) for thread in range(THREADS)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        last_step[0] = step
        trial.report(loss=trial["x"] + 1 / step, save=save)
    os.close(witness)


def main(settings: dict[str, Any]) -> None:
    """Run or resume the study with the settings that kills.py wrote."""
    ray = {"address": settings["address"], "variables": settings["variables"]}
    tt.tune(
        train,
        {"x": tt.Float(0.0, 1.0)},
        minimize="loss",
        trials=TRIALS,
        max_steps=STEPS,
        workers=2,
        retries=100,
        searcher="random",
        stopping=settings["rule"],
        seed=7,
        name=NAME,
        store=settings["store"],
        progress=False,
        system="off",
        engine=tt.Ray(**ray) if settings["address"] else "local",
    )


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except StudyInterrupted:
        sys.exit(INTERRUPTED)
