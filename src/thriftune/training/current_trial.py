"""How does a command talk to thriftune from the inside? By the trial it finds in its environment.

A process that runs as a trial's command may call `thriftune.current_trial()`, and has the same Trial there as a
training function is given; `thriftune.report(...)` is short for its report().
"""

from __future__ import annotations

import _thread
import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from thriftune.errors import SettingError
from thriftune.space.values import value_from_json, value_to_json
from thriftune.state.events import Config, Event, Reported
from thriftune.training.messages import to_line
from thriftune.training.run import COUNTED, Link, Run
from thriftune.training.step_numbers import StepNumbers
from thriftune.training.trial import Trial

_RUN, _SOCKET = "THRIFTUNE_RUN", "THRIFTUNE_SOCKET"
_CONFIG, _CONFIG_FILE = "THRIFTUNE_CONFIG", "THRIFTUNE_CONFIG_FILE"  # one of them is empty

_CONFIG_BYTES = 65_536
"""The longest configuration that is in the environment. Linux takes 131,072 bytes a variable at most."""


class WorkerLink:
    """A command's end of its line to the worker that runs it. Every message is answered."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._told = False

    def send(self, event: Event) -> int:
        """Returns 0 when the worker, which numbers reports itself, has made the event safe.

        Talks on a thread of its own, where no signal handler runs: one that reports as well would keep the worker
        waiting for the rest of this message.
        """
        answers: list[dict[str, Any]] = []
        done = _thread.allocate_lock()
        done.acquire()

        def exchange() -> None:
            try:
                answers.append(self._exchange(to_line(event)))
            finally:
                done.release()

        _thread.start_new_thread(exchange, ())
        done.acquire()
        answer = answers[0] if answers else {}
        if "error" in answer or not answer:
            raise SettingError(answer.get("error", "the worker that runs this trial is gone"))
        self._told = answer["end"]
        return 0

    def _exchange(self, message: bytes) -> dict[str, Any]:
        """Returns the worker's answer; empty where it is gone."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
                line.connect(self._path)
                line.sendall(message)
                with line.makefile("rb") as answers:
                    return json.loads(answers.readline() or "{}")  # type: ignore[no-any-return]
        except OSError:
            return {}

    def told_to_end(self) -> bool:
        return self._told

    def wait_for_answer(self, number: int, seconds: float) -> None:
        """The worker has, before it answered."""


def environment(run: Run, socket_path: str) -> dict[str, str]:
    """Return what a trial's command finds in its environment.

    A configuration that is too long for it is written to a file in the trial's folder, and so is the run.
    """
    places = placeholders(run)
    config, config_file = json.dumps(dict(run.config)), ""
    # The key is the worker's alone. JSON has no tuples: here is which values are some.
    about = json.dumps(asdict(replace(run, key="", config=_tuples(run.config))))
    folder = Path(run.folder).absolute()  # which the trial's workers share
    if len(config) > _CONFIG_BYTES:
        config_file = str(folder / f"config-{run.rank}.json")
        Path(config_file).write_text(config)
        config = ""
    if len(about) > _CONFIG_BYTES:
        about_file = folder / f"run-{run.rank}.json"
        about_file.write_text(about)
        about = str(about_file)
    return {
        _RUN: about,
        _SOCKET: socket_path,
        "THRIFTUNE_TRIAL": str(run.trial),
        "THRIFTUNE_ATTEMPT": str(run.attempt),
        _CONFIG: config,
        _CONFIG_FILE: config_file,
        "THRIFTUNE_SEED": str(run.seed),
        "THRIFTUNE_MAX_STEPS": "" if run.max_steps is None else str(run.max_steps),
        "THRIFTUNE_CHECKPOINT_DIR": places["checkpoint"],
        "THRIFTUNE_FOLDER": places["folder"],
    }


def placeholders(run: Run) -> dict[str, str]:
    """Return the values of those placeholders of a command that are no parameters."""
    folder = Path(run.folder).absolute()
    return {
        "trial": str(run.trial),
        "seed": str(run.seed),
        "folder": str(folder),
        "checkpoint": str(folder / "state"),
    }


class CommandTrial(Trial):
    """A trial whose steps may be told from 0, as a loop of the command counts them."""

    def __init__(self, run: Run, link: Link) -> None:
        super().__init__(run, link)
        self.warns_past_end = False
        self.numbers = StepNumbers(run.folder)

    def _step_of(self, given: int | None) -> int:
        if isinstance(given, int) and not isinstance(given, bool):
            if given == 0 and self.last_step and not self.numbers.from_zero:
                self.numbers.counted()
            given = self.numbers.step_of(given)
        return super()._step_of(given)


def _tuples(config: Config) -> Config:
    """Return those values that are or hold tuples, as written() marks them."""
    return {name: marked for name, value in config.items() if (marked := value_to_json(value)) != value}


@cache
def current_trial() -> CommandTrial:
    """Return the trial that this process is the command of."""
    try:
        config = json.loads(os.environ[_CONFIG] or Path(os.environ[_CONFIG_FILE]).read_text())
        about = os.environ[_RUN]
        run = Run(**json.loads(about if about.startswith("{") else Path(about).read_text()))
        tuples = {name: value_from_json(value) for name, value in run.config.items()}
        run = replace(run, config={name: tuples.get(name, value) for name, value in config.items()})
        return CommandTrial(run, WorkerLink(os.environ[_SOCKET]))
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
    """Sends one report from a process that knows nothing of earlier ones; returns whether the trial is to end."""
    trial = current_trial()
    link = WorkerLink(os.environ[_SOCKET])
    number = COUNTED if step is None else 0
    of_trial = 1 if step is None else trial.numbers.step_of(step)
    link.send(Reported(at, trial.id, trial.attempt, number, of_trial, dict(metrics)))
    return link.told_to_end()
