"""The connection of a worker process to its driver: what the driver sends, and the events of an attempt.

`DriverLink` receives runs and requests. `Outbox` writes events to a spool file and sends them to the driver.

A single thread sends, for two reasons. Reports of several threads get one order, in which they are numbered,
written and sent. And Python runs signal handlers only on the main thread, so no handler can interrupt a write: a
handler may report while the main thread reports, and may raise.
"""

from __future__ import annotations

import _thread  # not threading: code that joins every thread it finds must not wait for the sending thread
import contextlib
import errno
import itertools
import json
import os
import queue
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thriftune.errors import SettingError
from thriftune.state.events import DiskFull, Event, Reported
from thriftune.training.messages import GOODBYE, MESSAGE_BYTES, LineBuffer, run_from, to_line
from thriftune.training.run import EndTrial, Run

_RECEIVE_BYTES = 65_536

_SPOOL_BYTES = 1 << 16
"""A longer spool file is emptied before the next attempt. The driver has recorded its events by then."""

_DISK_RETRY_SECONDS = 0.2
"""How often to retry a write to a full disk."""

_NOTICE_SECONDS = 0.01
"""How often to look for a notice at most: a training function may ask for the time left in an inner loop."""


class DriverLink:
    """The worker's connection to the driver."""

    def __init__(self, sock: socket.socket, spool: Path, *, durable: bool = False) -> None:
        self._socket = sock
        self._outbox = Outbox(sock, spool, durable=durable, end_requested=self._end_requested_now)
        self.send = self._outbox.send  # sends an event of the attempt
        self._lines = LineBuffer()
        self._inbox: list[Any] = []  # messages that were received and not processed, in order
        self._ends: set[tuple[int, int]] = set()  # the attempts that the driver wants to end
        self._judged_number = 0  # the number of the attempt's last report that was judged
        self._preempted_at: float | None = None  # when the machine will be preempted, in monotonic seconds
        self._notice_due_at = 0.0  # when to look for a notice again, in monotonic seconds
        self._setting: Mapping[str, Any] | None = None  # a new knob setting that take_setting() has not returned
        self._run: Run | None = None  # the attempt that runs
        self._lock = threading.RLock()  # held by the thread that receives messages
        self._receiving = False  # True in a signal handler that has interrupted the receiving thread

    def next_run(self) -> Run | None:
        """Wait for the next attempt and return it; None: the driver has ended."""
        while True:
            while self._inbox:
                message = self._inbox.pop(0)
                if "run" in message:
                    run = run_from(message["run"])
                    # The driver sends a run only after it has recorded how this worker's last one ended.
                    self._outbox.begin(run)
                    self._ends.clear()
                    self._judged_number = 0
                    self._setting = None
                    self._preempted_at = None
                    self._run = run
                    return run
            if not self._receive(0):
                return None

    def end_requested(self, after_report: int = 0, timeout_seconds: float = 0.0) -> bool:
        """Return whether the driver has asked the attempt to end.

        First waits until the report with the number `after_report` has been judged, or the time is over.
        """
        return self._receive_until(lambda: self._judged_number >= after_report, timeout_seconds)

    def _end_requested_now(self) -> bool:
        """Return whether the driver has asked the attempt to end.

        Returns False while another thread receives messages.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self.end_requested()
        finally:
            self._lock.release()

    def seconds_left(self) -> float | None:
        """Return the time until the machine is preempted; None without a notice."""
        now = time.monotonic()
        if now >= self._notice_due_at:
            self._notice_due_at = now + _NOTICE_SECONDS
            self._end_requested_now()  # processes the messages that have arrived
        return None if self._preempted_at is None else max(0.0, self._preempted_at - now)

    def wait_for_setting(self, seconds: float) -> None:
        """Wait for a new knob setting, or until the time is over."""
        self._receive_until(lambda: self._setting is not None, seconds)

    def take_setting(self) -> Mapping[str, Any] | None:
        """Return the latest new knob setting, once; None if there is none."""
        with self._lock:
            setting, self._setting = self._setting, None
            return setting

    def _receive_until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Process the messages that have arrived; return whether the attempt is to end.

        Waits for more until `done()` is true, the attempt is to end, or the time is over.

        Neither receives nor waits in a signal handler that has interrupted the receiving thread.
        """
        deadline = time.monotonic() + seconds
        with self._lock:
            if self._run is None:  # only next_run() receives messages now
                return False
            if self._receiving:
                return (self._run.trial, self._run.attempt) in self._ends
            try:
                self._receiving = True
                while True:
                    with contextlib.suppress(BlockingIOError):
                        if not self._receive(socket.MSG_DONTWAIT):
                            os._exit(0)
                    if self._process_inbox():
                        return True
                    left = deadline - time.monotonic()
                    if done() or left <= 0.0 or not select.select([self._socket], [], [], left)[0]:
                        return False
            finally:
                self._receiving = False

    def _process_inbox(self) -> bool:
        """Process all messages but those with a run; return whether the attempt is to end."""
        assert self._run is not None
        own = (self._run.trial, self._run.attempt)
        for message in self._inbox:
            if "end" in message:
                self._ends.add(tuple(message["end"]))
            elif "notice" in message and tuple(message["notice"][:2]) == own:
                self._preempted_at = time.monotonic() + message["notice"][2]
            elif "judged" in message and tuple(message["judged"][:2]) == own:
                self._judged_number = message["judged"][2]
            elif "knobs" in message and tuple(message["knobs"][:2]) == own:
                self._setting = message["knobs"][2]
        self._inbox = [message for message in self._inbox if "run" in message]
        return own in self._ends

    def send_last(self, outcome: Event, *, stay: bool) -> None:
        """Send how the attempt has ended.

        `stay`: this worker can run another attempt; otherwise it ends now.
        """
        with self._lock:  # from now on, only next_run() receives messages: the driver may send the next run
            self._run = None
        self._outbox.send(outcome, last=True, leaving=not stay)

    def _receive(self, flags: int) -> bool:
        """Receive messages into the inbox; return False if the driver has ended.

        `flags`: those of recv().
        """
        try:
            chunk = self._socket.recv(_RECEIVE_BYTES, flags)
        except ConnectionError:
            chunk = b""
        self._inbox.extend(json.loads(line) for line in self._lines.feed(chunk))
        return bool(chunk)


@dataclass(slots=True, eq=False)
class _SendingAttempt:
    """The attempt that may send events now."""

    trial: int
    attempt: int
    report_numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))


class _QueuedEvent:
    """An event for the sending thread, and the result of sending it."""

    __slots__ = ("done", "error", "event", "last", "leaving", "number")

    def __init__(self, event: Event, *, last: bool, leaving: bool) -> None:
        self.event = event
        self.last = last
        self.leaving = leaving
        self.number = 0  # of a report, once it has been sent
        self.error: BaseException | None = None
        self.done = _thread.allocate_lock()  # locked until the event has been sent or has failed
        self.done.acquire()


class Outbox:
    """Sends the events of one attempt after another.

    Any thread and any signal handler may call send().

    `end_requested` returns whether the attempt is to end, without waiting for other threads. It is called while
    the disk is full.
    """

    def __init__(
        self, sock: socket.socket, spool: Path, *, durable: bool, end_requested: Callable[[], bool]
    ) -> None:
        self._socket = sock
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_DSYNC if durable else 0)
        self._spool = os.open(spool, flags, 0o644)
        self._spooled_bytes = 0
        self._end_requested = end_requested
        self._pid = os.getpid()
        self._attempt: _SendingAttempt | None = None  # None between attempts
        self._queue: queue.SimpleQueue[_QueuedEvent] = queue.SimpleQueue()  # its put() is safe in signal handlers
        self._started = False  # the sending thread runs

    def begin(self, run: Run) -> None:
        """Let this attempt send events.

        Called when the driver has recorded all events of earlier attempts.
        """
        if not self._started:  # not earlier, so that the training function can count threads before there is one
            self._started = True
            _thread.start_new_thread(self._send_all, ())
        if self._spooled_bytes > _SPOOL_BYTES:
            os.ftruncate(self._spool, 0)
            self._spooled_bytes = 0
        self._attempt = _SendingAttempt(run.trial, run.attempt)

    def send(self, event: Event, *, last: bool = False, leaving: bool = False) -> int:
        """Write an event to the spool file and send it.

        Returns the number of a report, or 0 for another event.

        Raises EndTrial if the event's attempt has ended, which ends a thread that the attempt has left behind.

        - `last`: this is the last event of its attempt.
        - `leaving`: this is the last event of this worker.
        """
        if os.getpid() != self._pid:  # its reports would be numbered like those of this process
            raise SettingError(
                "a forked child of the training function cannot report; call report() in the training function"
            )
        queued = _QueuedEvent(event, last=last, leaving=leaving)
        self._queue.put(queued)
        queued.done.acquire()
        if queued.error is not None:
            raise queued.error
        return queued.number

    def _send_all(self) -> None:
        """Send queued events for ever.

        Runs on the sending thread.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the main thread handles all signals
        while True:
            queued = self._queue.get()
            try:
                self._send(queued)
            except BaseException as error:
                queued.error = error
            queued.done.release()

    def _send(self, queued: _QueuedEvent) -> None:
        attempt, event = self._attempt, queued.event
        event_attempt = event.trial, event.attempt  # type: ignore[attr-defined]
        if attempt is None or event_attempt != (attempt.trial, attempt.attempt):
            raise EndTrial
        if type(event) is Reported:
            queued.number = next(attempt.report_numbers)
            event = Reported(
                event.at, event.trial, event.attempt, queued.number, event.step, event.metrics, event.saved
            )
        line = to_line(event)
        if len(line) > MESSAGE_BYTES:
            raise SettingError(f"a report of {len(line):,} bytes is too long; it may have at most 16 MiB")
        try:
            self._write_to_spool(line, attempt, event.at)
        except SettingError:
            if not queued.last:  # the end of the attempt is sent all the same, although a kill could lose it
                raise
        if queued.last:
            self._attempt = None
        try:
            self._socket.sendall(GOODBYE + b"\n" + line if queued.leaving else line)
        except OSError:
            os._exit(0)  # the driver has ended, and the event is in the spool file

    def _write_to_spool(self, line: bytes, attempt: _SendingAttempt, now: float) -> None:
        """Append to the spool file.

        If the disk is full, wait until it is not, or until the attempt is to end.
        """
        warned = False
        while True:
            try:
                written = os.write(self._spool, line)
            except OSError as error:
                if error.errno == errno.EFBIG:
                    raise SettingError(
                        "the trial has limited the size of files (RLIMIT_FSIZE) too much to store its reports; "
                        "raise the limit"
                    ) from error
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
            else:
                self._spooled_bytes += written
                if written == len(line):
                    return
                line = b"\n" + line.lstrip(b"\n")  # write the whole line again; readers skip the incomplete one
                continue  # the next write raises the error that has cut this one short
            if not warned:
                warned = True
                why = "the disk that holds the study is full: make room, and training goes on by itself"
                with contextlib.suppress(OSError):
                    self._socket.sendall(to_line(DiskFull(now, attempt.trial, attempt.attempt, why)))
            if self._end_requested():
                # No event can be stored, and the trial has not failed. A killed worker counts as lost.
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(_DISK_RETRY_SECONDS)
