"""How is a command a training function? It runs in a process of its own, and what it prints or reports is its trial's."""

from __future__ import annotations

import contextlib
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
from collections.abc import Mapping, Sequence
from pathlib import Path

from thriftune.engines.endings import ending, out_of_memory_kills
from thriftune.engines.wire import Lines, from_line
from thriftune.errors import ThriftuneError
from thriftune.events import Reported
from thriftune.inside import NEXT_STEP, environment
from thriftune.spec import PLACEHOLDER
from thriftune.trial import EndTrial, Trial, TrialFailed, TrialLost

_TERM_GRACE_SECONDS = 10.0
_POLL_SECONDS = 0.2


class Command:
    """Runs the command line of a trial: `{name}` stands for the value of a parameter."""

    def __init__(self, command: Sequence[str], patterns: Mapping[str, str], folder: str) -> None:
        self._command = tuple(command)
        self._patterns = {name: re.compile(pattern) for name, pattern in patterns.items()}
        self._folder = folder

    def __call__(self, trial: Trial) -> None:
        memory_kills = out_of_memory_kills()
        with tempfile.TemporaryDirectory(prefix="thriftune-") as short:  # a socket's path must be short
            path = str(Path(short) / "socket")
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
                door.bind(path)
                door.listen()
                with self._start(trial, path) as process:
                    try:
                        told = _Session(trial, process, door, self._patterns).run()
                    except BaseException:
                        _signal(process, signal.SIGKILL)
                        raise
        if told:
            return
        code = process.returncode
        if code != 0:
            status = -code if code < 0 else code << 8
            end = ending(status, out_of_memory_kills() > memory_kills)
            if end.kind is None:
                raise TrialLost(end.message)
            raise TrialFailed(end.kind, end.message.replace(" in the middle of the trial", ""))

    def _start(self, trial: Trial, socket_path: str) -> subprocess.Popen[bytes]:
        command = [PLACEHOLDER.sub(lambda m: _text(trial.get(m.group(1))), part) for part in self._command]
        variables = environment(trial.run, socket_path)
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
            raise TrialFailed("raised", f"the command {command[0]!r} cannot be started: {error}") from None


class _Session:
    """One run of a command: its output, its reports, and the word to end."""

    def __init__(
        self,
        trial: Trial,
        process: subprocess.Popen[bytes],
        door: socket.socket,
        patterns: Mapping[str, re.Pattern[str]],
    ) -> None:
        assert process.stdout is not None
        self._trial = trial
        self._process = process
        self._door = door
        self._output = process.stdout.fileno()
        self._patterns = patterns
        self._lines = Lines()
        self._found: dict[str, float] = {}  # since the last report
        self._step: int | None = None
        self._end_at: float | None = None  # when to stop asking politely

    def run(self) -> bool:
        """Until the command's output has ended and so has it. True: it was told to end."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            selector.register(self._door, selectors.EVENT_READ)
            open_output = True
            while open_output or self._process.poll() is None:
                for key, _ in selector.select(_POLL_SECONDS):
                    if key.fileobj is self._door:
                        self._answer()
                    elif not self._read():
                        selector.unregister(self._output)
                        open_output = False
                if self._process.poll() is not None and open_output:
                    # A child that the command left behind may hold the output open for ever.
                    open_output = bool(selector.select(_POLL_SECONDS))
                self._end_if_told()
        return self._end_at is not None

    def _end_if_told(self) -> None:
        if self._end_at is None:
            if self._trial.told_to_end():
                self._begin_end()
        elif time.monotonic() >= self._end_at:
            _signal(self._process, signal.SIGKILL)

    def _begin_end(self) -> None:
        self._end_at = time.monotonic() + _TERM_GRACE_SECONDS
        _signal(self._process, signal.SIGTERM)

    def _read(self) -> bool:
        chunk = os.read(self._output, 65536)
        sys.stdout.buffer.write(chunk)
        sys.stdout.flush()
        if self._patterns:
            for line in self._lines.feed(chunk or b"\n"):
                self._match(line.decode(errors="replace"))
        return bool(chunk)

    def _match(self, line: str) -> None:
        """AMT's way: a metric is what its pattern captures; the objective's closes a report."""
        told = False
        for name, pattern in self._patterns.items():
            for match in pattern.finditer(line):
                with contextlib.suppress(ValueError):
                    number = float(match.group(1))
                    if name == "step":
                        self._step = int(number)
                    else:
                        self._found[name] = number
                        told = told or name == self._trial.metric
        if told:
            found, self._found = self._found, {}
            self._report(found, self._step, saved=False)

    def _report(self, metrics: Mapping[str, float], step: int | None, *, saved: bool) -> None:
        if self._end_at is not None:
            return
        try:
            self._trial.note(metrics, step, saved=saved)
        except EndTrial:
            self._begin_end()

    def _answer(self) -> None:
        """One report from the inside; answered when it is safe."""
        line, _ = self._door.accept()
        with line, contextlib.suppress(OSError):
            line.settimeout(5.0)
            with line.makefile("rb") as messages:
                message = messages.readline()
            try:
                event = from_line(message)
                if isinstance(event, Reported):
                    step = None if event.step == NEXT_STEP else event.step
                    self._report(event.metrics, step, saved=event.saved)
                else:
                    self._trial.relay(event)
                answer: dict[str, object] = {"end": self._end_at is not None}
            except (ThriftuneError, ValueError) as error:
                answer = {"error": str(error)}
            line.sendall(json.dumps(answer).encode() + b"\n")


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _text(value: object) -> str:
    return "" if value is None else str(value)
