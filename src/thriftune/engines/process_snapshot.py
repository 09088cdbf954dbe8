"""Puts a worker process back as it was after each trial, so that none meets what another has changed.

What cannot be put back, such as a thread that goes on, ends the worker: the next trial gets a new one.
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

_MOST_LEFT_OPEN = 64
"""So many harmless descriptors may be left open in one worker. The usual limit of a process is 1,024."""


class Surroundings:
    """Keeps the surroundings as they are when it is made; restore() brings them back."""

    def __init__(self, output_fd: int) -> None:
        """`output_fd`: where standard output and error are to go. It must stay open."""
        self._output = output_fd
        self._connect_output()
        self._stdout, self._stderr = _text_file(1), _text_file(2)
        sys.stdout, sys.stderr = self._stdout, self._stderr
        self.keep_loaded()

    def keep_loaded(self) -> None:
        """Keeps what loading the training function has changed. Called once that is done."""
        self._folder = os.getcwd()  # noqa: PTH109 (chdir is quickest with a string)
        self._variables = dict(os.environ)
        self._mask = os.umask(0o022)
        os.umask(self._mask)
        self._import_path = list(sys.path)
        self._values = [each.read() for each in PROPERTIES]
        self._open = _descriptors()
        self._most_open = len(self._open) + _MOST_LEFT_OPEN

    def restore(self) -> bool:
        """Puts everything back. Returns False if something is left that may disturb the next trial."""
        faulthandler.cancel_dump_traceback_later()  # first: it may be about to end this process
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
            zone = os.environ.get("TZ")
            os.environ.clear()
            os.environ.update(self._variables)
            if os.environ.get("TZ") != zone:
                time.tzset()  # C may have read the variable, unseen by Python
        if sys.path != self._import_path:
            sys.path[:] = self._import_path
        os.umask(self._mask)
        signal.set_wakeup_fd(-1)
        for each, before in zip(PROPERTIES, self._values, strict=True):
            if each.read() != before:
                each.write(before)
        if faulthandler.is_enabled():
            faulthandler.enable(file=2)  # it may have been told to write elsewhere, which cannot be read

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
