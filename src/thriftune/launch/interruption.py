"""Say how to go on with a study that has stopped, and end scripts with this message instead of a traceback.

Python prints the traceback of an exception that a script does not catch. Users need only the message after Ctrl-C,
after all trials failed, and when changed code keeps a study from going on.
"""

from __future__ import annotations

import builtins
import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator
from types import TracebackType

from thriftune.errors import StudyFailed, StudyInterrupted, StudyMismatch

INTERRUPTED = 130
"""Exit status after an interruption. Shells use it for a program that Ctrl-C has ended."""

_SHORT = (StudyFailed, StudyInterrupted, StudyMismatch)
"""Exceptions whose message tells users of a script all they need."""

Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def how_to_go_on(study: str, store_url: str) -> str:
    """Return what to type to go on with a study; empty if the store was in memory."""
    return "" if store_url == ":memory:" else f"To go on: {resume_line(study, store_url)}"


def resume_line(study: str, store_url: str) -> str:
    """Return the command that goes on with a study."""
    return f"thriftune resume {study} --store {shlex.quote(store_url)}"


@contextlib.contextmanager
def stopping_now(study: str, store_url: str) -> Iterator[None]:
    """Turn a KeyboardInterrupt, as from a second Ctrl-C, into a StudyInterrupted that says how to go on."""
    try:
        yield
    except StudyInterrupted:
        raise
    except KeyboardInterrupt:
        how = how_to_go_on(study, store_url)
        raise StudyInterrupted(f"stopped now; what trials reported and saved is safe. {how}".rstrip()) from None


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
        status = INTERRUPTED if isinstance(error, StudyInterrupted) else 1
        raise SystemExit(status)  # Python accepts it from a hook, and runs atexit functions


def _is_interactive() -> bool:
    return bool(hasattr(sys, "ps1") or sys.flags.interactive or hasattr(builtins, "__IPYTHON__"))
