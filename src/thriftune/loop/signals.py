"""Stop a running study on Ctrl-C and SIGTERM: cleanly the first time, at once the second time."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from thriftune.common.command_hints import how_to_resume
from thriftune.errors import StudyInterrupted


@contextlib.contextmanager
def stop_on_signals(stop: Callable[[str], bool]) -> Iterator[None]:
    """Call `stop` with the signal's name on Ctrl-C and SIGTERM, while the block runs in the main thread.

    `stop` returns whether it was called for the first time. A second Ctrl-C raises KeyboardInterrupt.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupted(number: int, _frame: FrameType | None) -> None:
        first = stop("Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name)
        if not first and number == signal.SIGINT:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def stopping_now(study: str, store_url: str) -> Iterator[None]:
    """Turn a KeyboardInterrupt, as from a second Ctrl-C, into a StudyInterrupted that says how to resume."""
    try:
        yield
    except StudyInterrupted:
        raise
    except KeyboardInterrupt:
        how = how_to_resume(study, store_url)
        raise StudyInterrupted(f"stopped now; what trials reported and saved is safe. {how}".rstrip()) from None
