"""What does a worker process do? Runs one attempt after another until the driver goes away.

Whatever a trial says is written to this worker's spool file before it is sent, so that it survives the driver:
the next driver reads what the last one had no time to record. An attempt that fails ends its worker, so that
nothing it broke is met by another trial.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import importlib
import importlib.util
import json
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thriftune.engines import pickled
from thriftune.engines.surroundings import Surroundings
from thriftune.engines.wire import GOODBYE, Lines, to_line
from thriftune.errors import SettingError
from thriftune.events import DiskFull, Ended, Event, Failed, Lost, Warned
from thriftune.gangs import join
from thriftune.trial import EndTrial, Link, Run, Trial, TrialFailed, TrialLost

if TYPE_CHECKING:
    from thriftune.system.gauge import Gauge, Instruments
    from thriftune.system.knobs import Knob

Train = Callable[[Trial], object]

MARK = b"\x1e\x1e thriftune: the next attempt \x1e\x1e\n"
"""Between the output of one attempt and of the next."""

_SPOOL_BYTES = 1 << 16
"""A spool longer than this is emptied once all it holds is known to be recorded."""

_ERROR_CHARACTERS = 50_000
"""The most that is kept of an attempt's error: some exceptions show a whole array."""


class DriverLink:
    """The worker's end of its line to the driver."""

    def __init__(self, sock: socket.socket, spool: Path, *, durable: bool = False) -> None:
        self._socket = sock
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_DSYNC if durable else 0)
        self._spool = os.open(spool, flags, 0o644)
        self._spooled = 0
        self._pid = os.getpid()
        self._lines = Lines()
        self._inbox: list[Any] = []
        self._told: set[tuple[int, int]] = set()
        self._answered = 0  # the number of the attempt's last report that was judged
        self._setting: Mapping[str, Any] | None = None  # the last that the attempt was told, and has not asked for
        self._run: Run | None = None  # the attempt that may speak
        # Against threads that a trial has, or has left behind; a handler of a signal may report too.
        self._lock = threading.RLock()

    def next_run(self) -> Run | None:
        """Waits for the next attempt; None: the driver is gone."""
        while True:
            while self._inbox:
                message = self._inbox.pop(0)
                if "run" in message:
                    # The driver sends a run only after it has recorded how this worker's last one ended.
                    if self._spooled > _SPOOL_BYTES:
                        os.ftruncate(self._spool, 0)
                        self._spooled = 0
                    self._told.clear()
                    self._answered = 0
                    self._setting = None
                    self._run = Run(*message["run"])
                    return self._run
            if not self._receive(0):
                return None

    def told_to_end(self) -> bool:
        with self._lock:
            if self._run is None:  # only next_run() reads now
                return False
            with contextlib.suppress(BlockingIOError):
                if not self._receive(socket.MSG_DONTWAIT):
                    os._exit(0)
            return self._is_told()

    def wait_for_answer(self, number: int, seconds: float) -> None:
        self._wait(lambda: self._answered >= number, seconds)

    def wait_for_setting(self, seconds: float) -> None:
        self._wait(lambda: self._setting is not None, seconds)

    def told_setting(self) -> Mapping[str, Any] | None:
        with self._lock:
            told, self._setting = self._setting, None
            return told

    def _wait(self, come: Callable[[], bool], seconds: float) -> None:
        """Until what was waited for has come, or the word to end, but no longer than so."""
        deadline = time.monotonic() + seconds
        with self._lock:
            while self._run is not None and not self._is_told() and not come():
                left = deadline - time.monotonic()
                if left <= 0.0 or not select.select([self._socket], [], [], left)[0]:
                    return
                if not self._receive(0):
                    os._exit(0)

    def _is_told(self) -> bool:
        assert self._run is not None
        mine = (self._run.trial, self._run.attempt)
        for message in self._inbox:
            if "end" in message:
                self._told.add(tuple(message["end"]))
            elif "judged" in message and tuple(message["judged"][:2]) == mine:
                self._answered = message["judged"][2]
            elif "turn" in message and tuple(message["turn"][:2]) == mine:
                self._setting = message["turn"][2]
        self._inbox = [message for message in self._inbox if "run" in message]
        return mine in self._told

    def send(self, event: Event) -> None:
        """What the attempt says. Ends a thread of an earlier one that still speaks."""
        with self._lock:
            run = self._run
            if run is None or (event.trial, event.attempt) != (run.trial, run.attempt):  # type: ignore[attr-defined]
                raise EndTrial
            if os.getpid() != self._pid:  # its numbers would be taken for those of this process
                raise SettingError("a forked child of the training function cannot report; let it do so itself")
            line = to_line(event)
            self._keep(line, event)
            try:
                self._socket.sendall(line)
            except OSError:
                os._exit(0)  # the driver is gone, and what was said is safe

    def send_last(self, outcome: Event, *, stay: bool) -> None:
        """How the attempt ended. `stay`: this worker may be given another; else it ends now."""
        with self._lock:
            if not stay:
                with contextlib.suppress(OSError):
                    self._socket.sendall(GOODBYE + b"\n")
            self.send(outcome)
            self._run = None

    def _keep(self, line: bytes, event: Event) -> None:
        """Writes to the spool; where the disk is full, says so and waits for room or for the word to end."""
        said = False
        while True:
            try:
                written = os.write(self._spool, line)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                written = 0
            self._spooled += written
            if written == len(line):
                return
            if written:
                line = b"\n" + line.lstrip(b"\n")  # what got through is a torn line, to be passed over
            if not said and self._run is not None:
                said = True
                why = "the disk that holds the study is full: make room, training goes on by itself then"
                self._socket.sendall(to_line(DiskFull(event.at, self._run.trial, self._run.attempt, why)))
            if self.told_to_end():
                # Nothing can be said any more, and it was not the trial's fault: go as a lost machine goes.
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.2)

    def _receive(self, flags: int) -> bool:
        try:
            chunk = self._socket.recv(65536, flags)
        except ConnectionError:
            chunk = b""
        self._inbox.extend(json.loads(line) for line in self._lines.feed(chunk))
        return bool(chunk)


def main(worker_id: int, link_fd: int, output_fd: int, settings: dict[str, Any]) -> None:
    for fd in (link_fd, output_fd):
        os.set_inheritable(fd, False)
    surroundings = Surroundings(output_fd)
    faulthandler.enable(file=2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # if memory runs out, the kernel shall take a trial and not the driver
        Path("/proc/self/oom_score_adj").write_text("500")
    spool = Path(settings["spools"]) / f"{worker_id}.spool"
    link = DriverLink(socket.socket(fileno=link_fd), spool, durable=settings["durable"])
    train: Train | None = None
    knobs: Sequence[Knob] = ()
    # Now, and not when the first trial comes: there is time, and what it takes is not the trial's.
    meter = settings["target"].get("meter")
    instruments = None if meter is None else _instruments(meter)
    while (run := link.next_run()) is not None:
        surroundings.mark(MARK)
        if train is None:
            try:
                train, knobs = load_target(settings["target"])
            except BaseException:
                failed = Failed(time.time(), run.trial, run.attempt, "raised", shortened(traceback.format_exc()))
                link.send_last(failed, stay=False)
                break
            surroundings.keep_import_path()
        gauge = None if instruments is None else instruments.gauge(run, link, knobs)
        outcome = attempt(train, run, link, gauge)
        problems = [] if instruments is None else instruments.over(gauge)
        for problem in problems:
            link.send(Warned(time.time(), run.trial, run.attempt, problem))
        stay = surroundings.restore() and not problems and isinstance(outcome, Ended)
        link.send_last(outcome, stay=stay)
        if not stay:
            break
    os._exit(0)


def _instruments(meter: Sequence[str]) -> Instruments:
    from thriftune.system.gauge import Instruments  # only where somebody wants to know

    return Instruments(meter)


def attempt(train: Train, run: Run, link: Link, gauge: Gauge | None = None) -> Event:
    """Runs one attempt; returns how it ended."""
    trial = gang = None
    worker_pid = os.getpid()
    started = time.perf_counter()
    try:
        gang = join(run)
        trial = Trial(run, link, gang, gauge)
        for problem in gauge.problems if gauge is not None else ():
            trial.relay(Warned(time.time(), run.trial, run.attempt, problem))
        with contextlib.suppress(EndTrial):
            returned = train(trial)
            if os.getpid() == worker_pid:
                trial.finish(returned)
        outcome: Event = Ended(time.time(), run.trial, run.attempt, time.perf_counter() - started, trial.cut)
    except TrialLost as lost:
        outcome = Lost(time.time(), run.trial, run.attempt, str(lost))
    except TrialFailed as failure:
        outcome = Failed(time.time(), run.trial, run.attempt, failure.kind, shortened(str(failure)))
    except BaseException as error:
        kind = "exited" if isinstance(error, SystemExit) else "raised"
        outcome = Failed(time.time(), run.trial, run.attempt, kind, shortened(_traceback(error)))
    if os.getpid() != worker_pid:  # a fork of the trial's that came back from train(): the end is not its to tell
        if isinstance(outcome, Failed):
            os.write(2, outcome.error.encode(errors="replace") + b"\n")
        os._exit(int(isinstance(outcome, Failed)))
    if trial is not None:
        trial.leave()  # first: a worker that waits for this one in vain finds out by it
    if gang is not None:
        outcome = gang.settle(outcome)
        gang.close()
    return outcome


def shortened(text: str) -> str:
    """Of an error's text, both ends: where it began, and what it says."""
    half = _ERROR_CHARACTERS // 2
    return text if len(text) <= _ERROR_CHARACTERS else f"{text[:half]}\n...\n{text[-half:]}"


def _traceback(error: BaseException) -> str:
    """From the training function on: how the worker called it is nobody's concern."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames)).rstrip()


def load_target(target: dict[str, Any]) -> tuple[Train, Sequence[Knob]]:
    """The training function: from a pickle, from a file or module, or one that runs a command. And, in a pickle,
    the user's own knobs."""
    if target["kind"] == "command":
        from thriftune.engines.command import Command

        return Command(target["command"], target["patterns"], target["folder"]), ()
    if target["kind"] == "pickled":
        kept = pickled.load(Path(target["where"]))
        return kept["train"], (kept.get("system") or {}).get("knobs", ())
    return import_function(target["where"], Path(target["folder"])), ()


def import_function(where: str, folder: Path) -> Train:
    """The function of "file.py:name" (relative to `folder`) or "package.module:name"."""
    source, _, name = where.rpartition(":")
    if not source or not name:
        raise SettingError(f"function: {where!r} must be 'file.py:name' or 'package.module:name'")
    if source.endswith(".py"):
        path = folder / source
        if not path.is_file():
            raise SettingError(f"function: there is no file {path}")
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module  # so that what it defines can be pickled
        spec.loader.exec_module(module)
    else:
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
        module = importlib.import_module(source)
    function = getattr(module, name, None)
    if not callable(function):
        raise SettingError(f"function: {source} has no function {name!r}")
    return function  # type: ignore[no-any-return]
