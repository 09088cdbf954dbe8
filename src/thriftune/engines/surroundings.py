"""What may a trial change around itself? Its worker's folder, variables, output, signals and limits.

All of it is put back before the next trial; what cannot be put back ends the worker.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import threading
from typing import Any, TextIO

# Those that training code sets handlers for; looking at all 64 would cost more than a short trial.
_SIGNALS = tuple(
    signal.Signals[f"SIG{name}"] for name in ("HUP", "INT", "QUIT", "USR1", "USR2", "PIPE", "ALRM", "TERM", "CHLD")
)
_LIMITS = (
    resource.RLIMIT_AS,
    resource.RLIMIT_DATA,
    resource.RLIMIT_CPU,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_NOFILE,
)


class Surroundings:
    """The surroundings as they are when it is made, and again after every restore()."""

    def __init__(self, output_fd: int) -> None:
        """`output_fd`: where standard output and error are to go. It must stay open."""
        self._output = output_fd
        self._connect_output()
        self._stdout, self._stderr = _text_file(1), _text_file(2)
        sys.stdout, sys.stderr = self._stdout, self._stderr
        self._folder = os.getcwd()  # noqa: PTH109 (chdir is quickest with a string)
        self._variables = dict(os.environ)
        self.keep_import_path()
        self._mask = os.umask(0o022)
        os.umask(self._mask)
        self._handlers = _handlers()
        self._limits = _limits()

    def keep_import_path(self) -> None:
        """As it is now, with what loading the training function may have added."""
        self._import_path = list(sys.path)

    def restore(self) -> bool:
        """Puts everything back. False: something is left that may disturb the next trial."""
        for stream in (sys.stdout, sys.stderr, self._stdout, self._stderr):
            with contextlib.suppress(Exception):  # a trial may have closed or replaced them
                stream.flush()
        try:
            self._restore()
        except Exception:  # such as a folder that is no more
            return False
        return _limits() == self._limits and not _left_thread() and not _left_process()

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
        signal.setitimer(signal.ITIMER_REAL, 0)
        if _handlers() != self._handlers:
            for number, handler in zip(_SIGNALS, self._handlers, strict=True):
                if handler is not None:  # set by something that is not Python
                    signal.signal(number, handler)

    def _connect_output(self) -> None:
        os.dup2(self._output, 1)
        os.dup2(self._output, 2)
        os.set_blocking(self._output, True)  # asyncio's pipes are not, and all three are one


def _text_file(fd: int) -> TextIO:
    return open(fd, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)


def _handlers() -> list[Any]:
    return [signal.getsignal(number) for number in _SIGNALS]


def _limits() -> list[tuple[int, int]]:
    return [resource.getrlimit(limit) for limit in _LIMITS]


def _left_thread() -> bool:
    """Daemon threads are the helpers of libraries, which keep them on purpose."""
    if threading.active_count() == 1:
        return False
    return any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread())


def _left_process() -> bool:
    """Whether a child lives on; those that only wait to be buried are."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
