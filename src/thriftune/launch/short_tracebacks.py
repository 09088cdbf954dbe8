"""End a script that does not catch an error with a short message instead of a traceback.

Python prints the traceback of an exception that a script does not catch. Users need only the message after Ctrl-C,
after all trials failed, if changed code keeps a study from being resumed, and if another process runs the study.
"""

from __future__ import annotations

import builtins
import contextlib
import sys
from collections.abc import Callable, Iterator
from types import TracebackType

from thriftune.common import exit_status
from thriftune.errors import StudyBusy, StudyFailed, StudyInterrupted, StudyMismatch

_SHORT = (StudyBusy, StudyFailed, StudyInterrupted, StudyMismatch)
"""Exceptions whose message tells users of a script all they need."""

Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


@contextlib.contextmanager
def short_if_uncaught() -> Iterator[None]:
    """End a script that does not catch one of these exceptions with its message alone.

    The exit status is 130 after an interruption, else 1. In an interactive Python or a notebook nothing changes.
    """
    try:
        yield
    except _SHORT:
        if not _is_interactive() and not isinstance(sys.excepthook, _ShortHook):
            sys.excepthook = _ShortHook(sys.excepthook)
        raise


class _ShortHook:
    """An exception hook that prints the message of these exceptions, and passes others to the hook before it."""

    def __init__(self, before: Hook) -> None:
        self._before = before

    def __call__(self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if not isinstance(error, _SHORT):
            self._before(kind, error, traceback)
            return
        if sys.stderr is not None:
            with contextlib.suppress(OSError, ValueError):  # the terminal may be closed
                print(error, file=sys.stderr, flush=True)
        status = exit_status.INTERRUPTED if isinstance(error, StudyInterrupted) else exit_status.ERROR
        raise SystemExit(status)  # Python accepts it from a hook, and runs atexit functions


def _is_interactive() -> bool:
    return bool(hasattr(sys, "ps1") or sys.flags.interactive or hasattr(builtins, "__IPYTHON__"))
