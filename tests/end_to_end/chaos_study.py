"""A study to be killed: every trial writes down what it did, in a file that nobody in thriftune touches."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import thriftune as tt

TRIALS, STEPS = 300, 6
SPACE = {"x": tt.Float(0.0, 1.0), "k": tt.Int(1, 100), "c": tt.Choice(["a", "b", "c"])}


def train(trial: tt.Trial) -> None:
    """Carries its state in a checkpoint every other step, and says in the witness file what came to pass."""
    witness = os.open(os.environ["CHAOS_WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def say(what: str, **more: object) -> None:
        line = {"what": what, "trial": trial.id, "attempt": trial.attempt, "pid": os.getpid(), **more}
        os.write(witness, json.dumps(line).encode() + b"\n")

    state = [0]

    def save(folder: Path) -> None:
        (folder / "state").write_text(str(state[0]))

    def load(folder: Path) -> None:
        state[0] = int((folder / "state").read_text())

    trial.restore(load)
    say("begins", after=state[0])
    for step in trial.steps():
        assert state[0] == step - 1, "the restored state is not that of the step before"
        time.sleep(0.01)
        state[0] = step
        saves = step % 2 == 0
        trial.report(loss=trial["x"] + 1 / step, save=save if saves else None)
        say("reported", step=step, saved=saves)
    os.close(witness)


if __name__ == "__main__":
    tt.tune(
        train,
        SPACE,
        minimize="loss",
        trials=TRIALS,
        max_steps=STEPS,
        workers=2,
        retries=0,
        searcher=sys.argv[2],
        stopping="none",
        seed=7,
        name="chaos",
        store=Path(sys.argv[1]) / "studies.db",
        progress=False,
    )
