"""How does a command talk to thriftune from the inside? By the trial it finds in its environment.

A process that runs as a trial's command may call `thriftune.current_trial()`, and has the same Trial there as a
training function is given; `thriftune.report(...)` is short for its report().
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from thriftune.engines.wire import to_line
from thriftune.errors import SettingError
from thriftune.events import Event, Reported
from thriftune.trial import Run, Trial

_RUN, _SOCKET = "THRIFTUNE_RUN", "THRIFTUNE_SOCKET"

NEXT_STEP = 0
"""A report with this step is about the step after the last one, whichever process reported that."""


class WorkerLink:
    """A command's end of its line to the worker that runs it. Every message is answered."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._told = False

    def send(self, event: Event) -> None:
        """Returns when the worker has made it safe."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
                line.connect(self._path)
                line.sendall(to_line(event))
                with line.makefile("rb") as answers:
                    answer = json.loads(answers.readline() or "{}")
        except OSError:
            answer = {}
        if "error" in answer or not answer:
            raise SettingError(answer.get("error", "the worker that runs this trial is gone"))
        self._told = answer["end"]

    def told_to_end(self) -> bool:
        return self._told

    def wait_for_answer(self, number: int, seconds: float) -> None:
        """The worker has, before it answered."""


def environment(run: Run, socket_path: str) -> dict[str, str]:
    """What a trial's command finds in its environment."""
    return {
        _RUN: json.dumps(asdict(replace(run, key=""))),  # which is the worker's alone
        _SOCKET: socket_path,
        "THRIFTUNE_TRIAL": str(run.trial),
        "THRIFTUNE_ATTEMPT": str(run.attempt),
        "THRIFTUNE_CONFIG": json.dumps(dict(run.config)),
        "THRIFTUNE_SEED": str(run.seed),
        "THRIFTUNE_MAX_STEPS": "" if run.max_steps is None else str(run.max_steps),
        "THRIFTUNE_CHECKPOINT_DIR": str(Path(run.folder) / "state"),
    }


@cache
def current_trial() -> Trial:
    """The trial that this process is the command of."""
    try:
        run = Run(**json.loads(os.environ[_RUN]))
        return Trial(run, WorkerLink(os.environ[_SOCKET]))
    except KeyError:
        raise SettingError(
            "this process is not a trial's command: report() and current_trial() work inside a command that "
            "thriftune runs; a training function has its trial as its argument"
        ) from None


def report(
    metrics: Mapping[str, float] | None = None,
    /,
    *,
    step: int | None = None,
    save: Callable[[Path], object] | None = None,
    **more: float,
) -> None:
    """Says how this command's trial stands after a step; see Trial.report."""
    current_trial().report(metrics, step=step, save=save, **more)


def report_next(at: float, metrics: Mapping[str, float], step: int | None) -> bool:
    """One report from a process that knows nothing of earlier ones. True: the trial is to end."""
    trial = current_trial()
    link = WorkerLink(os.environ[_SOCKET])
    link.send(Reported(at, trial.id, trial.attempt, 0, step or NEXT_STEP, dict(metrics)))
    return link.told_to_end()
