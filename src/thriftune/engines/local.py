"""Trials on this machine: warm worker processes, one trial at a time each."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from thriftune.engines import Doing
from thriftune.engines.endings import ending, out_of_memory_kills
from thriftune.engines.wire import GOODBYE, Lines, from_line, read_spool
from thriftune.engines.worker import MARK
from thriftune.errors import StudyBusy
from thriftune.events import Ended, Event, Failed, Killed, Lost
from thriftune.trial import Run

_OUTPUT_BYTES = 16_384
"""How much of the end of an attempt's output is kept for the case that it fails."""

_GONE_WITHIN_SECONDS = 30.0

_RUN_FIELDS = tuple(field.name for field in fields(Run))


@dataclass(slots=True)
class _Worker:
    id: int
    link: socket.socket
    output: int  # the reading end of its stdout and stderr
    pid: int | None = None
    run: Run | None = None  # what it was given and has not ended
    killed: bool = False  # by our own decision
    leaving: bool = False  # it has said goodbye
    lines: Lines = field(default_factory=Lines)
    tail: bytes = b""


class LocalEngine:
    """Keeps up to `slots` workers, replaces those that die, and tells a trial's fault from a machine's."""

    def __init__(self, folder: Path, slots: int, target: dict[str, Any]) -> None:
        self._folder = folder
        self._slots = slots
        self._target = target
        self._workers: dict[int, _Worker] = {}
        self._next_id = 0
        self._nursery: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._selector = selectors.DefaultSelector()
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._waker, selectors.EVENT_READ, self._woken)
        self._events: list[Event] = []
        self._memory_kills = 0
        self._memory_kills_read_at = 0.0

    # --- the protocol -----------------------------------------------------------------------------------

    def recover(self) -> list[Event]:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._wait_until_gone()
        spools = sorted(self._spools.glob("*.spool"))
        return sorted((event for spool in spools for event in read_spool(spool)), key=lambda event: event.at)

    def open(self) -> None:
        shutil.rmtree(self._spools, ignore_errors=True)
        self._spools.mkdir(parents=True)
        self._memory_kills = out_of_memory_kills()
        self._start_nursery()
        for _ in range(self._slots):  # they import what the training function needs while others are set up
            self._spawn()

    def start(self, run: Run, machine: str) -> None:  # noqa: ARG002 (there is only this one)
        if self._control is None:
            self._start_nursery()
        idle = next((w for w in self._workers.values() if w.run is None and not (w.killed or w.leaving)), None)
        worker = idle or self._spawn()
        worker.run = run
        now = time.monotonic()
        if now - self._memory_kills_read_at > 1.0:  # reading it costs more than a short trial
            self._memory_kills, self._memory_kills_read_at = out_of_memory_kills(), now
        _send(worker.link, {"run": [getattr(run, name) for name in _RUN_FIELDS]})

    def tell_to_end(self, trial: int, attempt: int) -> None:
        if (worker := self._running(trial, attempt)) is not None:
            _send(worker.link, {"end": [trial, attempt]})

    def kill(self, trial: int, attempt: int) -> None:
        if (worker := self._running(trial, attempt)) is not None and self._control is not None:
            worker.killed = True
            _send(self._control, {"kill": worker.id})

    def wait(self, timeout: float | None) -> list[Event]:
        if not self._events:
            for key, _ in self._selector.select(timeout if timeout is None else max(0.0, timeout)):
                if key.fd in self._selector.get_map():  # it may be gone by what came before it
                    handler: Callable[[], None] = key.data
                    handler()
        events, self._events = self._events, []
        return events

    def wake(self) -> None:
        os.eventfd_write(self._waker, 1)

    def doing(self) -> list[Doing]:
        return [Doing(f"worker {w.id}", w.pid, w.run.trial if w.run else None) for w in self._workers.values()]

    def close(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._nursery is not None:
            self._nursery.wait()
            self._nursery = None
        for worker in list(self._workers.values()):
            self._forget(worker)
        if self._selector.get_map():
            self._selector.close()
            os.close(self._waker)

    # --- processes --------------------------------------------------------------------------------------

    @property
    def _spools(self) -> Path:
        return self._folder / "spools"

    @property
    def _alive_file(self) -> Path:
        return self._folder / "alive"

    def _wait_until_gone(self) -> None:
        """The processes of an earlier driver end by themselves when it does; two of a trial must never be."""
        deadline = time.monotonic() + _GONE_WITHIN_SECONDS
        with self._alive_file.open("a") as alive:
            while True:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                if time.monotonic() > deadline:
                    raise StudyBusy(
                        f"processes of an earlier run still hold {self._alive_file} after "
                        f"{_GONE_WITHIN_SECONDS:g} s; see which with 'fuser {self._alive_file}', then resume"
                    )
                time.sleep(0.01)

    def _start_nursery(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            settings = {"target": self._target, "spools": str(self._spools)}
            start = [sys.path, theirs.fileno(), str(self._alive_file), settings]
            code = (
                "import sys, json; path, fd, alive, settings = json.loads(sys.argv[1]); sys.path[:] = path; "
                "from thriftune.engines.nursery import main; main(fd, alive, settings)"
            )
            self._nursery = subprocess.Popen(
                [sys.executable, "-c", code, json.dumps(start)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**_thread_limits(self._slots), **os.environ},
            )
        self._control = ours
        self._selector.register(ours, selectors.EVENT_READ, self._nursery_speaks)

    def _spawn(self) -> _Worker:
        assert self._control is not None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        reading, writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reading, False)
        worker = _Worker(self._next_id, ours, reading)
        self._next_id += 1
        with theirs:
            try:
                message = json.dumps({"spawn": worker.id}).encode()
                socket.send_fds(self._control, [message], [theirs.fileno(), writing])
            except OSError:
                pass  # the nursery is gone, which its own line tells next
            finally:
                os.close(writing)
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
        worker = self._workers.get(news.get("born", news.get("died")))
        if worker is None:
            return
        if "born" in news:
            worker.pid = news["pid"]
        else:
            moved = out_of_memory_kills() > self._memory_kills
            self._worker_died(worker, news["status"], moved)
            self._memory_kills = out_of_memory_kills()

    def _nursery_died(self) -> None:
        """Somebody killed it, and its workers went with it; another is started when it is needed."""
        assert self._control is not None
        self._selector.unregister(self._control)
        self._control.close()
        self._control = None
        if self._nursery is not None:
            self._nursery.wait()
        self._wait_until_gone()
        for worker in list(self._workers.values()):
            self._drain(worker)
            if worker.run is not None:
                self._lost(worker, "the process that keeps the workers was ended from outside")
            self._forget(worker)

    def _worker_speaks(self, worker: _Worker) -> bool:
        """Takes in what the worker sent; False: nothing more will come, or nothing is there now."""
        try:
            chunk = worker.link.recv(262_144, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionError:
            chunk = b""
        if not chunk:  # it is ending; the nursery will say how
            with contextlib.suppress(KeyError):
                self._selector.unregister(worker.link)
            return False
        for line in worker.lines.feed(chunk):
            if line == GOODBYE:
                worker.leaving = True
                continue
            event = from_line(line)
            if isinstance(event, Failed):
                while self._read_output(worker):
                    pass
                event = Failed(event.at, event.trial, event.attempt, event.kind, event.error, _text(worker.tail))
            if isinstance(event, (Ended, Failed, Lost)):
                worker.run = None
            self._events.append(event)
        return True

    def _read_output(self, worker: _Worker) -> bool:
        """Keeps the end of what the current attempt prints; False: nothing more is there now."""
        try:
            chunk = os.read(worker.output, 262_144)
        except BlockingIOError:
            return False
        if not chunk:
            with contextlib.suppress(KeyError):
                self._selector.unregister(worker.output)
            return False
        *before, last = chunk.rsplit(MARK, 1)
        worker.tail = (last if before else worker.tail + last)[-_OUTPUT_BYTES:]
        return True

    def _drain(self, worker: _Worker) -> None:
        while self._worker_speaks(worker):
            pass
        while self._read_output(worker):
            pass

    def _worker_died(self, worker: _Worker, status: int, out_of_memory: bool) -> None:
        self._drain(worker)
        run = worker.run
        if run is not None:
            end = ending(status, out_of_memory)
            now = time.time()
            if worker.killed:
                self._events.append(Killed(now, run.trial, run.attempt, _text(worker.tail)))
            elif end.kind is None:
                self._lost(worker, end.message)
            else:
                output = _text(worker.tail)
                self._events.append(Failed(now, run.trial, run.attempt, end.kind, end.message, output))
        self._forget(worker)

    def _lost(self, worker: _Worker, why: str) -> None:
        assert worker.run is not None
        self._events.append(Lost(time.time(), worker.run.trial, worker.run.attempt, why))

    def _forget(self, worker: _Worker) -> None:
        self._workers.pop(worker.id, None)
        for line in (worker.link, worker.output):
            with contextlib.suppress(KeyError):
                self._selector.unregister(line)
        worker.link.close()
        os.close(worker.output)


def _send(line: socket.socket, message: dict[str, Any]) -> None:
    """A line whose other end is gone is not an error here: the nursery tells of the death."""
    with contextlib.suppress(OSError):
        line.sendall(json.dumps(message).encode() + b"\n")


def _text(output: bytes) -> str:
    return output.decode(errors="replace").strip()


def _thread_limits(slots: int) -> dict[str, str]:
    """So that the workers' linear algebra shares the cores instead of fighting for them; a user's own win."""
    share = str(max(1, len(os.sched_getaffinity(0)) // slots))
    return {f"{name}_NUM_THREADS": share for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB")}
