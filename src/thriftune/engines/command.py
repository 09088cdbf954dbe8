"""Run a command as a training function.

The command runs in its own process. Its reports become reports of the trial.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from thriftune.common.clock import wall_time
from thriftune.engines.command_state import CommandState
from thriftune.engines.exit_causes import MemoryKills, exit_cause
from thriftune.engines.printed_metrics import PrintedMetrics, no_number_error
from thriftune.errors import SettingError, ThriftuneError
from thriftune.state.events import AttributeSet, CheckpointSaved, DiskFull, Reported, Warned
from thriftune.training import gangs
from thriftune.training.command_line import arguments, used_datasets
from thriftune.training.current_trial import environment, placeholders
from thriftune.training.messages import from_line, saved_state
from thriftune.training.object_checkpoints import ObjectCheckpoints
from thriftune.training.run import COUNTED, EndTrial, TrialFailed, TrialLost
from thriftune.training.step_numbers import StepNumbers
from thriftune.training.trial import Trial

_TERM_GRACE_SECONDS = 10.0
"""How long a command may take to end after SIGTERM, before it is killed."""

_POLL_SECONDS = 0.2
"""How often to check whether the trial is to end."""

_READ_BYTES = 65_536
"""The most bytes of one read from the command's output."""

_PIPE_READS = 17
"""The number of reads that empty a pipe: a pipe holds at most a megabyte."""

_MESSAGE_SECONDS = 5.0
"""How long a process may take to send its message after it has connected to the socket."""

_MAX_TEMP_PATH = 70
"""The longest path of a temporary folder in which a socket fits. The path of a socket has at most 108 bytes."""


class Command:
    """A training function that runs the command line of a study.

    - `command`: the program and its arguments. `{name}` is replaced by the value of a parameter.
    - `patterns`: for each metric, the regular expression that finds its values in the command's output.
    - `folder`: the working folder of the command.
    """

    def __init__(self, command: Sequence[str], patterns: Mapping[str, str], folder: str) -> None:
        self._command = tuple(command)
        self._patterns = {name: re.compile(pattern) for name, pattern in patterns.items()}
        self._folder = folder

    def __call__(self, trial: Trial) -> None:
        """Run the command to its end.

        Raises TrialFailed if the trial has failed, and TrialLost if the command was ended from outside.
        """
        trial.warns_past_end = False
        memory_kills = MemoryKills()
        numbers = StepNumbers(trial.folder)
        state: CommandState | None = None
        if isinstance(trial.checkpoints, ObjectCheckpoints):
            state = CommandState(trial, trial.checkpoints, numbers)
            state.put_back(trial.found_checkpoint)
        with (
            _listening_socket(trial.folder, trial.rank) as listener,
            self._start(trial, listener.getsockname()) as process,
        ):
            try:
                session = _Session(trial, process, listener, self._patterns, memory_kills, numbers, state)
                end_requested = session.run()
            except BaseException:
                _signal(process, signal.SIGKILL)
                raise
        code = process.returncode
        if state is not None and (end_requested or code == 0):
            state.save(trial.last_step, partial=trial.cut or trial.last_step == 0)
        if end_requested:
            return
        if code != 0:
            status = -code if code < 0 else code << 8
            cause = exit_cause(status, memory_kills)
            if cause.kind is None:
                raise TrialLost(cause.message)
            raise TrialFailed(cause.kind, cause.message.replace(" in the middle of the trial", ""))
        if session.number_error is not None:
            raise TrialFailed("raised", session.number_error)
        if (error := trial.no_value()) is not None:
            raise TrialFailed("no_value", error + session.why_no_value())

    def _start(self, trial: Trial, socket_path: str) -> subprocess.Popen[bytes]:
        used = used_datasets(self._command, trial.run.data)
        data = {placeholder: str(trial.data[name]) for placeholder, name in used.items()}
        command = arguments(self._command, {**placeholders(trial.run), **data, **trial.config})
        if isinstance(trial.checkpoints, ObjectCheckpoints):
            variables = environment(trial.run, socket_path, trial.found_checkpoint, trial.checkpoints.scratch)
        else:
            variables = environment(trial.run, socket_path)
        if trial.gang is not None:
            trial.in_step = False  # each worker of the gang checks separately whether it must end
            variables |= gangs.torchrun_variables(trial.run, trial.gang)
        (trial.folder / "state").mkdir(exist_ok=True)
        try:
            return subprocess.Popen(
                command,
                cwd=self._folder,
                env={**os.environ, **variables, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            why = f"the command {command[0]!r} cannot be started: {error}"
            if error.errno == errno.E2BIG:
                why += "; give fewer arguments, and read the values from the file in THRIFTUNE_CONFIG_FILE"
            raise TrialFailed("raised", why) from None


class _Session:
    """One run of a command.

    It reads the command's output and reports, and ends the command when requested.
    """

    def __init__(
        self,
        trial: Trial,
        process: subprocess.Popen[bytes],
        listener: socket.socket,
        patterns: Mapping[str, re.Pattern[str]],
        memory_kills: MemoryKills,
        step_numbers: StepNumbers,
        state: CommandState | None,
    ) -> None:
        """`state`: the command's own folder; None if it is not uploaded."""
        assert process.stdout is not None
        self._trial = trial
        self._process = process
        self._listener = listener
        self._output = process.stdout.fileno()
        self._memory_kills = memory_kills
        self._metrics = PrintedMetrics(patterns) if patterns else None
        self._values: dict[str, float] = {}  # metrics found in the output since the last report
        self._step: int | None = None  # the last step found in the output; None if none was found
        self._step_numbers = step_numbers
        self._state = state
        self._warned_from_zero = False
        self._kill_at: float | None = (
            None  # when to kill the command, in monotonic seconds; None: SIGTERM was not sent
        )
        self._killed = False  # the command did not end in time after SIGTERM and was killed
        self._exited = False
        self.number_error: str | None = (
            None  # the error if a pattern has found a text that is no number; else None
        )
        self._check_at = 0.0  # when to check again whether the trial is to end, in monotonic seconds

    def run(self) -> bool:
        """Wait until the command has ended, and kill its background processes.

        Returns whether the command was sent SIGTERM.
        """
        with selectors.DefaultSelector() as selector, _exit_descriptor(self._process.pid) as exited:
            selector.register(self._output, selectors.EVENT_READ, self._read)
            selector.register(self._listener, selectors.EVENT_READ, self._answer)
            if exited is not None:
                selector.register(exited, selectors.EVENT_READ, lambda: True)
            while not self._has_exited():
                self._memory_kills.check()
                for key, _ in selector.select(_POLL_SECONDS):
                    if not key.data():
                        selector.unregister(key.fileobj)
                self._end_if_requested()
        self._exited = True
        # The process group is killed before the process is waited for, while no other process can have its id.
        _signal(self._process, signal.SIGKILL)
        os.set_blocking(self._output, False)
        with contextlib.suppress(BlockingIOError):
            for _ in range(_PIPE_READS):  # limited, because a child in another process group may print forever
                if not self._read():
                    break
        self._find_metrics(b"\n")
        if self._values and self._kill_at is None:
            self._trial.finish(self._values)  # metrics printed after the last report, such as a measured speed
        return self._kill_at is not None

    def _has_exited(self) -> bool:
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _end_if_requested(self) -> None:
        """Send SIGTERM to the command if the trial is to end.

        Kills the command if it has not ended in time after SIGTERM.
        """
        self._check_at = time.monotonic() + _POLL_SECONDS
        if self._kill_at is None:
            if self._trial.told_to_end():
                self._terminate()
        elif time.monotonic() >= self._kill_at:
            self._killed = True
            _signal(self._process, signal.SIGKILL)

    def _terminate(self) -> None:
        self._kill_at = time.monotonic() + _TERM_GRACE_SECONDS
        _signal(self._process, signal.SIGTERM)

    def _read(self) -> bool:
        """Copy some output of the command to stdout, and search it for metrics.

        Returns False at the end of the output.
        """
        chunk = os.read(self._output, _READ_BYTES)
        sys.stdout.buffer.write(chunk)
        sys.stdout.flush()
        self._find_metrics(chunk)
        return bool(chunk)

    def _find_metrics(self, chunk: bytes) -> None:
        """Report the metrics in some output.

        Does nothing after the command was killed.
        """
        if self._metrics is None or self._killed:
            return
        for matches in self._metrics.feed(chunk):
            self._take_in(matches)
            if time.monotonic() >= self._check_at:  # slow patterns must not delay the end of a trial
                self._end_if_requested()
            if self._killed:
                return
        if (warning := self._metrics.take_warning()) is not None:
            self._trial.relay(Warned(wall_time(), self._trial.id, self._trial.attempt, warning))

    def _take_in(self, matches: Sequence[tuple[str, str]]) -> None:
        """Store the numbers found in a line.

        If the objective is among them, report all numbers that were stored since the last report.
        """
        has_objective = False
        for name, text in matches:
            try:
                number = float(text)
                if name == "step":
                    self._step = self._own_step(int(number), text)
                else:
                    self._values[name] = number
                    has_objective = has_objective or name == self._trial.metric
            except (ValueError, OverflowError):  # no number, or no step
                self._handle_no_number(name, text)
        if has_objective:
            metrics, self._values = self._values, {}
            self._report(metrics, self._step, saved=False)

    def _own_step(self, step: int, text: str) -> int:
        """Return the trial's step for a step of the command, which may count from 0.

        `text`: the step as the command printed it, for the error.
        """
        try:
            return self._step_numbers.step_of(step)
        except SettingError as error:
            raise TrialFailed("raised", f"metrics: step: the pattern found {text!r}: {error}") from None

    def _handle_no_number(self, name: str, text: str) -> None:
        """Fail the attempt because a pattern has found a text that is no number.

        If the command is ending or has ended, only the error is stored, because the last line may be incomplete.
        """
        assert self._metrics is not None
        self.number_error = no_number_error(name, self._metrics.patterns[name].pattern, text)
        if not self._exited and self._kill_at is None:
            raise TrialFailed("raised", self.number_error)

    def _report(self, metrics: Mapping[str, float], step: int | None, *, saved: bool) -> None:
        """Report metrics of the command.

        The command may report more metrics while it ends, for its last epoch.
        """
        try:
            if step is None:
                self._step_numbers.count_from_one()
            elif self._step_numbers.from_zero:
                self._warn_from_zero()
            self._trial.note(metrics, step, saved=saved)
            if self._state is not None:
                self._state.reported(self._trial.last_step)
        except EndTrial:
            if self._kill_at is None:
                self._terminate()

    def _warn_from_zero(self) -> None:
        """Warn once that the command counts its steps from 0."""
        if not self._warned_from_zero:
            self._warned_from_zero = True
            why = "the command counts its steps from 0; its step 0 is shown as step 1"
            self._trial.relay(Warned(wall_time(), self._trial.id, self._trial.attempt, why))

    def why_no_value(self) -> str:
        """Return why an objective was not reported, as a text to append to the error.

        Returns an empty string if the reason is not known. Called when the command has ended with status 0.
        """
        if self._metrics is None:
            return ""
        return "".join(
            f"; the pattern of {name}, {self._metrics.patterns[name].pattern!r}, found nothing"
            for name in self._trial.missing
            if name in self._metrics.patterns
        )

    def _answer(self) -> bool:
        """Process one message of the command, and answer it when its event is stored.

        Returns True, because more messages may follow.
        """
        connection, _ = self._listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.settimeout(_MESSAGE_SECONDS)
            with connection.makefile("rb") as messages:
                message = messages.readline()
                saved = saved_state(message)
                if saved is not None and self._state is not None:
                    self._state.leave_to_saves()
                    if saved["step"] is None:  # its report follows
                        message = messages.readline()
            try:
                event = None if saved is not None and saved["step"] is not None else from_line(message)
                if isinstance(event, Reported):
                    # Reports of several threads and processes may not arrive in the order of their numbers, so
                    # this process counts them. The first report of a resumed command says at which step it
                    # continues.
                    resumes = self._trial.run.resume_step and not self._trial.last_step
                    counted = event.number == COUNTED and not resumes
                    self._report(event.metrics, None if counted else event.step, saved=event.saved)
                elif isinstance(event, (Warned, DiskFull, AttributeSet, CheckpointSaved)):
                    self._trial.relay(replace(event, trial=self._trial.id, attempt=self._trial.attempt))
                elif event is not None:
                    raise ValueError(f"a command cannot send the event {type(event).__name__}")
                if saved is not None:
                    self._upload(saved)
                answer: dict[str, object] = {
                    "end": self._kill_at is not None,
                    "seconds_left": self._trial.time_left,
                }
            except (ThriftuneError, ValueError) as error:
                answer = {"error": str(error)}
            connection.sendall(json.dumps(answer).encode() + b"\n")
        return True

    def _upload(self, saved: Mapping[str, Any]) -> None:
        """Upload a state that the command has saved.

        `saved`: the message about it. Its report, if it has one, was the last one.
        """
        checkpoints, folder = self._trial.checkpoints, Path(saved["folder"])
        if not isinstance(checkpoints, ObjectCheckpoints) or folder.parent != checkpoints.scratch.absolute():
            raise ValueError(f"{folder} is no folder for a state of this trial")
        step = self._trial.last_step if saved["step"] is None else saved["step"]
        checkpoints.take(folder, step, partial=saved["partial"], first_step=self._step_numbers.first)
        checkpoints.submit()


@contextlib.contextmanager
def _listening_socket(folder: Path, rank: int) -> Iterator[socket.socket]:
    """Listen for the messages of the command, at a socket in the trial's folder.

    The socket of a killed worker in this folder is removed. If the path of the folder is too long, or its file
    system does not support sockets, the socket is created in a temporary folder.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, contextlib.ExitStack() as stack:
        # The workers of a gang share the folder.
        path = folder.absolute() / (f"socket-{rank}" if rank else "socket")
        try:
            path.unlink(missing_ok=True)
            listener.bind(str(path))
        except OSError:
            parent = None if len(tempfile.gettempdir()) < _MAX_TEMP_PATH else "/tmp"
            folder_name = stack.enter_context(tempfile.TemporaryDirectory(prefix="thriftune-", dir=parent))
            path = Path(folder_name) / "socket"
            listener.bind(str(path))
        stack.callback(path.unlink, missing_ok=True)
        listener.listen()
        yield listener


@contextlib.contextmanager
def _exit_descriptor(pid: int) -> Iterator[int | None]:
    """Yield a descriptor that becomes readable when the process has exited.

    Yields None if the system does not support such descriptors.
    """
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to the process group of the command, unless it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
