"""Runs a function on many items in several threads, for work that waits or releases Python's lock."""

from __future__ import annotations

import _thread  # not threading: code that joins every thread it finds must not wait for these
import signal
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def for_each(function: Callable[[T], object], items: Iterable[T], threads: int) -> None:
    """Call the function with each item, in at most this many threads, and wait for all of them.

    After the first error, no further items are begun, and the error is raised.
    """
    remaining = list(items)[::-1]
    errors: list[BaseException] = []
    ended = threading.Semaphore(0)

    def work() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the main thread handles all signals
        try:
            while not errors:
                try:
                    item = remaining.pop()  # atomic
                except IndexError:
                    return
                function(item)
        except BaseException as error:
            errors.append(error)
        finally:
            ended.release()

    count = min(threads, len(remaining))
    for _ in range(count):
        _thread.start_new_thread(work, ())
    for _ in range(count):
        ended.acquire()
    if errors:
        raise errors[0]
