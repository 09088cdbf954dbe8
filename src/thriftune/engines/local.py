"""Trials on this machine: warm worker processes, one trial at a time each."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from thriftune.common.clock import WallClock
from thriftune.common.threads import limited_to
from thriftune.engines import recovery
from thriftune.engines.exit_causes import Ending, MemoryKills, ending
from thriftune.engines.protocol import WorkerStatus
from thriftune.engines.worker_output import WorkerOutput
from thriftune.errors import ThriftuneError
from thriftune.state.events import (
    AttributeSet,
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
from thriftune.training.messages import GOODBYE, MESSAGE_BYTES, Lines, from_line, run_message
from thriftune.training.run import Run

_CLOSED_WITHIN_SECONDS = 10.0

_CHUNK_BYTES = 262_144
_PIPE_READS = 5
"""So many reads take all that a pipe can hold: a megabyte at most."""

_STILLBORN_LIMIT = 3
"""A nursery that ends this often in a row without having borne a worker will not do better the next time."""


@dataclass(slots=True)
class _Worker:
    id: int
    link: socket.socket
    output: int  # the reading end of its stdout and stderr
    pid: int | None = None
    run: Run | None = None  # what it was given and has not ended
    killed: bool = False  # by our own decision
    leaving: bool = False  # it has said goodbye
    fault: str | None = None  # why it is not to be trusted any more
    lines: Lines = field(default_factory=Lines)
    printed: WorkerOutput = field(default_factory=WorkerOutput)


class LocalEngine:
    """Keeps up to `slots` workers, replaces those that die, and tells a trial's fault from a machine's.

    `durable`: what a trial says shall also survive the machine, where the folder does.
    """

    def __init__(self, folder: Path, slots: int, target: dict[str, Any], *, durable: bool = False) -> None:
        self._folder = folder
        self._slots = slots
        self._target = target
        self._durable = durable
        self._clock = WallClock()
        self._workers: dict[int, _Worker] = {}
        self._next_id = 0
        self._nursery: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._selector = selectors.DefaultSelector()
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._waker, selectors.EVENT_READ, self._woken)
        self._events: list[Event] = []
        self._woke = False
        self._stillborn = 0  # nurseries in a row that ended before they bore a worker
        self._output_failed = False  # what a trial printed could not be written, which was said
        self._memory_kills = MemoryKills()
        self._spent: list[int] = []  # ids of dead workers, all of whose words will be recorded by the next wait()

    # --- the protocol -----------------------------------------------------------------------------------

    def recover(self) -> list[Event]:
        return recovery.recover(self._folder)

    def open(self) -> None:
        shutil.rmtree(self._spools, ignore_errors=True)
        self._spools.mkdir(parents=True)
        self._start_nursery()
        for _ in range(self._slots):  # they are there by the time the first trials are
            self._spawn()

    def start(self, run: Run, workers: Mapping[str, int]) -> None:  # noqa: ARG002 (there is only this machine)
        if self._control is None:
            self._start_nursery()
        fit = (w for w in self._workers.values() if w.run is None and not (w.killed or w.leaving or w.fault))
        worker = next(fit, None) or self._spawn()
        worker.run = run
        worker.printed.expect(run)
        _send(worker.link, {"run": run_message(run)})

    def request_end(self, trial: int, attempt: int) -> None:
        if (worker := self._running(trial, attempt)) is not None:
            _send(worker.link, {"end": [trial, attempt]})

    def acknowledge_report(self, trial: int, attempt: int, number: int) -> None:
        if (worker := self._running(trial, attempt)) is not None:
            _send(worker.link, {"judged": [trial, attempt, number]})

    def set_knobs(self, trial: int, attempt: int, setting: Mapping[str, Any]) -> None:
        if (worker := self._running(trial, attempt)) is not None:
            _send(worker.link, {"turn": [trial, attempt, dict(setting)]})

    def kill(self, trial: int, attempt: int) -> None:
        if (worker := self._running(trial, attempt)) is not None and self._control is not None:
            worker.killed = True
            _send(self._control, {"kill": worker.id})

    def wait(self, timeout: float | None) -> list[Event]:
        while self._spent:
            (self._spools / f"{self._spent.pop()}.spool").unlink(missing_ok=True)
        self._memory_kills.look()
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._events and not self._woke:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            for key, _ in self._selector.select(left):
                if key.fd in self._selector.get_map():  # it may be gone by what came before it
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

    def machine_lost(self, machine: str) -> list[Event]:  # noqa: ARG002 (whoever asks is on it)
        return []

    def status(self) -> list[WorkerStatus]:
        return [
            WorkerStatus(f"worker {w.id}", w.pid, w.run.trial if w.run else None) for w in self._workers.values()
        ]

    def close(self) -> None:
        if self._control is not None:
            self._hang_up()
        if self._nursery is not None:
            try:
                self._nursery.wait(_CLOSED_WITHIN_SECONDS)
            except subprocess.TimeoutExpired:  # somebody has stopped it, or the warden, or both
                self._nursery.terminate()
                self._nursery.send_signal(signal.SIGCONT)
                self._nursery.wait()
            self._nursery = None
        for worker in list(self._workers.values()):
            self._read_all_output(worker)
            self._forget(worker)
        if self._waker >= 0:
            waker, self._waker = self._waker, -1
            self._selector.close()
            os.close(waker)

    # --- processes --------------------------------------------------------------------------------------

    @property
    def _spools(self) -> Path:
        return recovery.spool_folder(self._folder)

    def _start_nursery(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Locked before it is handed over, so that there is no moment in which a nursery lives and nobody knows.
        with (
            theirs,
            os.fdopen(os.memfd_create("settings"), "w+") as written,  # a command may be too long for an argument
            recovery.alive_file(self._folder).open("a") as held,
        ):
            fcntl.flock(held, fcntl.LOCK_SH)
            settings = {
                "target": self._target,
                "spools": str(self._spools),
                "durable": self._durable,
                "clock_offset": self._clock.offset,
            }
            json.dump([sys.path, theirs.fileno(), held.fileno(), settings], written)
            written.seek(0)
            code = (
                "import sys, json\n"
                "with open(int(sys.argv[1])) as written: path, control, alive, settings = json.load(written)\n"
                "sys.path[:] = path\n"
                "from thriftune.engines.supervisor import main; main(control, alive, settings)"
            )
            threads = limited_to(len(os.sched_getaffinity(0)) // self._slots)
            try:
                self._nursery = subprocess.Popen(
                    [sys.executable, "-c", code, str(written.fileno())],
                    pass_fds=[theirs.fileno(), held.fileno(), written.fileno()],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    env={**threads, **os.environ},  # a user's own win
                )
            except OSError as error:
                ours.close()
                raise ThriftuneError(f"no process can be started to keep the workers: {error}") from error
        self._control = ours
        self._selector.register(ours, selectors.EVENT_READ, self._nursery_speaks)

    def _spawn(self) -> _Worker:
        assert self._control is not None
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            with theirs:
                reading, writing = os.pipe2(os.O_CLOEXEC)
                os.set_blocking(reading, False)
                worker = _Worker(self._next_id, ours, reading)
                self._next_id += 1
                try:
                    message = json.dumps({"spawn": worker.id}).encode()
                    with contextlib.suppress(OSError):  # the nursery is gone, which its own line tells next
                        socket.send_fds(self._control, [message], [theirs.fileno(), writing])
                finally:
                    os.close(writing)
        except OSError as error:
            raise ThriftuneError(
                f"no worker can be added to the {len(self._workers)} there are: {error}; "
                "give fewer workers, or allow more open files ('ulimit -n')"
            ) from error
        self._workers[worker.id] = worker
        self._selector.register(ours, selectors.EVENT_READ, lambda: self._worker_speaks(worker))
        self._selector.register(reading, selectors.EVENT_READ, lambda: self._read_output(worker))
        return worker

    def _running(self, trial: int, attempt: int) -> _Worker | None:
        for worker in self._workers.values():
            if worker.run is not None and (worker.run.trial, worker.run.attempt) == (trial, attempt):
                return worker
        return None

    # --- what comes in ----------------------------------------------------------------------------------

    def _woken(self) -> None:
        self._woke = True
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._waker)

    def _nursery_speaks(self) -> None:
        assert self._control is not None
        try:
            message = self._control.recv(4096)
        except ConnectionError:
            message = b""
        if not message:
            self._nursery_died()
            return
        news = json.loads(message)
        self._stillborn = 0
        worker = self._workers.get(news.get("born", news.get("died", news.get("unborn"))))
        if worker is None:
            return
        if "born" in news:
            worker.pid = news["pid"]
        elif "died" in news:
            self._worker_died(worker, news["status"])
        else:
            self._lost(worker, news["why"])
            self._forget(worker)

    def _nursery_died(self) -> None:
        """Takes in that somebody killed it, and its workers with it; another is started when it is needed."""
        self._hang_up()
        if self._nursery is not None:
            self._nursery.send_signal(signal.SIGCONT)  # if the warden was stopped, it could not end
            try:
                self._nursery.wait(_CLOSED_WITHIN_SECONDS)
            except subprocess.TimeoutExpired:
                self._nursery.kill()
                self._nursery.wait()
        recovery.wait_for_processes(self._folder)
        for worker in list(self._workers.values()):
            self._drain(worker)
            self._lost(worker, "the process that keeps the workers was ended from outside")
            self._forget(worker)
        self._stillborn += 1
        if self._stillborn >= _STILLBORN_LIMIT and self._nursery is not None:
            raise ThriftuneError(
                f"the process that keeps the workers ends as soon as it is started, with status "
                f"{self._nursery.returncode}; what it printed to standard error says why"
            )

    def _hang_up(self) -> None:
        assert self._control is not None
        with contextlib.suppress(KeyError):
            self._selector.unregister(self._control)
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)  # a fork of this process may have the line, too
        self._control.close()
        self._control = None

    def _worker_speaks(self, worker: _Worker) -> bool:
        """Takes in what the worker sent; False: nothing more will come, or nothing is there now."""
        try:
            chunk = worker.link.recv(_CHUNK_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionError:
            chunk = b""
        if not chunk:  # it is ending; the nursery will say how
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
            self._distrust(worker, "the trial has sent its driver a message of more than 16 MiB")
        return True

    def _distrust(self, worker: _Worker, why: str) -> None:
        """Ends a worker that cannot be understood: the news of its run's end may be among what it said."""
        worker.fault = why
        worker.lines = Lines()
        if self._control is not None:
            _send(self._control, {"kill": worker.id})

    def _take_in(self, worker: _Worker, line: bytes) -> None:
        try:
            event = from_line(line)
        except ValueError:
            event = None
        if not isinstance(event, (Reported, UsageMeasured, Ended, Failed, Lost, Warned, DiskFull, AttributeSet)):
            self._distrust(worker, f"the trial has written to its worker's line to the driver: {line[:80]!r}")
            return
        run = worker.run
        if run is None or event.attempt != run.attempt or event.trial != run.trial:
            return  # from something that an earlier attempt has left behind
        if isinstance(event, (Ended, Failed, Lost)):
            worker.run = None
            self._read_all_output(worker)  # now, so that who hears of the end finds all of it
            if isinstance(event, Failed):
                event = replace(event, output=worker.printed.tail)
        self._events.append(event)

    def _read_output(self, worker: _Worker) -> bool:
        """Keeps what the worker's attempts print; False: nothing more is there now."""
        try:
            chunk = os.read(worker.output, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            with contextlib.suppress(KeyError):
                self._selector.unregister(worker.output)
            return False
        trouble = worker.printed.take(chunk)
        if trouble is not None and not self._output_failed:
            self._output_failed = True
            run, error = trouble
            why = f"what trials print cannot be kept: {error.strerror or error}; they go on without it"
            self._events.append(Warned(self._clock.now(), run.trial, run.attempt, why))
        return True

    def _read_all_output(self, worker: _Worker) -> None:
        """All that is there; not what a child that prints without end adds meanwhile."""
        for _ in range(_PIPE_READS):
            if not self._read_output(worker):
                break

    def _drain(self, worker: _Worker) -> None:
        while self._worker_speaks(worker):
            pass
        self._read_all_output(worker)

    def _worker_died(self, worker: _Worker, status: int) -> None:
        self._drain(worker)
        run = worker.run
        if run is not None:
            end = ending(status, self._memory_kills)
            if worker.fault is not None:
                end = Ending("exited", worker.fault)
            if worker.killed or end.kind is None or not worker.printed.begun:
                self._lost(worker, end.message)
            else:
                failed = Failed(
                    self._clock.now(), run.trial, run.attempt, end.kind, end.message, worker.printed.tail
                )
                self._events.append(failed)
        self._forget(worker)

    def _lost(self, worker: _Worker, why: str) -> None:
        """Its run, if it had one, has ended through no fault of the trial's."""
        if (run := worker.run) is not None:
            if worker.killed:
                self._events.append(Killed(self._clock.now(), run.trial, run.attempt, worker.printed.tail))
            else:
                self._events.append(Lost(self._clock.now(), run.trial, run.attempt, why))

    def _forget(self, worker: _Worker) -> None:
        self._workers.pop(worker.id, None)
        self._spent.append(worker.id)
        for line in (worker.link, worker.output):
            with contextlib.suppress(KeyError):
                self._selector.unregister(line)
        worker.printed.close()
        worker.link.close()
        os.close(worker.output)


def _send(line: socket.socket, message: dict[str, Any]) -> None:
    """A line whose other end is gone is not an error here: the nursery tells of the death."""
    with contextlib.suppress(OSError):
        line.sendall(json.dumps(message).encode() + b"\n")
