"""Puts a worker process back as it was after each trial, so that none meets what another has changed.

What cannot be put back, such as a thread that goes on, ends the worker: the next trial gets a new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TextIO

from thriftune.engines.processes import children_of, has_ended

_LIMITS = sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")})
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)

# The function of C beneath it takes a hundredth of the time: 64 signals are looked at after each trial.
_handler_of: Callable[[int], Any] = vars(signal.getsignal).get("__wrapped__", signal.getsignal)

_NUMPY_ERRORS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
"""NumPy's own default, for workers that load it during a trial."""

_MOST_LEFT_OPEN = 64
"""So many harmless descriptors may be left open in one worker. The usual limit of a process is 1,024."""


class _Property(NamedTuple):
    """Something that a process has, and a trial may change. `write` raises where it cannot be put back."""

    read: Callable[[], Any]
    write: Callable[[Any], object]


class Surroundings:
    """Keeps the surroundings as they are when it is made; restore() brings them back."""

    def __init__(self, output_fd: int) -> None:
        """`output_fd`: where standard output and error are to go. It must stay open."""
        self._output = output_fd
        self._connect_output()
        self._stdout, self._stderr = _text_file(1), _text_file(2)
        sys.stdout, sys.stderr = self._stdout, self._stderr
        self._folder = os.getcwd()  # noqa: PTH109 (chdir is quickest with a string)
        self._variables = dict(os.environ)
        self._mask = os.umask(0o022)
        os.umask(self._mask)
        self.keep_loaded()

    def keep_loaded(self) -> None:
        """Keeps what loading the training function has changed. Called once that is done."""
        self._import_path = list(sys.path)
        self._values = [each.read() for each in _PROPERTIES]
        self._open = _descriptors()
        self._most_open = len(self._open) + _MOST_LEFT_OPEN

    def restore(self) -> bool:
        """Puts everything back. Returns False if something is left that may disturb the next trial."""
        for stream in (sys.stdout, sys.stderr, self._stdout, self._stderr):
            with contextlib.suppress(Exception):  # a trial may have closed or replaced them
                stream.flush()
        try:
            self._restore()
        except BaseException:  # such as a folder that is no more, or whatever a signal handler raises
            return False
        return not (_left_thread() or _left_process() or self._left_descriptor())

    def mark(self, mark: bytes) -> None:
        """Writes to the output itself, whatever has become of descriptor 1."""
        os.write(self._output, mark)

    def _restore(self) -> None:
        self._connect_output()
        if sys.stdout is not self._stdout or self._stdout.closed:
            sys.stdout = self._stdout = _text_file(1)
        if sys.stderr is not self._stderr or self._stderr.closed:
            sys.stderr = self._stderr = _text_file(2)
        os.chdir(self._folder)
        if os.environ != self._variables:
            os.environ.clear()
            os.environ.update(self._variables)
        if sys.path != self._import_path:
            sys.path[:] = self._import_path
        os.umask(self._mask)
        signal.set_wakeup_fd(-1)
        for each, before in zip(_PROPERTIES, self._values, strict=True):
            if each.read() != before:
                each.write(before)

    def _connect_output(self) -> None:
        os.dup2(self._output, 1)
        os.dup2(self._output, 2)
        os.set_blocking(self._output, True)  # asyncio's pipes are not, and all three are one

    def _left_descriptor(self) -> bool:
        """Returns whether a descriptor is left open that may harm a later trial.

        A socket holds its port, a file that can be written to its lock. Files that are only read, and devices,
        are what libraries keep for the next trial; they do no harm, unless there are many.
        """
        there = _descriptors()
        if any(_may_harm(number) for number in there - self._open):
            return True
        self._open = there
        return len(there) > self._most_open


# --- what a process has -------------------------------------------------------------------------------------


def _blocked() -> set[signal.Signals]:
    return signal.pthread_sigmask(signal.SIG_BLOCK, ())  # type: ignore[return-value]


def _block(blocked: set[signal.Signals]) -> None:
    for number in signal.sigpending():  # one that waits is for the trial that is over: ignoring discards it
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _handlers() -> list[Any]:
    return [_handler_of(number) for number in range(1, signal.NSIG)]


def _set_handlers(handlers: list[Any]) -> None:
    for number, handler in enumerate(handlers, start=1):
        if _handler_of(number) is not handler:
            signal.signal(number, handler)  # raises for None: set by something that is not Python


def _timers() -> list[bool]:
    return [signal.getitimer(timer) != (0.0, 0.0) for timer in _TIMERS]


def _stop_timers(_: object) -> None:
    for timer in _TIMERS:
        signal.setitimer(timer, 0)


def _limits() -> list[tuple[int, int]]:
    return [resource.getrlimit(limit) for limit in _LIMITS]


def _set_limits(limits: list[tuple[int, int]]) -> None:
    for limit, value in zip(_LIMITS, limits, strict=True):
        if resource.getrlimit(limit) != value:
            resource.setrlimit(limit, value)


def _numpy_errors() -> tuple[Any, Any]:
    """How NumPy treats errors; its default where it is not loaded, as it must not be just for that."""
    numpy = sys.modules.get("numpy")
    return (_NUMPY_ERRORS, None) if numpy is None else (numpy.geterr(), numpy.geterrcall())


def _set_numpy_errors(errors: tuple[Any, Any]) -> None:
    numpy = sys.modules["numpy"]
    numpy.seterrcall(errors[1])
    numpy.seterr(**errors[0])


_PROPERTIES = (
    _Property(_timers, _stop_timers),  # first: they send signals
    _Property(_blocked, _block),
    _Property(_handlers, _set_handlers),
    _Property(_limits, _set_limits),
    _Property(lambda: os.getpriority(os.PRIO_PROCESS, 0), lambda nice: os.setpriority(os.PRIO_PROCESS, 0, nice)),
    _Property(lambda: os.sched_getaffinity(0), lambda cores: os.sched_setaffinity(0, cores)),
    _Property(sys.getrecursionlimit, sys.setrecursionlimit),
    _Property(gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    _Property(gc.get_threshold, lambda thresholds: gc.set_threshold(*thresholds)),
    _Property(gc.get_debug, gc.set_debug),
    _Property(_numpy_errors, _set_numpy_errors),
)


# --- what a trial leaves behind -----------------------------------------------------------------------------


def _text_file(fd: int) -> TextIO:
    return open(fd, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)


def _descriptors() -> set[int]:
    """Returns the descriptors that are open; none where that cannot be told."""
    try:
        os.close(listing := os.dup(1))  # the lowest number that is free, which the listing itself takes next
        return {int(name) for name in os.listdir("/proc/self/fd")} - {listing}  # noqa: PTH208 (quicker)
    except OSError:
        return set()


def _may_harm(number: int) -> bool:
    try:
        what = os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115
        writes = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    except OSError:  # closed by now
        return False
    if what.startswith(("socket:", "pipe:")):
        return True
    return writes and not what.startswith(("/dev/", "/memfd:", "anon_inode:"))


def _left_thread() -> bool:
    """Daemon threads are the helpers of libraries, which keep them on purpose."""
    if threading.active_count() == 1:
        return False
    return any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread())


def _left_process() -> bool:
    """Returns whether a child lives on, or a process that was sent into the background; reaps its children."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == 0:
            return True
    return any(pid != os.getpid() and not has_ended(pid) for pid in children_of(os.getppid()))
