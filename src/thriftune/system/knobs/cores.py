"""Which cores do the process's threads run on, and who comes first there?"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from thriftune.system.knobs.knob import CannotTurn, Knob, powers_of_two, whole

T = TypeVar("T")


class _EveryThread(Generic[T]):
    """Something that the kernel keeps for each thread; a new thread has it from the one that started it."""

    def __init__(self, get: Callable[[int], T], set_: Callable[[int, T], None]) -> None:
        self._get = get
        self._set = set_
        self._before: dict[int, T] = {}  # by thread; empty: nothing is turned
        self._main: T  # of the main thread

    def before(self) -> dict[int, T]:
        """How it is when nothing is turned, for each thread that was there before."""
        if self._before:
            return self._before
        found: dict[int, T] = {}
        for thread in _threads():
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                found[thread] = self._get(thread)
        return found

    def turn(self, new: Callable[[T], T]) -> None:
        """`new`: what it shall be, by what it was."""
        if not self._before:
            self._before = self.before()
            self._main = self._before[os.getpid()]
        try:
            self._go_round(new)
        except OSError as error:
            self.restore()
            raise CannotTurn(f"the kernel does not allow it ({error.strerror})") from error

    def restore(self) -> None:
        """Threads that have started since get what the main one had."""
        if self._before:
            self._go_round(lambda before: before)
            self._before = {}

    def _go_round(self, new: Callable[[T], T]) -> None:
        """Until there is none that was started, meanwhile, by one that had not been reached."""
        reached: set[int] = set()
        while left := _threads() - reached:
            for thread in left:
                with contextlib.suppress(ProcessLookupError):
                    self._set(thread, new(self._before.get(thread, self._main)))
            reached |= left


def _threads() -> set[int]:
    return {int(entry.name) for entry in Path("/proc/self/task").iterdir()}


class Cores(Knob):
    """Only so many of the cores that the process may run on: all threads keep to them.

    Which: as many in a row, in the order of their numbers and round again from the first, from the one on that the
    process's id times that many comes to. So the same process always gets the same, and workers that were started
    one after another do not all get the first ones. How busy they are is not asked: it changes faster than a step.
    """

    name = "cores"

    def __init__(self) -> None:
        self._masks = _EveryThread[set[int]](os.sched_getaffinity, os.sched_setaffinity)

    def values(self, cores: int) -> Sequence[int]:
        return powers_of_two(cores)

    def apply(self, value: Any) -> None:
        count = whole(value)
        allowed = sorted(set[int]().union(*self._masks.before().values()))
        if count > len(allowed):
            raise CannotTurn(f"the process may run on {len(allowed)} only")
        mask = chosen(allowed, count, os.getpid())
        self._masks.turn(lambda _: mask)

    def restore(self) -> None:
        self._masks.restore()


def chosen(allowed: Sequence[int], count: int, pid: int) -> set[int]:
    return {allowed[(pid * count + i) % len(allowed)] for i in range(count)}


class Nice(Knob):
    """Other processes come first. A thread that gives way more than that already goes on to do so."""

    name = "nice"

    def __init__(self) -> None:
        self._nice = _EveryThread[int](_nice_of, _set_nice)

    def values(self, cores: int) -> Sequence[int]:  # noqa: ARG002
        return (5, 10)

    def apply(self, value: Any) -> None:
        nice = whole(value)
        least = min(self._nice.before().values())
        if nice <= least:
            raise CannotTurn(f"it is {least} without")
        if not _there_and_back(nice, least):
            raise CannotTurn(f"it could not be put back: that takes root, or a limit RLIMIT_NICE of {20 - least}")
        self._nice.turn(lambda before: max(before, nice))

    def restore(self) -> None:
        self._nice.restore()


def _nice_of(thread: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, thread)  # Linux has it for each thread


def _set_nice(thread: int, nice: int) -> None:
    os.setpriority(os.PRIO_PROCESS, thread, nice)


def _there_and_back(there: int, back: int) -> bool:
    """Tried on a thread made for it: being root is not enough where a container has taken that right away."""
    came_back = False

    def go() -> None:
        nonlocal came_back
        with contextlib.suppress(OSError):
            for nice in (there, back):
                _set_nice(threading.get_native_id(), nice)
            came_back = True

    thread = threading.Thread(target=go)
    thread.start()
    thread.join()
    return came_back
