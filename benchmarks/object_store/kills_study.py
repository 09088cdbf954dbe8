"""Run or resume the study of kills.py. Its trials write down what they do, save, restore and report.

The script's argument is its settings as JSON. The state of a trial consists of several files of random bytes, new
each time that it is saved. So no two saved states are equal, and a mixture of two is none of them. A position
counts the halves of steps that are done. It is odd in the middle of a step.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import thriftune as tt
from thriftune.errors import StoreConflict, StudyBusy
from thriftune.launch.drive import resume
from thriftune.loop import study_checkpoints
from thriftune.show.progress import SilentView
from thriftune.store import heartbeat, shipper
from thriftune.store.opening import open_store
from thriftune.store.shipped_log import ShippedLogWriter

BUSY, TAKEN_OVER = 76, 77
"""Exit statuses: another driver lives; another driver has taken the study over."""

NAME = "killed"
TAG = "tag"
"""The metric that makes each report unique."""

FILES = 4
"""Files of a state whose content is new each time."""

PARTIAL_SHARE = 0.4
"""The share of steps in whose middle a trial saves."""

WITNESS, LIFE = "KILLS_WITNESS", "KILLS_LIFE"
"""Environment variables: the file to which trials write, and the number of the driver's process."""

STATE_BYTES, STEP_SECONDS = "KILLS_STATE_BYTES", "KILLS_STEP_SECONDS"


def train(trial: tt.Trial) -> None:
    """Train with a state that is saved after each step, and in the middle of some."""
    witness = os.open(os.environ[WITNESS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    file_bytes = int(os.environ[STATE_BYTES]) // FILES
    half_step_seconds = float(os.environ[STEP_SECONDS]) / 2
    reached = [0]  # the position of the state

    def say(what: str, **more: object) -> None:
        line = {"what": what, "trial": trial.id, "attempt": trial.attempt, "pid": os.getpid()}
        line |= {"life": int(os.environ[LIFE]), "position": reached[0], **more}
        os.write(witness, json.dumps(line).encode() + b"\n")

    def save(folder: Path) -> None:
        for number in range(FILES):
            (folder / f"weights{number}").write_bytes(os.urandom(file_bytes))
        (folder / "unchanged").write_bytes(bytes(file_bytes))
        (folder / "position").write_text(str(reached[0]))
        say("saved", digest=digest_of(folder))

    def load(folder: Path) -> None:
        reached[0] = int((folder / "position").read_text())
        say("restored", digest=digest_of(folder))

    step = trial.restore(load)
    say("began", told=2 * step + bool(trial.partial))
    for step in trial.steps():
        for position in (2 * step - 1, 2 * step):
            if position > reached[0]:
                time.sleep(half_step_seconds)
                reached[0] = position
                say("did")
                if position % 2 and random.random() < PARTIAL_SHARE:
                    trial.save(save)
        tag = random.getrandbits(50)
        trial.report({"loss": 1 / step, TAG: float(tag)}, save=save)
        say("reported", tag=tag)
    os.close(witness)


def digest_of(folder: Path) -> str:
    """Return a hash of all files of a state."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def show_shipping(mark: Path) -> None:
    """Make a file exist while this process ships entries of its log."""

    def marked(function: Callable[[ShippedLogWriter, int], None]) -> Callable[[ShippedLogWriter, int], None]:
        def ship(writer: ShippedLogWriter, entries: int) -> None:
            if entries > writer.shipped:
                mark.touch()
            try:
                function(writer, entries)
            finally:
                mark.unlink(missing_ok=True)

        return ship

    for name in ("start", "ship"):
        setattr(ShippedLogWriter, name, marked(getattr(ShippedLogWriter, name)))


def main(settings: dict[str, Any]) -> None:
    """Run the study, or resume it by its name, with the settings that kills.py wrote."""
    heartbeat.LIFETIME_SECONDS = settings["lifetime_seconds"]
    shipper.HEARTBEAT_SECONDS = settings["lifetime_seconds"] / 5  # type: ignore[attr-defined]
    # A busy machine must not make the driver give up.
    study_checkpoints._AT_START_SECONDS = study_checkpoints._LOOK_UP_SECONDS = 300.0
    show_shipping(Path(settings["mark"]))
    if settings["resume"]:
        with open_store(settings["store"]) as store:
            resume(NAME, store, SilentView())
        return
    tt.tune(
        train,
        {"x": tt.Float(0.0, 1.0)},
        minimize="loss",
        trials=settings["trials"],
        max_steps=settings["steps"],
        workers=2,
        retries=1000,
        searcher="random",
        stopping="none",
        seed=7,
        name=NAME,
        store=settings["store"],
        progress=False,
        system="off",
    )


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except StudyBusy:
        sys.exit(BUSY)
    except StoreConflict:
        sys.exit(TAKEN_OVER)
