"""Count 58 kernel events of this process. PipeTune also counts 58, but does not list them: these are our choice.

perf_event_open(2) is called directly. An event belongs to the thread that opened it and to every thread and
process started from there later, so a worker opens them first of all and keeps them for its life. Each has a
descriptor of its own: the kernel does not read inherited events as a group.

There are more events than a processor has counters, so the kernel lets them take turns, and says for how long each
was wanted and for how long it counted. What is read is scaled up from the one to the other, as perf does.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

# Of the calling convention of each processor (perf_event_open has no wrapper in libc).
_CALL_NUMBERS = {"x86_64": 298, "aarch64": 241}

# linux/perf_event.h
_HARDWARE, _SOFTWARE, _CACHE = 0, 1, 3
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")  # the 64 bytes of the first version, which every kernel takes
_TOTAL_TIME_ENABLED, _TOTAL_TIME_RUNNING = 1 << 0, 1 << 1
_INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6
_CLOSE_ON_EXEC = 1 << 3
_READING = struct.Struct("=QQQ")  # value, nanoseconds enabled, nanoseconds running


class Event(NamedTuple):
    """One thing that is counted, as the kernel knows it. A raw count times `unit` is what `name` says."""

    name: str
    type: int
    config: int
    unit: float = 1.0
    in_kernel: bool = False  # it only ever happens in the kernel: counted of user mode alone, it would stay 0


_GENERIC = (
    "cycles",
    "instructions",
    "cache_references",
    "cache_misses",
    "branches",
    "branch_misses",
    "bus_cycles",
    "stalled_cycles_frontend",
    "stalled_cycles_backend",
    "reference_cycles",
)

EVENTS: tuple[Event, ...] = (
    *(Event(name, _HARDWARE, number) for number, name in enumerate(_GENERIC)),
    *(
        Event(f"{cache}_{operation}_{outcome}", _CACHE, number | operation_number << 8 | outcome_number << 16)
        for number, cache in enumerate(("l1d", "l1i", "ll", "dtlb", "itlb", "branch_unit", "node"))
        for operation_number, operation in enumerate(("read", "write", "prefetch"))
        for outcome_number, outcome in enumerate(("accesses", "misses"))
    ),
    Event("task_clock_seconds", _SOFTWARE, 1, unit=1e-9),
    Event("page_faults", _SOFTWARE, 2),  # rather than alignment faults, of which x86 has none
    Event("context_switches", _SOFTWARE, 3, in_kernel=True),
    Event("cpu_migrations", _SOFTWARE, 4, in_kernel=True),
    Event("page_faults_minor", _SOFTWARE, 5),
    Event("page_faults_major", _SOFTWARE, 6),
)
COUNTED_ANYWAY = frozenset({"page_faults", "page_faults_minor", "page_faults_major", "context_switches"})
"""By getrusage, too, though not of processes that were started later."""

TASK_CLOCK = next(event for event in EVENTS if event.name == "task_clock_seconds")


class Events:
    """The events that this machine has and that this process may count, from now on.

    Those it lacks are left out, and so are all where the kernel knows no events or a container forbids them.
    """

    def __init__(self, wanted: Iterable[Event] = EVENTS) -> None:
        self.user_only = False  # the kernel's part may not be counted (perf_event_paranoid)
        self._descriptors: dict[Event, int] = {}
        for event in wanted:
            descriptor = self._open(event)
            if descriptor is not None:
                self._descriptors[event] = descriptor
        self.hardware = sum(event.type != _SOFTWARE for event in self._descriptors)
        if not self.hardware:
            # Each open event makes every switch to and from the process longer: on a single core, where the driver
            # has its turn after each report, all six took a hundredth of the time of steps of a millisecond.
            for event in [event for event in self._descriptors if event.name in COUNTED_ANYWAY]:
                os.close(self._descriptors.pop(event))
        self.software = len(self._descriptors) - self.hardware

    def read(self) -> dict[str, float]:
        """So far, by name; without those that have not had a turn yet."""
        counts = {}
        for event, descriptor in self._descriptors.items():
            try:
                counted = count(os.read(descriptor, _READING.size))
            except OSError:  # a trial that closed every descriptor closed this one, too
                continue
            if counted is not None:
                counts[event.name] = counted * event.unit
        return counts

    def close(self) -> None:
        while self._descriptors:
            with contextlib.suppress(OSError):
                os.close(self._descriptors.popitem()[1])

    def _open(self, event: Event) -> int | None:
        opened = _perf_event_open(attributes(event, self.user_only))
        if opened in (-errno.EACCES, -errno.EPERM) and not self.user_only:
            self.user_only = True  # for all that follow: the kernel's answer does not depend on the event
            opened = _perf_event_open(attributes(event, self.user_only))
        if opened >= 0 and self.user_only and event.in_kernel:
            os.close(opened)
            return None
        return opened if opened >= 0 else None


def attributes(event: Event, user_only: bool) -> bytes:
    """What perf_event_open is to be told: a struct perf_event_attr."""
    flags = _INHERIT | (_EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR if user_only else 0)
    times = _TOTAL_TIME_ENABLED | _TOTAL_TIME_RUNNING
    return _ATTRIBUTES.pack(event.type, _ATTRIBUTES.size, event.config, 0, 0, times, flags, 0, 0, 0)


def count(reading: bytes) -> float | None:
    """What a descriptor's bytes say, scaled up to all the time it was wanted; None: it never counted."""
    if len(reading) != _READING.size:
        return None
    value, enabled, running = _READING.unpack(reading)
    return value * (enabled / running) if running else None


def _perf_event_open(described: bytes) -> int:
    """A descriptor for this thread on any core, or the negative number of the error."""
    number = _CALL_NUMBERS.get(os.uname().machine)
    if number is None or sys.platform != "linux" or sys.maxsize < 1 << 32:  # a 32-bit process has other numbers
        return -errno.ENOSYS
    import ctypes

    this_thread, any_core, no_group = 0, -1, -1
    descriptor = _system_call()(number, described, this_thread, any_core, no_group, _CLOSE_ON_EXEC)
    return int(descriptor) if descriptor >= 0 else -ctypes.get_errno()


@cache
def _system_call() -> Any:
    import ctypes  # takes some milliseconds, in every worker

    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    call.argtypes = [ctypes.c_long, ctypes.c_char_p, *[ctypes.c_long] * 4]
    return call
