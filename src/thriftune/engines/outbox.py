"""Writes what an attempt says to the worker's spool file, and sends it to the driver.

One thread does all of it, for two reasons. Reports of several threads get one order, in which they are numbered,
written and sent. And Python runs signal handlers on the main thread only, so that no handler can interrupt a
write halfway: a handler may report while the main thread does, and may raise.
"""

from __future__ import annotations

import _thread  # not threading: code that joins every thread it finds must not wait for this one
import contextlib
import errno
import itertools
import os
import queue
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from thriftune.errors import SettingError
from thriftune.state.events import DiskFull, Event, Reported
from thriftune.training.messages import GOODBYE, MESSAGE_BYTES, to_line
from thriftune.training.run import EndTrial, Run

_SPOOL_BYTES = 1 << 16
"""A spool longer than this is emptied once all it holds is known to be recorded."""

_DISK_RETRY_SECONDS = 0.2


@dataclass(slots=True, eq=False)
class _Attempt:
    """The attempt that may send now."""

    trial: int
    attempt: int
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))  # of its reports


class _Letter:
    """One event on its way, and what came of it. `done` is locked until it has been sent, or cannot be."""

    __slots__ = ("done", "error", "event", "goodbye", "last", "number")

    def __init__(self, event: Event, *, last: bool, goodbye: bool) -> None:
        self.event = event
        self.last = last
        self.goodbye = goodbye
        self.number = 0
        self.error: BaseException | None = None
        self.done = _thread.allocate_lock()
        self.done.acquire()


class Outbox:
    """Sends the events of one attempt after another. Any thread and any signal handler may call send().

    `told_to_end` is asked while the disk is full, without waiting for other threads.
    """

    def __init__(
        self, sock: socket.socket, spool: Path, *, durable: bool, told_to_end: Callable[[], bool]
    ) -> None:
        self._socket = sock
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_DSYNC if durable else 0)
        self._spool = os.open(spool, flags, 0o644)
        self._spooled = 0  # bytes in the spool
        self._told_to_end = told_to_end
        self._pid = os.getpid()
        self._attempt: _Attempt | None = None  # None between attempts
        self._letters: queue.SimpleQueue[_Letter] = queue.SimpleQueue()  # its put() is safe in signal handlers
        self._started = False

    def begin(self, run: Run) -> None:
        """Lets this attempt send. Called when all that earlier ones sent is recorded by the driver."""
        if not self._started:  # late, so that whoever counts what threads do can begin before there is one
            self._started = True
            _thread.start_new_thread(self._work, ())
        if self._spooled > _SPOOL_BYTES:
            os.ftruncate(self._spool, 0)
            self._spooled = 0
        self._attempt = _Attempt(run.trial, run.attempt)

    def send(self, event: Event, *, last: bool = False, goodbye: bool = False) -> int:
        """Returns when the event is in the spool and on its way. A report's number is returned, else 0.

        Raises EndTrial for an event of an attempt that is over: a thread it left behind ends by that. `last`:
        nothing of this attempt follows. `goodbye`: nothing of this worker does.
        """
        if os.getpid() != self._pid:  # its numbers would be taken for those of this process
            raise SettingError("a forked child of the training function cannot report; let it do so itself")
        letter = _Letter(event, last=last, goodbye=goodbye)
        self._letters.put(letter)
        letter.done.acquire()
        if letter.error is not None:
            raise letter.error
        return letter.number

    def _work(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the training function's
        while True:
            letter = self._letters.get()
            try:
                self._deliver(letter)
            except BaseException as error:
                letter.error = error
            letter.done.release()

    def _deliver(self, letter: _Letter) -> None:
        attempt, event = self._attempt, letter.event
        of = event.trial, event.attempt  # type: ignore[attr-defined]
        if attempt is None or of != (attempt.trial, attempt.attempt):
            raise EndTrial
        if type(event) is Reported:
            letter.number = next(attempt.numbers)
            event = Reported(
                event.at, event.trial, event.attempt, letter.number, event.step, event.metrics, event.saved
            )
        line = to_line(event)
        if len(line) > MESSAGE_BYTES:
            raise SettingError(f"a report of {len(line):,} bytes is too long; it may have at most 16 MiB")
        try:
            self._keep(line, attempt, event.at)
        except SettingError:
            if not letter.last:  # how the attempt ended is worth sending although a kill may lose it
                raise
        if letter.last:
            self._attempt = None
        try:
            self._socket.sendall(GOODBYE + b"\n" + line if letter.goodbye else line)
        except OSError:
            os._exit(0)  # the driver is gone, and what was said is safe

    def _keep(self, line: bytes, attempt: _Attempt, at: float) -> None:
        """Writes to the spool. While the disk is full, waits for room or for the word to end."""
        said = False
        while True:
            try:
                written = os.write(self._spool, line)
            except OSError as error:
                if error.errno == errno.EFBIG:
                    raise SettingError(
                        "the limit that the trial has set on the size of files (RLIMIT_FSIZE) leaves no room for "
                        "what it reports"
                    ) from error
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
            else:
                self._spooled += written
                if written == len(line):
                    return
                line = b"\n" + line.lstrip(b"\n")  # what got through is a torn line, to be passed over
                continue  # why it was short, the next write tells
            if not said:
                said = True
                why = "the disk that holds the study is full: make room, training goes on by itself then"
                with contextlib.suppress(OSError):
                    self._socket.sendall(to_line(DiskFull(at, attempt.trial, attempt.attempt, why)))
            if self._told_to_end():
                # Nothing can be said any more, and it was not the trial's fault: go as a lost machine goes.
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(_DISK_RETRY_SECONDS)
