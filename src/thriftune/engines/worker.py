"""The main loop of a worker process, which runs one attempt after another.

The events of a trial are written to the worker's spool file before they are sent, so they survive the driver: the
next driver reads those that the last one did not record. A worker ends after an attempt that has failed, so that
no other trial runs in a process that it may have damaged.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import importlib.util
import json
import os
import resource
import select
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thriftune.common.clock import set_offset, wall_time
from thriftune.engines import pickled
from thriftune.engines.outbox import Outbox
from thriftune.engines.process_snapshot import ProcessSnapshot
from thriftune.errors import SettingError
from thriftune.state.events import Ended, Event, Failed, Lost, Warned
from thriftune.training.gangs import join
from thriftune.training.messages import LineBuffer, run_from
from thriftune.training.run import EndTrial, Link, Run, TrialFailed, TrialLost
from thriftune.training.trial import Trial

if TYPE_CHECKING:
    from thriftune.system.gauge import Gauge, Instruments
    from thriftune.system.knobs import Knob

Train = Callable[[Trial], object]

MARK = b"\x1e\x1e thriftune: the next attempt \x1e\x1e\n"
"""Separates the output of an attempt from that of the one before."""

_ERROR_CHARACTERS = 50_000
"""The longest error of an attempt that is stored. Some exceptions print a whole array."""


_RECEIVE_BYTES = 65_536

_OOM_SCORE = "500"
"""Makes the kernel kill this process before the driver, as if it used half of the machine's memory more."""


class DriverLink:
    """The worker's connection to the driver."""

    def __init__(self, sock: socket.socket, spool: Path, *, durable: bool = False) -> None:
        self._socket = sock
        self._outbox = Outbox(sock, spool, durable=durable, end_requested=self._end_requested_now)
        self._lines = LineBuffer()
        self._inbox: list[Any] = []  # messages that were received and not processed, in order
        self._ends: set[tuple[int, int]] = set()  # the attempts that the driver wants to end
        self._judged_number = 0  # the number of the attempt's last report that was judged
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

        Waits for more until `done()` is true, the attempt is to end, or the time is over. Receives nothing and does
        not wait in a signal handler that has interrupted the receiving thread.
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
            elif "judged" in message and tuple(message["judged"][:2]) == own:
                self._judged_number = message["judged"][2]
            elif "knobs" in message and tuple(message["knobs"][:2]) == own:
                self._setting = message["knobs"][2]
        self._inbox = [message for message in self._inbox if "run" in message]
        return own in self._ends

    def send(self, event: Event) -> int:
        """Send an event of the attempt; see Outbox.send()."""
        return self._outbox.send(event)

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


def main(worker_id: int, link_fd: int, output_fd: int, settings: dict[str, Any]) -> None:
    """Run attempts until the driver has ended, or an attempt has failed.

    - `link_fd`: a socket for messages to and from the driver.
    - `output_fd`: a pipe for standard output and standard error.
    - `settings`: "target" (see load_target()), "spools" (the folder of spool files), "durable" (sync each report
      to disk) and "clock_offset" (the driver's, in seconds).
    """
    for fd in (link_fd, output_fd):
        os.set_inheritable(fd, False)
    set_offset(settings["clock_offset"])
    snapshot = ProcessSnapshot(output_fd)
    faulthandler.enable(file=2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # if memory runs out, the kernel should kill a trial and not the driver
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    spool = Path(settings["spools"]) / f"{worker_id}.spool"
    link = DriverLink(socket.socket(fileno=link_fd), spool, durable=settings["durable"])
    train: Train | None = None
    knobs: Sequence[Knob] = ()
    # Loaded before the first trial starts, so that the time does not count as the trial's.
    instruments = _instruments() if settings["target"].get("measured") else None
    while (run := link.next_run()) is not None:
        snapshot.write_mark(MARK)
        if train is None:
            try:
                train, knobs = load_target(settings["target"])
            except BaseException:
                failed = Failed(wall_time(), run.trial, run.attempt, "raised", shortened(traceback.format_exc()))
                link.send_last(failed, stay=False)
                break
            snapshot.update()
        gauge = None if instruments is None else instruments.gauge(run, link, knobs)
        outcome = attempt(train, run, link, gauge)
        problems = [] if instruments is None else instruments.end_attempt(gauge)
        for problem in problems:
            link.send(Warned(wall_time(), run.trial, run.attempt, problem))
        stay = snapshot.restore() and not problems and isinstance(outcome, Ended)
        link.send_last(outcome, stay=stay)
        if not stay:
            break
    os._exit(0)


def _instruments() -> Instruments:
    """Return the instruments that measure runs."""
    from thriftune.system.gauge import Instruments  # imported only if runs are measured

    return Instruments()


def attempt(train: Train, run: Run, link: Link, gauge: Gauge | None = None) -> Event:
    """Run one attempt, and return how it has ended."""
    trial = gang = None
    worker_pid = os.getpid()
    started = time.perf_counter()
    try:
        gang = join(run)
        trial = Trial(run, link, gang, gauge)
        for problem in gauge.problems if gauge is not None else ():
            trial.relay(Warned(wall_time(), run.trial, run.attempt, problem))
        with contextlib.suppress(EndTrial):
            returned = train(trial)
            if os.getpid() == worker_pid:
                trial.finish(returned)
        if (missing := trial.no_value()) is not None:  # checked here, so that the failure has the output
            raise TrialFailed("no_value", missing)
        outcome: Event = Ended(
            wall_time(), run.trial, run.attempt, time.perf_counter() - started, trial.cut, trial.unread
        )
    except TrialLost as lost:
        outcome = Lost(wall_time(), run.trial, run.attempt, str(lost))
    except TrialFailed as failure:
        outcome = Failed(wall_time(), run.trial, run.attempt, failure.kind, shortened(str(failure)))
    except BaseException as error:
        kind = "exited" if isinstance(error, SystemExit) else "raised"
        outcome = Failed(wall_time(), run.trial, run.attempt, kind, shortened(_traceback(error)))
    if os.getpid() != worker_pid:  # a fork of the trial has returned from train(); it must not report an end
        if isinstance(outcome, Failed):
            os.write(2, outcome.error.encode(errors="replace") + b"\n")
        os._exit(int(isinstance(outcome, Failed)))
    if trial is not None:
        trial.leave()  # first, so that workers that wait for this one notice its end
    if gang is not None:
        outcome = gang.final_outcome(outcome)
        gang.close()
    return outcome


def shortened(text: str) -> str:
    """Return a text, without its middle if it is too long.

    The ends of an error say what happened, and where.
    """
    half = _ERROR_CHARACTERS // 2
    return text if len(text) <= _ERROR_CHARACTERS else f"{text[:half]}\n...\n{text[-half:]}"


def _traceback(error: BaseException) -> str:
    """Return the traceback of an error, from the training function on."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames)).rstrip()


def load_target(target: dict[str, Any]) -> tuple[Train, Sequence[Knob]]:
    """Return the training function of a study, and the user's own knobs.

    `target` has a "kind": "command" (a function that runs a command), "pickled" (a function and knobs from a
    pickle), or "function" (a function of a file or module).
    """
    if target["kind"] == "command":
        from thriftune.engines.command import Command

        return Command(target["command"], target["patterns"], target["folder"]), ()
    if target["kind"] == "pickled":
        path = Path(target["where"])
        pickled.set_arguments(path)
        contents = pickled.load(path)
        return contents["train"], (contents.get("system") or {}).get("knobs", ())
    return import_function(target["where"], Path(target["folder"])), ()


def import_function(where: str, folder: Path) -> Train:
    """Return the function of "file.py:name" or "package.module:name".

    The path of a file is relative to `folder`.
    """
    source, _, name = where.rpartition(":")
    if not source or not name:
        raise SettingError(f"function: {where!r} must be 'file.py:name' or 'package.module:name'")
    # The module sees no arguments: those of the driver are for thriftune's command line.
    sys.argv = [str(folder / source) if source.endswith(".py") else source]
    if source.endswith(".py"):
        path = folder / source
        if not path.is_file():
            raise SettingError(f"function: the file {path} does not exist")
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module  # so that its functions and classes can be pickled
        spec.loader.exec_module(module)
    else:
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
        module = importlib.import_module(source)
    function = getattr(module, name, None)
    if not callable(function):
        raise SettingError(f"function: {source} has no function {name!r}")
    return function  # type: ignore[no-any-return]
