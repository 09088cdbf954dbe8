"""Restore the state of a worker process after each trial.

A trial therefore does not see the changes that another trial made to the process. If a change cannot be undone,
such as a thread that still runs, the worker ends, and the next trial gets a new worker.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import signal
import sys
import threading
import time
from typing import TextIO

from thriftune.engines.process_state import PROPERTIES
from thriftune.engines.processes import children_of, has_ended

_MAX_LEFT_OPEN = 64
"""The most harmless descriptors that the trials of one worker may leave open. A process may usually have 1,024."""

_POLL_SECONDS = 0.005
"""How often to look whether other threads have closed their descriptors."""


class ProcessSnapshot:
    """A snapshot of the state of this process, which restore() restores."""

    def __init__(self, output_fd: int) -> None:
        """Connect standard output and error to a file, and record the state.

        `output_fd`: the descriptor of the file. It must stay open.
        """
        self._output_fd = output_fd
        self._connect_output()
        self._stdout, self._stderr = _text_file(1), _text_file(2)
        sys.stdout, sys.stderr = self._stdout, self._stderr
        self.update()

    def update(self) -> None:
        """Record the state again.

        Called after the training function was loaded, because restore() must not undo the changes of the loading.
        """
        self._folder = os.getcwd()  # noqa: PTH109 (chdir is fastest with a string)
        self._variables = dict(os.environ)
        self._mask = os.umask(0o022)
        os.umask(self._mask)
        self._import_path = list(sys.path)
        self._values = [each.read() for each in PROPERTIES]
        self._open_fds = _open_descriptors()
        self._max_open = len(self._open_fds) + _MAX_LEFT_OPEN

    def restore(self, descriptor_seconds: float = 0.0) -> bool:
        """Restore the state.

        Returns False if a change could not be undone, so that it may affect the next trial. `descriptor_seconds`:
        wait this long for descriptors that other threads are closing.
        """
        faulthandler.cancel_dump_traceback_later()  # first, because its timer may end this process
        for stream in (sys.stdout, sys.stderr, self._stdout, self._stderr):
            with contextlib.suppress(Exception):  # a trial may have closed or replaced them
                stream.flush()
        try:
            self._restore()
        except BaseException:  # a removed folder, for example, or an error that a signal handler raises
            return False
        return not (_has_thread() or _has_process() or self._keeps_harmful_descriptor(descriptor_seconds))

    def write_mark(self, mark: bytes) -> None:
        """Write a mark to the output, even if a trial has changed descriptor 1."""
        os.write(self._output_fd, mark)

    def _restore(self) -> None:
        self._connect_output()
        if sys.stdout is not self._stdout or self._stdout.closed:
            sys.stdout = self._stdout = _text_file(1)
        if sys.stderr is not self._stderr or self._stderr.closed:
            sys.stderr = self._stderr = _text_file(2)
        os.chdir(self._folder)
        if os.environ != self._variables:
            zone = os.environ.get("TZ")
            os.environ.clear()
            os.environ.update(self._variables)
            if os.environ.get("TZ") != zone:
                time.tzset()  # the C library may have read the variable already
        if sys.path != self._import_path:
            sys.path[:] = self._import_path
        os.umask(self._mask)
        signal.set_wakeup_fd(-1)
        for each, before in zip(PROPERTIES, self._values, strict=True):
            if each.read() != before:
                each.write(before)
        if faulthandler.is_enabled():
            faulthandler.enable(file=2)  # a trial may have set another file, which cannot be read back

    def _connect_output(self) -> None:
        os.dup2(self._output_fd, 1)
        os.dup2(self._output_fd, 2)
        os.set_blocking(self._output_fd, True)  # asyncio may have made the pipe non-blocking

    def _keeps_harmful_descriptor(self, seconds: float) -> bool:
        """Return whether there is a harmful descriptor after at most this time."""
        deadline = time.monotonic() + seconds
        while self._has_harmful_descriptor():
            if time.monotonic() >= deadline:
                return True
            time.sleep(_POLL_SECONDS)
        return False

    def _has_harmful_descriptor(self) -> bool:
        """Return whether a new descriptor may harm a later trial, or too many are open.

        A socket holds its port, and a writable file may hold a lock. Files that are only read, and devices, are
        harmless: libraries keep them open for the next trial.
        """
        open_fds = _open_descriptors()
        if any(_may_harm(fd) for fd in open_fds - self._open_fds):
            return True
        self._open_fds = open_fds
        return len(open_fds) > self._max_open


# --- leftovers of a trial -----------------------------------------------------------------------------------


def _text_file(fd: int) -> TextIO:
    return open(fd, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)


def _open_descriptors() -> set[int]:
    """Return the open descriptors of this process; an empty set if they are unknown."""
    try:
        os.close(listing := os.dup(1))  # the lowest free number; listdir() opens it next
        return {int(name) for name in os.listdir("/proc/self/fd")} - {listing}  # noqa: PTH208 (faster)
    except OSError:
        return set()


def _may_harm(fd: int) -> bool:
    try:
        target = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115
        writable = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    except OSError:  # the descriptor was closed
        return False
    if target.startswith(("socket:", "pipe:")):
        return True
    return writable and not target.startswith(("/dev/", "/memfd:", "anon_inode:"))


def _has_thread() -> bool:
    """Return whether a thread of the trial still runs.

    Daemon threads do not count, because libraries keep them running on purpose.
    """
    if threading.active_count() == 1:
        return False
    return any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread())


def _has_process() -> bool:
    """Return whether a child or a background process of the trial still runs.

    Also collects the status of children that have ended.
    """
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == 0:
            return True
    return any(pid != os.getpid() and not has_ended(pid) for pid in children_of(os.getppid()))
