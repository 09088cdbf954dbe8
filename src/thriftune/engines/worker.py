"""What does a worker process do? Runs one attempt after another until the driver goes away.

Whatever a trial says is written to this worker's spool file before it is sent, so that it survives the driver:
the next driver reads what the last one had no time to record. An attempt that fails ends its worker, so that
nothing it broke is met by another trial.
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
from thriftune.engines.process_snapshot import Surroundings
from thriftune.errors import SettingError
from thriftune.state.events import Ended, Event, Failed, Lost, Warned
from thriftune.training.gangs import join
from thriftune.training.messages import Lines, run_from
from thriftune.training.run import EndTrial, Link, Run, TrialFailed, TrialLost
from thriftune.training.trial import Trial

if TYPE_CHECKING:
    from thriftune.system.gauge import Gauge, Instruments
    from thriftune.system.knobs import Knob

Train = Callable[[Trial], object]

MARK = b"\x1e\x1e thriftune: the next attempt \x1e\x1e\n"
"""Between the output of one attempt and of the next."""

_ERROR_CHARACTERS = 50_000
"""The most that is kept of an attempt's error: some exceptions show a whole array."""


class DriverLink:
    """The worker's end of its line to the driver."""

    def __init__(self, sock: socket.socket, spool: Path, *, durable: bool = False) -> None:
        self._socket = sock
        self._outbox = Outbox(sock, spool, durable=durable, told_to_end=self._told_if_free)
        self._lines = Lines()
        self._inbox: list[Any] = []
        self._told: set[tuple[int, int]] = set()
        self._answered = 0  # the number of the attempt's last report that was judged
        self._setting: Mapping[str, Any] | None = None  # the last that the attempt was told, and has not asked for
        self._run: Run | None = None  # the attempt that is under way
        self._lock = threading.RLock()  # of what is received; one thread reads at a time
        self._receiving = False  # this thread is at it already, and a signal handler has interrupted it

    def next_run(self) -> Run | None:
        """Waits for the next attempt and returns it; None: the driver is gone."""
        while True:
            while self._inbox:
                message = self._inbox.pop(0)
                if "run" in message:
                    run = run_from(message["run"])
                    # The driver sends a run only after it has recorded how this worker's last one ended.
                    self._outbox.begin(run)
                    self._told.clear()
                    self._answered = 0
                    self._setting = None
                    self._run = run
                    return run
            if not self._receive(0):
                return None

    def told_to_end(self) -> bool:
        with self._lock:
            return self._look()

    def _told_if_free(self) -> bool:
        """Like told_to_end(), but False where another thread is reading just now."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._look()
        finally:
            self._lock.release()

    def _look(self) -> bool:
        """Takes in what the driver has sent; returns whether the attempt is to end. Called with the lock."""
        if self._run is None:  # only next_run() reads now
            return False
        if not self._receiving:
            try:
                self._receiving = True
                with contextlib.suppress(BlockingIOError):
                    if not self._receive(socket.MSG_DONTWAIT):
                        os._exit(0)
                return self._is_told()
            finally:
                self._receiving = False
        return (self._run.trial, self._run.attempt) in self._told

    def wait_for_answer(self, number: int, seconds: float) -> None:
        self._wait(lambda: self._answered >= number, seconds)

    def wait_for_setting(self, seconds: float) -> None:
        self._wait(lambda: self._setting is not None, seconds)

    def told_setting(self) -> Mapping[str, Any] | None:
        with self._lock:
            told, self._setting = self._setting, None
            return told

    def _wait(self, come: Callable[[], bool], seconds: float) -> None:
        """Returns when `come()` is true, when the attempt is to end, or after so many seconds.

        Returns at once in a signal handler that has interrupted this thread while it was receiving.
        """
        deadline = time.monotonic() + seconds
        with self._lock:
            if self._receiving:
                return
            try:
                self._receiving = True
                while self._run is not None and not self._is_told() and not come():
                    left = deadline - time.monotonic()
                    if left <= 0.0 or not select.select([self._socket], [], [], left)[0]:
                        return
                    if not self._receive(0):
                        os._exit(0)
            finally:
                self._receiving = False

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

    def send(self, event: Event) -> int:
        """Sends what the attempt says; see Outbox.send."""
        return self._outbox.send(event)

    def send_last(self, outcome: Event, *, stay: bool) -> None:
        """Sends how the attempt ended. `stay`: this worker may be given another; else it ends now."""
        with self._lock:  # from now on only next_run() reads: the driver may answer with the next run
            self._run = None
        self._outbox.send(outcome, last=True, goodbye=not stay)

    def _receive(self, flags: int) -> bool:
        """Takes in one chunk from the driver; False: the driver is gone."""
        try:
            chunk = self._socket.recv(65536, flags)
        except ConnectionError:
            chunk = b""
        self._inbox.extend(json.loads(line) for line in self._lines.feed(chunk))
        return bool(chunk)


def main(worker_id: int, link_fd: int, output_fd: int, settings: dict[str, Any]) -> None:
    for fd in (link_fd, output_fd):
        os.set_inheritable(fd, False)
    set_offset(settings["clock_offset"])
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
                failed = Failed(wall_time(), run.trial, run.attempt, "raised", shortened(traceback.format_exc()))
                link.send_last(failed, stay=False)
                break
            surroundings.keep_loaded()
        gauge = None if instruments is None else instruments.gauge(run, link, knobs)
        outcome = attempt(train, run, link, gauge)
        problems = [] if instruments is None else instruments.over(gauge)
        for problem in problems:
            link.send(Warned(wall_time(), run.trial, run.attempt, problem))
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
            trial.relay(Warned(wall_time(), run.trial, run.attempt, problem))
        with contextlib.suppress(EndTrial):
            returned = train(trial)
            if os.getpid() == worker_pid:
                trial.finish(returned)
        if (missing := trial.no_value()) is not None:  # found here, its output is kept
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
        where = Path(target["where"])
        pickled.set_arguments(where)
        kept = pickled.load(where)
        return kept["train"], (kept.get("system") or {}).get("knobs", ())
    return import_function(target["where"], Path(target["folder"])), ()


def import_function(where: str, folder: Path) -> Train:
    """The function of "file.py:name" (relative to `folder`) or "package.module:name"."""
    source, _, name = where.rpartition(":")
    if not source or not name:
        raise SettingError(f"function: {where!r} must be 'file.py:name' or 'package.module:name'")
    # As if it were run without arguments: those of the driver are for thriftune's command line.
    sys.argv = [str(folder / source) if source.endswith(".py") else source]
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
