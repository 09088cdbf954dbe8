"""A study on a Ray cluster that is to lose machines: each trial writes down, in its folder, what it did.

Run as a script, with its settings as JSON: where its store is, which cluster, and what is told to trials by
variables of the environment.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import thriftune as tt

NAME = "lossy"


def train(trial: tt.Trial) -> None:
    """Saves every so many steps. The first of its workers says what came to pass."""
    every, seconds = int(os.environ["TEST_SAVE_EVERY"]), float(os.environ["TEST_STEP_SECONDS"])
    state = [0]
    witnesses = os.environ["TEST_WITNESSES"]
    witness_file = Path(witnesses, str(trial.id)) if witnesses else trial.folder / "witness"

    def say(what: str, **more: object) -> None:
        if trial.rank == 0:
            line = {"what": what, "attempt": trial.attempt, "at": time.time()}
            with witness_file.open("a") as witness:
                witness.write(json.dumps({**line, **more}) + "\n")

    def save(folder: Path) -> None:
        (folder / "state").write_text(str(state[0]))

    def load(folder: Path) -> None:
        state[0] = int((folder / "state").read_text())

    trial.restore(load)
    say("begins", after=state[0], workers=trial.world_size)
    for step in trial.steps():
        assert state[0] == step - 1, "the restored state is not that of the step before"
        time.sleep(seconds)
        state[0] = step
        say("did", step=step)
        saves = step % every == 0
        trial.report(loss=trial["x"] + 1 / step, save=save if saves else None)
        say("reported", step=step, saved=saves)


def main(given: dict[str, Any]) -> None:
    ray: dict[str, Any] = {"address": given["address"], "variables": given["variables"], **given.get("ray", {})}
    tt.tune(
        train,
        {"x": tt.Float(0.0, 1.0)},
        minimize="loss",
        trials=given["trials"],
        max_steps=given["steps"],
        retries=0,
        searcher="random",
        stopping="none",
        seed=7,
        name=NAME,
        store=given["store"],
        storage=given["storage"],
        progress=given.get("progress", False),
        engine=tt.Ray(**ray),
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
