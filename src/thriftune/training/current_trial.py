"""The trial of a command: the process finds it in its environment.

A process that runs as a trial's command may call `thriftune.current_trial()`. It returns a Trial like the one that
a training function gets. `thriftune.report(...)` calls the report() of this trial.
"""

from __future__ import annotations

import _thread
import json
import os
import socket
import time as clock
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from thriftune.errors import SettingError
from thriftune.space.values import value_from_json, value_to_json
from thriftune.state.events import Config, Event, Reported
from thriftune.training.messages import saved_message, to_line
from thriftune.training.run import COUNTED, Link, Run
from thriftune.training.snapshots import write_state
from thriftune.training.step_numbers import StepNumbers
from thriftune.training.trial import Trial
from thriftune.training.trial_checkpoints import Restored, Share, TrialCheckpoints

_RUN, _SOCKET = "THRIFTUNE_RUN", "THRIFTUNE_SOCKET"
_CONFIG, _CONFIG_FILE = "THRIFTUNE_CONFIG", "THRIFTUNE_CONFIG_FILE"  # one of the two is empty

_RESTORED, _SCRATCH = "THRIFTUNE_RESTORED", "THRIFTUNE_SCRATCH"  # empty without an object store

_CONFIG_BYTES = 65_536
"""The longest configuration that is put into the environment. Linux allows 131,072 bytes a variable."""


class WorkerLink:
    """The link of a command's trial to the worker that runs the command; the worker answers every message."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._end = False
        self._preempted_at: float | None = None  # in monotonic seconds
        self._saved: tuple[int, Path] | None = None  # a step whose state is sent along with its report

    def send(self, event: Event) -> int:
        """Send an event, and return 0 once the worker has recorded it. The worker numbers reports itself."""
        message = to_line(event)
        if type(event) is Reported and self._saved is not None and self._saved[0] == event.step:
            message = self._take_saved(None) + message
        self._send(message)
        return 0

    def save_with_report(self, step: int, folder: Path) -> None:
        """Send this state along with the report of its step, to be uploaded by the worker."""
        self._saved = step, folder

    def send_saved(self, *, partial: bool = False) -> None:
        """Send the state that was not sent with a report, if there is one."""
        if self._saved is not None:
            self._send(self._take_saved(self._saved[0], partial=partial))

    def _take_saved(self, step: int | None, *, partial: bool = False) -> bytes:
        """Return the message about the state. `step`: None if the message of its report follows."""
        assert self._saved is not None
        (_, folder), self._saved = self._saved, None
        return saved_message(folder, step, partial=partial)

    def _send(self, message: bytes) -> None:
        """Send a message, and wait for the answer.

        Uses a thread, in which no signal handler runs. A handler that reports as well would otherwise interrupt
        this message in the middle, and the worker would wait for its rest.
        """
        answers: list[dict[str, Any]] = []
        done = _thread.allocate_lock()
        done.acquire()

        def exchange() -> None:
            try:
                answers.append(self._exchange(message))
            finally:
                done.release()

        _thread.start_new_thread(exchange, ())
        done.acquire()
        answer = answers[0] if answers else {}
        if "error" in answer or not answer:
            raise SettingError(answer.get("error", "the worker that runs this trial has ended"))
        self._end = answer["end"]
        left = answer["seconds_left"]
        self._preempted_at = None if left is None else clock.monotonic() + left

    def _exchange(self, message: bytes) -> dict[str, Any]:
        """Return the worker's answer; empty if the worker has ended."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.connect(self._path)
                connection.sendall(message)
                with connection.makefile("rb") as answers:
                    return json.loads(answers.readline() or "{}")  # type: ignore[no-any-return]
        except OSError:
            return {}

    def seconds_left(self) -> float | None:
        """Return what the worker's last answer said; a command also gets SIGTERM when it must end."""
        preempted_at = self._preempted_at
        return None if preempted_at is None else max(0.0, preempted_at - clock.monotonic())

    def end_requested(self, after_report: int = 0, timeout_seconds: float = 0.0) -> bool:  # noqa: ARG002
        """Return at once: the worker has waited before it answered the report."""
        return self._end


def environment(
    run: Run, socket_path: str, restored: Restored | None = None, scratch: Path | None = None
) -> dict[str, str]:
    """Return the environment variables of a trial's command.

    A configuration or a run that is too long for a variable is written to a file in the trial's folder.

    - `restored`: the checkpoint that the worker has fetched from the object store.
    - `scratch`: the folder of states that the worker uploads.
    """
    places = placeholders(run)
    config, config_file = json.dumps(dict(run.config)), ""
    # Without the key, which only the worker needs. JSON has no tuples, so values that hold some are marked.
    about = json.dumps(asdict(replace(run, gang_key="", checkpoints=(), config=_tuples(run.config))))
    folder = Path(run.folder).absolute()  # all workers of the trial share it
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
        _RESTORED: "" if restored is None else json.dumps([*restored], default=str),
        _SCRATCH: "" if scratch is None else str(scratch.absolute()),
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
    """Return the values of the placeholders of a command that are no parameters."""
    folder = Path(run.folder).absolute()
    return {
        "trial": str(run.trial),
        "seed": str(run.seed),
        "folder": str(folder),
        "checkpoint": str(folder / "state"),
    }


class CommandCheckpoints:
    """The TrialCheckpoints of a command whose worker uploads its states to an object store, and has fetched one.

    The command need not wait for an upload: its process may end before, and the worker goes on.
    """

    def __init__(self, link: WorkerLink, scratch: Path, restored: Restored) -> None:
        self._link = link
        self._scratch = scratch
        self._restored = restored

    def save(self, step: int, write: Callable[[Path], object], *, partial: bool = False) -> bool:
        folder = self._scratch / os.urandom(6).hex()
        write_state(folder, step, write)
        self._link.save_with_report(step, folder)
        if partial:
            self._link.send_saved(partial=True)
        return False

    def submit(self) -> None:
        self._link.send_saved()

    def reported(self, report: Reported, number: int) -> None:
        """Do nothing: the state was sent with its report."""

    def find(self, share: Share) -> Restored:  # noqa: ARG002 (the workers have agreed)
        return Restored() if self._restored.command_state else self._restored

    def seconds_needed(self) -> float | None:
        """Return None: only the worker knows how fast it uploads."""
        return None

    def finish(self, seconds: float, time_left: Callable[[], float | None]) -> None:
        """Do nothing: the worker waits for the uploads."""

    def close(self) -> None:
        """Do nothing: the worker removes the files."""


class CommandTrial(Trial):
    """The trial of a command, which may count its steps from 0."""

    def __init__(self, run: Run, link: Link, checkpoints: TrialCheckpoints | None = None) -> None:
        super().__init__(run, link, checkpoints=checkpoints)
        self.warns_past_end = False
        self.numbers = StepNumbers(run.folder)

    def _step_of(self, given: int | None) -> int:
        if isinstance(given, int) and not isinstance(given, bool):
            if given == 0 and self.last_step and not self.numbers.from_zero:
                self.numbers.count_from_one()
            given = self.numbers.step_of(given)
        return super()._step_of(given)


def _tuples(config: Config) -> Config:
    """Return the values that are or hold tuples, in the form that value_to_json() gives them."""
    return {name: marked for name, value in config.items() if (marked := value_to_json(value)) != value}


@cache
def current_trial() -> CommandTrial:
    """Return the trial whose command this process runs in. Raises SettingError in other processes."""
    try:
        config = json.loads(os.environ[_CONFIG] or Path(os.environ[_CONFIG_FILE]).read_text())
        about = os.environ[_RUN]
        run = Run(**json.loads(about if about.startswith("{") else Path(about).read_text()))
        tuples = {name: value_from_json(value) for name, value in run.config.items()}
        run = replace(run, config={name: tuples.get(name, value) for name, value in config.items()})
        link = WorkerLink(os.environ[_SOCKET])
        if not run.objects:
            return CommandTrial(run, link)
        step, folder, *rest = json.loads(os.environ[_RESTORED])
        restored = Restored(step, Path(folder) if folder else None, *rest)
        return CommandTrial(run, link, CommandCheckpoints(link, Path(os.environ[_SCRATCH]), restored))
    except KeyError:
        raise SettingError(
            "this process does not run in a trial's command: report() and current_trial() work in a command that "
            "thriftune runs; a training function gets its trial as an argument"
        ) from None


def report(
    metrics: Mapping[str, float] | None = None,
    /,
    *,
    step: int | None = None,
    save: Callable[[Path], object] | None = None,
    **more: float,
) -> None:
    """Report the metrics of a step of this command's trial; see Trial.report()."""
    current_trial().report(metrics, step=step, save=save, **more)


def report_once(time: float, metrics: Mapping[str, float], step: int | None) -> bool:
    """Send one report from a process that makes no other; return whether the trial is to end.

    `time`: unix seconds. `step`: None for the step after the last reported one.
    """
    trial = current_trial()
    link = WorkerLink(os.environ[_SOCKET])
    number = COUNTED if step is None else 0
    trial_step = 1 if step is None else trial.numbers.step_of(step)
    link.send(Reported(time, trial.id, trial.attempt, number, trial_step, dict(metrics)))
    return link.end_requested()
