"""A study in an object store that is to be killed: each trial writes down what it saved, reported and restored."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import thriftune as tt
from thriftune.loop import study_checkpoints

TRIALS, STEPS = 4, 8
SPACE = {"x": tt.Float(0.0, 1.0)}


def train(trial: tt.Trial) -> None:
    """Train with a state that contains a random text, new at each step. So no two saved states are equal."""
    witness = os.open(os.environ["OBJECT_WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def say(what: str, **more: object) -> None:
        line = {"what": what, "trial": trial.id, "attempt": trial.attempt, "pid": os.getpid(), **more}
        os.write(witness, json.dumps(line).encode() + b"\n")

    state: dict[str, Any] = {"step": 0, "text": "", "unchanged": "u" * 4096}

    def save(folder: Path) -> None:
        for name, value in state.items():
            (folder / name).write_text(str(value))
        say("saved", step=state["step"], text=state["text"])

    def load(folder: Path) -> None:
        for name in state:
            state[name] = (folder / name).read_text()
        state["step"] = int(state["step"])
        say("restored", step=state["step"], text=state["text"])

    trial.restore(load)
    say("began", step=state["step"])
    for step in trial.steps():
        assert state["step"] == step - 1, "the restored state is not that of the step before"
        time.sleep(0.1)
        state["step"], state["text"] = step, os.urandom(8).hex()
        trial.report(loss=trial["x"] + 1 / step, save=save)
        say("reported", step=step)
    os.close(witness)


if __name__ == "__main__":
    # A busy machine must not make the driver give up.
    study_checkpoints._AT_START_SECONDS = study_checkpoints._LOOK_UP_SECONDS = 300.0
    tt.tune(
        train,
        SPACE,
        minimize="loss",
        trials=TRIALS,
        max_steps=STEPS,
        workers=2,
        stopping="none",
        searcher="random",
        system="off",
        seed=7,
        name="objects",
        store=Path(sys.argv[1]) / "studies.db",
        storage=sys.argv[2],
        progress=False,
    )
