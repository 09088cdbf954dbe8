"""How is a command a training function? It runs in a process of its own; what it says is its trial's."""

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

from thriftune.common.clock import wall_time
from thriftune.engines.exit_causes import MemoryKills, ending
from thriftune.engines.printed_metrics import PrintedMetrics, no_number
from thriftune.errors import SettingError, ThriftuneError
from thriftune.state.events import AttributeSet, DiskFull, Reported, Warned
from thriftune.training import gangs
from thriftune.training.command_line import arguments
from thriftune.training.current_trial import environment, placeholders
from thriftune.training.messages import from_line
from thriftune.training.run import COUNTED, EndTrial, TrialFailed, TrialLost
from thriftune.training.step_numbers import StepNumbers
from thriftune.training.trial import Trial

_TERM_GRACE_SECONDS = 10.0
_POLL_SECONDS = 0.2
_READ_BYTES = 65_536
_PIPE_READS = 17
"""So many reads take all that a pipe can hold: a megabyte at most."""


class Command:
    """Runs the command line of a trial: `{name}` stands for the value of a parameter."""

    def __init__(self, command: Sequence[str], patterns: Mapping[str, str], folder: str) -> None:
        self._command = tuple(command)
        self._patterns = {name: re.compile(pattern) for name, pattern in patterns.items()}
        self._folder = folder

    def __call__(self, trial: Trial) -> None:
        trial.warns_past_end = False
        memory_kills = MemoryKills()
        with _door(trial.folder, trial.rank) as door, self._start(trial, door.getsockname()) as process:
            try:
                session = _Session(trial, process, door, self._patterns, memory_kills)
                told = session.run()
            except BaseException:
                _signal(process, signal.SIGKILL)
                raise
        if told:
            return
        code = process.returncode
        if code != 0:
            status = -code if code < 0 else code << 8
            end = ending(status, memory_kills)
            if end.kind is None:
                raise TrialLost(end.message)
            raise TrialFailed(end.kind, end.message.replace(" in the middle of the trial", ""))
        if session.no_number is not None:
            raise TrialFailed("raised", session.no_number)
        if (error := trial.no_value()) is not None:
            raise TrialFailed("no_value", error + session.why_no_value())

    def _start(self, trial: Trial, socket_path: str) -> subprocess.Popen[bytes]:
        command = arguments(self._command, {**placeholders(trial.run), **trial.config})
        variables = environment(trial.run, socket_path)
        if trial.gang is not None:
            trial.in_step = False  # each worker looks when its own command gives it time
            variables |= gangs.variables(trial.run, trial.gang)
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
    """One run of a command: its output, its reports, and the word to end."""

    def __init__(
        self,
        trial: Trial,
        process: subprocess.Popen[bytes],
        door: socket.socket,
        patterns: Mapping[str, re.Pattern[str]],
        memory_kills: MemoryKills,
    ) -> None:
        assert process.stdout is not None
        self._trial = trial
        self._process = process
        self._door = door
        self._output = process.stdout.fileno()
        self._memory_kills = memory_kills
        self._metrics = PrintedMetrics(patterns) if patterns else None
        self._found: dict[str, float] = {}  # since the last report
        self._step: int | None = None
        self._numbers = StepNumbers(trial.folder)
        self._said_from_zero = False
        self._end_at: float | None = None  # when to stop asking politely; None: it was not told to end
        self._killed = False  # since it did not end in that time
        self._exited = False
        self.no_number: str | None = None  # the error if a pattern has found what is no number
        self._look_at = 0.0  # when to look again whether the trial is to end

    def run(self) -> bool:
        """Until the command has ended, with whatever it sent into the background. True: it was told to end."""
        with selectors.DefaultSelector() as selector, _exit_seen(self._process.pid) as exited:
            selector.register(self._output, selectors.EVENT_READ, self._read)
            selector.register(self._door, selectors.EVENT_READ, self._answer)
            if exited is not None:
                selector.register(exited, selectors.EVENT_READ, lambda: True)
            while not self._has_exited():
                self._memory_kills.look()
                for key, _ in selector.select(_POLL_SECONDS):
                    if not key.data():
                        selector.unregister(key.fileobj)
                self._end_if_told()
        self._exited = True
        _signal(self._process, signal.SIGKILL)  # before it is buried: its number cannot be another's yet
        os.set_blocking(self._output, False)
        with contextlib.suppress(BlockingIOError):
            for _ in range(_PIPE_READS):  # and no more: a child of another group may go on printing
                if not self._read():
                    break
        self._look_for_metrics(b"\n")
        if self._found and self._end_at is None:
            self._trial.finish(self._found)  # what it printed after its last report, such as a measured speed
        return self._end_at is not None

    def _has_exited(self) -> bool:
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _end_if_told(self) -> None:
        """End the command if the trial is to end; kill it if it has had time to."""
        self._look_at = time.monotonic() + _POLL_SECONDS
        if self._end_at is None:
            if self._trial.told_to_end():
                self._begin_end()
        elif time.monotonic() >= self._end_at:
            self._killed = True
            _signal(self._process, signal.SIGKILL)

    def _begin_end(self) -> None:
        self._end_at = time.monotonic() + _TERM_GRACE_SECONDS
        _signal(self._process, signal.SIGTERM)

    def _read(self) -> bool:
        """False: there will be no more output."""
        chunk = os.read(self._output, _READ_BYTES)
        sys.stdout.buffer.write(chunk)
        sys.stdout.flush()
        self._look_for_metrics(chunk)
        return bool(chunk)

    def _look_for_metrics(self, chunk: bytes) -> None:
        """Report what the patterns find in the command's output. What it printed until it was killed counts."""
        if self._metrics is None or self._killed:
            return
        for found in self._metrics.feed(chunk):
            self._take_in(found)
            if time.monotonic() >= self._look_at:  # slow patterns must not keep a trial from being stopped
                self._end_if_told()
            if self._killed:
                return
        if (warning := self._metrics.take_warning()) is not None:
            self._trial.relay(Warned(wall_time(), self._trial.id, self._trial.attempt, warning))

    def _take_in(self, found: Sequence[tuple[str, str]]) -> None:
        """Keep the numbers that were found in a line; if the objective's is among them, make it a report."""
        told = False
        for name, text in found:
            try:
                number = float(text)
                if name == "step":
                    self._step = self._told_step(int(number), text)
                else:
                    self._found[name] = number
                    told = told or name == self._trial.metric
            except (ValueError, OverflowError):  # no number, or no step
                self._found_no_number(name, text)
        if told:
            metrics, self._found = self._found, {}
            self._report(metrics, self._step, saved=False)

    def _told_step(self, step: int, text: str) -> int:
        try:
            return self._numbers.step_of(step)
        except SettingError as error:
            raise TrialFailed("raised", f"metrics: step: the pattern found {text!r}: {error}") from None

    def _found_no_number(self, name: str, text: str) -> None:
        """Fail the attempt, but not for the last line of a command that was told to end or fails by itself."""
        assert self._metrics is not None
        self.no_number = no_number(name, self._metrics.patterns[name].pattern, text)
        if not self._exited and self._end_at is None:
            raise TrialFailed("raised", self.no_number)

    def _report(self, metrics: Mapping[str, float], step: int | None, *, saved: bool) -> None:
        """Report what the command said. It may say more while it ends, such as of its last epoch."""
        try:
            if step is None:
                self._numbers.counted()
            elif self._numbers.from_zero:
                self._say_from_zero()
            self._trial.note(metrics, step, saved=saved)
        except EndTrial:
            if self._end_at is None:
                self._begin_end()

    def _say_from_zero(self) -> None:
        if not self._said_from_zero:
            self._said_from_zero = True
            why = "the command counts its steps from 0; its step 0 is step 1 here"
            self._trial.relay(Warned(wall_time(), self._trial.id, self._trial.attempt, why))

    def why_no_value(self) -> str:
        """Return what is known of why an objective was not reported; called when the command has ended well."""
        if self._metrics is None:
            return ""
        return "".join(
            f"; the pattern of {name}, {self._metrics.patterns[name].pattern!r}, found nothing"
            for name in self._trial.missing
            if name in self._metrics.patterns
        )

    def _answer(self) -> bool:
        """One report from the inside; answered when it is safe."""
        line, _ = self._door.accept()
        with line, contextlib.suppress(OSError):
            line.settimeout(5.0)
            with line.makefile("rb") as messages:
                message = messages.readline()
            try:
                event = from_line(message)
                if isinstance(event, Reported):
                    # Threads and processes of the command may come in another order than they counted in. The
                    # first report tells where a resumed command goes on.
                    resumes = self._trial.run.resume_step and not self._trial.last_step
                    counted = event.number == COUNTED and not resumes
                    self._report(event.metrics, None if counted else event.step, saved=event.saved)
                elif isinstance(event, (Warned, DiskFull, AttributeSet)):
                    self._trial.relay(replace(event, trial=self._trial.id, attempt=self._trial.attempt))
                else:
                    raise ValueError(f"{type(event).__name__} is not a command's to say")
                answer: dict[str, object] = {"end": self._end_at is not None}
            except (ThriftuneError, ValueError) as error:
                answer = {"error": str(error)}
            line.sendall(json.dumps(answer).encode() + b"\n")
        return True


@contextlib.contextmanager
def _door(folder: Path, rank: int) -> Iterator[socket.socket]:
    """Where the command is heard: in the trial's folder, where what a killed worker leaves does no harm.

    Where that has too long a path or takes no sockets, among the temporary files.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door, contextlib.ExitStack() as stack:
        path = folder.absolute() / (f"socket-{rank}" if rank else "socket")  # its workers share the folder
        try:
            path.unlink(missing_ok=True)
            door.bind(str(path))
        except OSError:
            home = None if len(tempfile.gettempdir()) < 70 else "/tmp"
            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="thriftune-", dir=home))) / "socket"
            door.bind(str(path))
        stack.callback(path.unlink, missing_ok=True)
        door.listen()
        yield door


@contextlib.contextmanager
def _exit_seen(pid: int) -> Iterator[int | None]:
    """A descriptor that can be read once the process has exited; None on a system that has none."""
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
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
