"""The engine that runs trials on this machine, in warm worker processes."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from thriftune.common.clock import WallClock
from thriftune.common.threads_per_trial import thread_limits, threads_per_trial
from thriftune.engines import recovery
from thriftune.engines.exit_causes import ExitCause, MemoryKills, exit_cause
from thriftune.engines.protocol import WorkerStatus
from thriftune.engines.supervisor_process import start_supervisor
from thriftune.engines.worker_output import WorkerOutput
from thriftune.errors import ThriftuneError
from thriftune.state.events import (
    AttributeSet,
    CheckpointSaved,
    DiskFull,
    Ended,
    Event,
    Failed,
    Killed,
    Lost,
    Reported,
    UsageMeasured,
    Warned,
)
from thriftune.training.messages import GOODBYE, MESSAGE_BYTES, LineBuffer, from_line, run_message
from thriftune.training.run import Run

_CLOSE_SECONDS = 10.0
"""How long the supervisor may take to end its workers and itself, before it is terminated."""

_CHUNK_BYTES = 262_144
"""The most bytes of one read from a worker."""

_PIPE_READS = 5
"""The number of reads that empty a pipe: a pipe holds at most a megabyte."""

_MAX_FAILED_STARTS = 3
"""A study stops after this many successive supervisors that have ended before they started a worker."""


_FROM_WORKERS = (Reported, CheckpointSaved, UsageMeasured, Ended, Failed, Lost, Warned, DiskFull, AttributeSet)
"""The events that a worker may send."""


@dataclass(slots=True)
class _LocalWorker:
    """A worker process, as the driver knows it."""

    id: int
    link: socket.socket  # for messages to and from the worker
    output_fd: int  # the reading end of the pipe of its stdout and stderr
    pid: int | None = None  # None until the supervisor has started it
    run: Run | None = None  # its present run; None if it is free
    killed: bool = False  # the driver has decided to kill it
    leaving: bool = False  # it has sent GOODBYE, and gets no other run
    fault: str | None = None  # why its messages are not read any more; None if they are read
    lines: LineBuffer = field(default_factory=LineBuffer)
    output: WorkerOutput = field(default_factory=WorkerOutput)

    @property
    def free(self) -> bool:
        """Return whether the worker can be given a run."""
        return self.run is None and not (self.killed or self.leaving or self.fault)


class LocalEngine:
    """Runs trials in worker processes on this machine.

    Each worker runs one trial at a time. The engine replaces workers that end, and finds out whether a trial has
    failed or was ended from outside.

    - `folder`: a folder for this engine alone. It contains the spool files of the workers.
    - `slots`: the largest number of trials that run at the same time.
    - `target`: the training function; see worker.load_target().
    - `durable`: sync each report to disk, so that it is not lost with the machine if the disk survives.
    """

    def __init__(self, folder: Path, slots: int, target: dict[str, Any], *, durable: bool = False) -> None:
        self._folder = folder
        self._slots = slots
        self._target = target
        self._durable = durable
        self._clock = WallClock()
        self._workers: dict[int, _LocalWorker] = {}  # all and only workers that have not ended, by id
        self._next_id = 0
        self._supervisor: subprocess.Popen[bytes] | None = None  # its watchdog process; see supervisor.py
        self._control: socket.socket | None = None  # for messages to and from the supervisor
        self._selector = selectors.DefaultSelector()
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._waker, selectors.EVENT_READ, self._woken)
        self._events: list[Event] = []  # events that the next wait() returns
        self._woke = False  # wake() was called
        self._failed_starts = 0  # successive supervisors that ended before they started a worker
        self._output_failed = False  # the warning that output cannot be stored was sent
        self._memory_kills = MemoryKills()
        self._ended_ids: list[int] = []  # ids of ended workers, whose events are recorded by the next wait()

    # --- the protocol -----------------------------------------------------------------------------------

    def recover(self) -> list[Event]:
        return recovery.recover(self._folder)

    def open(self) -> None:
        shutil.rmtree(self._spools, ignore_errors=True)
        self._spools.mkdir(parents=True)
        self._start_supervisor()
        for _ in range(self._slots):  # they start while the driver prepares the first trials
            self._spawn()

    def start(self, run: Run, workers: Mapping[str, int]) -> None:  # noqa: ARG002 (the engine has only this machine)
        if self._control is None:
            self._start_supervisor()
        worker = next((each for each in self._workers.values() if each.free), None) or self._spawn()
        worker.run = run
        worker.output.expect(run)
        _send(worker.link, {"run": run_message(run)})

    def request_end(self, trial: int, attempt: int) -> None:
        if (worker := self._running(trial, attempt)) is not None:
            _send(worker.link, {"end": [trial, attempt]})

    def acknowledge_report(self, trial: int, attempt: int, number: int) -> None:
        if (worker := self._running(trial, attempt)) is not None:
            _send(worker.link, {"judged": [trial, attempt, number]})

    def set_knobs(self, trial: int, attempt: int, setting: Mapping[str, Any]) -> None:
        if (worker := self._running(trial, attempt)) is not None:
            _send(worker.link, {"knobs": [trial, attempt, dict(setting)]})

    def give_notice(self, trial: int, attempt: int, seconds_left: float) -> None:
        if (worker := self._running(trial, attempt)) is not None:
            _send(worker.link, {"notice": [trial, attempt, seconds_left]})

    def kill(self, trial: int, attempt: int) -> None:
        if (worker := self._running(trial, attempt)) is not None and self._control is not None:
            worker.killed = True
            _send(self._control, {"kill": worker.id})

    def wait(self, timeout: float | None) -> list[Event]:
        while self._ended_ids:
            (self._spools / f"{self._ended_ids.pop()}.spool").unlink(missing_ok=True)
        self._memory_kills.check()
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._events and not self._woke:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            for key, _ in self._selector.select(left):
                if key.fd in self._selector.get_map():  # an earlier handler may have closed it
                    handler: Callable[[], None] = key.data
                    handler()
            if left == 0.0:
                break
        self._woke = False
        events, self._events = self._events, []
        return events

    def wake(self) -> None:
        if self._waker >= 0:
            os.eventfd_write(self._waker, 1)

    def machine_lost(self, machine: str) -> list[Event]:  # noqa: ARG002 (the driver runs on it)
        return []

    def status(self) -> list[WorkerStatus]:
        return [
            WorkerStatus(f"worker {worker.id}", worker.pid, worker.run.trial if worker.run else None)
            for worker in self._workers.values()
        ]

    def close(self) -> None:
        if self._control is not None:
            self._close_control()
        if self._supervisor is not None:
            try:
                self._supervisor.wait(_CLOSE_SECONDS)
            except subprocess.TimeoutExpired:  # the supervisor or its watchdog was stopped by a signal
                self._supervisor.terminate()
                self._supervisor.send_signal(signal.SIGCONT)
                self._supervisor.wait()
            self._supervisor = None
        for worker in list(self._workers.values()):
            self._read_output(worker)
            self._forget(worker)
        if self._waker >= 0:
            waker, self._waker = self._waker, -1
            self._selector.close()
            os.close(waker)

    # --- processes --------------------------------------------------------------------------------------

    @property
    def _spools(self) -> Path:
        return recovery.spool_folder(self._folder)

    def _start_supervisor(self) -> None:
        settings = {
            "target": self._target,
            "spools": str(self._spools),
            "durable": self._durable,
            "clock_offset": self._clock.offset,
        }
        threads = thread_limits(threads_per_trial(len(os.sched_getaffinity(0)), self._slots))
        alive_file = recovery.alive_file(self._folder)
        self._supervisor, self._control = start_supervisor(alive_file, settings, threads)
        self._selector.register(self._control, selectors.EVENT_READ, self._read_supervisor)

    def _spawn(self) -> _LocalWorker:
        """Request a new worker from the supervisor, and return it.

        Messages to the worker are delivered when it has started.
        """
        assert self._control is not None
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            with theirs:
                read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
                os.set_blocking(read_fd, False)
                worker = _LocalWorker(self._next_id, ours, read_fd)
                self._next_id += 1
                try:
                    message = json.dumps({"spawn": worker.id}).encode()
                    with contextlib.suppress(OSError):  # the supervisor has ended; _read_supervisor() handles that
                        socket.send_fds(self._control, [message], [theirs.fileno(), write_fd])
                finally:
                    os.close(write_fd)
        except OSError as error:
            raise ThriftuneError(
                f"cannot start another worker beside the {len(self._workers)} that run: {error}; "
                "give fewer workers, or allow more open files ('ulimit -n')"
            ) from error
        self._workers[worker.id] = worker
        self._selector.register(ours, selectors.EVENT_READ, lambda: self._read_link(worker))
        self._selector.register(read_fd, selectors.EVENT_READ, lambda: self._read_output_chunk(worker))
        return worker

    def _running(self, trial: int, attempt: int) -> _LocalWorker | None:
        for worker in self._workers.values():
            if worker.run is not None and (worker.run.trial, worker.run.attempt) == (trial, attempt):
                return worker
        return None

    # --- input ------------------------------------------------------------------------------------------

    def _woken(self) -> None:
        self._woke = True
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._waker)

    def _read_supervisor(self) -> None:
        """Process a message of the supervisor, or its end."""
        assert self._control is not None
        try:
            message = self._control.recv(4096)
        except ConnectionError:
            message = b""
        if not message:
            self._supervisor_ended()
            return
        news = json.loads(message)
        self._failed_starts = 0
        worker = self._workers.get(news["worker"])
        if worker is None:
            return
        if news["kind"] == "started":
            worker.pid = news["pid"]
        elif news["kind"] == "ended":
            self._worker_ended(worker, news["status"])
        else:
            self._run_lost(worker, news["why"])
            self._forget(worker)

    def _supervisor_ended(self) -> None:
        """Report the loss of all workers, because the supervisor has ended."""
        self._close_control()
        if self._supervisor is not None:
            self._supervisor.send_signal(signal.SIGCONT)  # its watchdog may be stopped, and could not end then
            try:
                self._supervisor.wait(_CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                self._supervisor.kill()
                self._supervisor.wait()
        recovery.wait_for_processes(self._folder)
        for worker in list(self._workers.values()):
            self._read_rest(worker)
            self._run_lost(worker, "the supervisor process of the workers was ended from outside")
            self._forget(worker)
        self._failed_starts += 1
        if self._failed_starts >= _MAX_FAILED_STARTS and self._supervisor is not None:
            raise ThriftuneError(
                f"the supervisor process of the workers ends right after its start, with status "
                f"{self._supervisor.returncode}; its standard error says why"
            )

    def _close_control(self) -> None:
        """Close the connection to the supervisor, which then ends its workers and itself."""
        assert self._control is not None
        with contextlib.suppress(KeyError):
            self._selector.unregister(self._control)
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)  # a fork of this process may hold the socket open
        self._control.close()
        self._control = None

    def _read_link(self, worker: _LocalWorker) -> bool:
        """Process some data that the worker has sent; return False if there was none."""
        try:
            chunk = worker.link.recv(_CHUNK_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionError:
            chunk = b""
        if not chunk:  # the worker is ending; the supervisor will report its wait status
            with contextlib.suppress(KeyError):
                self._selector.unregister(worker.link)
            return False
        if worker.fault is not None:
            return True
        for line in worker.lines.feed(chunk):
            if line == GOODBYE:
                worker.leaving = True
            elif worker.fault is None:
                self._take_in(worker, line)
        if worker.lines.unfinished_bytes > MESSAGE_BYTES:
            self._stop_reading(worker, "the trial has sent its driver a message of more than 16 MiB")
        return True

    def _stop_reading(self, worker: _LocalWorker, why: str) -> None:
        """Kill a worker whose messages cannot be read.

        It cannot continue, because one of these messages may report the end of its run.
        """
        worker.fault = why
        worker.lines = LineBuffer()
        if self._control is not None:
            _send(self._control, {"kill": worker.id})

    def _take_in(self, worker: _LocalWorker, line: bytes) -> None:
        """Process one message of the worker."""
        try:
            event = from_line(line)
        except ValueError:
            event = None
        if not isinstance(event, _FROM_WORKERS):
            self._stop_reading(
                worker, f"the trial has written to its worker's connection to the driver: {line[:80]!r}"
            )
            return
        run = worker.run
        if run is None or event.attempt != run.attempt or event.trial != run.trial:
            return  # a thread or process of an earlier attempt has sent it
        if isinstance(event, (Ended, Failed, Lost)):
            worker.run = None
            self._read_output(worker)  # all output must be stored before the end is reported
            if isinstance(event, Failed):
                event = replace(event, output=worker.output.tail)
        self._events.append(event)

    def _read_output_chunk(self, worker: _LocalWorker) -> bool:
        """Store some output of the worker; return False if there was none."""
        try:
            chunk = os.read(worker.output_fd, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            with contextlib.suppress(KeyError):
                self._selector.unregister(worker.output_fd)
            return False
        failure = worker.output.take(chunk)
        if failure is not None and not self._output_failed:
            self._output_failed = True
            run, error = failure
            why = f"the output of trials cannot be stored: {error.strerror or error}; the trials go on without it"
            self._events.append(Warned(self._clock.now(), run.trial, run.attempt, why))
        return True

    def _read_output(self, worker: _LocalWorker) -> None:
        """Store all output that the pipe holds now.

        The number of reads is limited, because a child process of the worker may never stop printing.
        """
        for _ in range(_PIPE_READS):
            if not self._read_output_chunk(worker):
                break

    def _read_rest(self, worker: _LocalWorker) -> None:
        """Read all that a worker has sent and printed before its end."""
        while self._read_link(worker):
            pass
        self._read_output(worker)

    def _worker_ended(self, worker: _LocalWorker, status: int) -> None:
        """Report the end of the worker's run, if it has one, and forget the worker.

        `status`: the wait status of its process.
        """
        self._read_rest(worker)
        run = worker.run
        if run is not None:
            cause = exit_cause(status, self._memory_kills)
            if worker.fault is not None:
                cause = ExitCause("exited", worker.fault)
            if worker.killed or cause.kind is None or not worker.output.begun:
                self._run_lost(worker, cause.message)
            else:
                now, output = self._clock.now(), worker.output.tail
                self._events.append(Failed(now, run.trial, run.attempt, cause.kind, cause.message, output))
        self._forget(worker)

    def _run_lost(self, worker: _LocalWorker, why: str) -> None:
        """Report that the worker's run was killed or lost, if it has one."""
        if (run := worker.run) is not None:
            if worker.killed:
                self._events.append(Killed(self._clock.now(), run.trial, run.attempt, worker.output.tail))
            else:
                self._events.append(Lost(self._clock.now(), run.trial, run.attempt, why))

    def _forget(self, worker: _LocalWorker) -> None:
        """Close all files of a worker that has ended, and remove the states that it had yet to upload."""
        self._workers.pop(worker.id, None)
        self._ended_ids.append(worker.id)
        for file in (worker.link, worker.output_fd):
            with contextlib.suppress(KeyError):
                self._selector.unregister(file)
        if worker.run is not None and worker.run.objects:
            from thriftune.training.object_checkpoints import remove_scratch  # late: few studies need it

            remove_scratch(worker.run)
        worker.output.close()
        worker.link.close()
        os.close(worker.output_fd)


def _send(link: socket.socket, message: dict[str, Any]) -> None:
    """Send a message to a worker or to the supervisor.

    Does nothing if the receiver has ended. Its end is noticed elsewhere.
    """
    with contextlib.suppress(OSError):
        link.sendall(json.dumps(message).encode() + b"\n")
