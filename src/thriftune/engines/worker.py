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
import os
import resource
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thriftune.common.clock import set_offset, wall_time
from thriftune.engines import pickled
from thriftune.engines.driver_link import DriverLink
from thriftune.engines.process_snapshot import ProcessSnapshot
from thriftune.errors import SettingError
from thriftune.state.events import Ended, Event, Failed, Lost, Warned
from thriftune.training.gangs import join
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

UPLOAD_SECONDS, UPLOAD_AFTER_FAILURE_SECONDS = 600.0, 30.0
"""How long the end of an attempt waits for the upload of its last checkpoint. A failed one waits less: its retry
can resume from an earlier checkpoint."""

_DESCRIPTOR_SECONDS = 1.0
"""How long the connections to an object store may take to close. They need milliseconds."""

_OOM_SCORE = "500"
"""Makes the kernel kill this process before the driver, as if it used half of the machine's memory more."""


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
        stay = (
            snapshot.restore(_DESCRIPTOR_SECONDS if run.objects or run.data else 0.0)
            and not problems
            and isinstance(outcome, Ended)
        )
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
    if trial is not None:  # last, so that no other worker waits for it
        trial.end(UPLOAD_SECONDS if isinstance(outcome, Ended) else UPLOAD_AFTER_FAILURE_SECONDS)
        outcome = replace(outcome, at=wall_time())
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
