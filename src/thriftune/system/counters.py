"""Read the counters of this process, such as its CPU time and its page faults.

Reading all counters takes about 30 microseconds. All values are counts that only grow, except the GAUGES. They
come from getrusage() and from /proc. Counters that this kernel or container does not have are left out. The
counters of pressure are about the whole machine, all others about this process.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable, Mapping
from pathlib import Path

GAUGES = frozenset({"resident_bytes", "threads"})
"""Counters that are present amounts. All other counters are converted to rates per second."""

_IO_NAMES = {
    b"rchar": "read_bytes",  # all requested bytes, from the disk or from the cache
    b"wchar": "written_bytes",
    b"syscr": "read_calls",
    b"syscw": "write_calls",
    b"read_bytes": "disk_read_bytes",
    b"write_bytes": "disk_written_bytes",
}
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MOST_THREADS = 64  # the most threads whose waiting time is read, because each takes about 2 microseconds
_READ_AT_ONCE_BYTES = 4096


class Counters:
    """The counters of the process that creates it."""

    def __init__(self, *, proc: Path = Path("/proc")) -> None:
        self._files: list[tuple[int, Callable[[bytes], dict[str, float]]]] = []
        self._keep_open(proc / "self" / "io", _io)
        self._keep_open(proc / "self" / "stat", _stat)
        for of in ("cpu", "memory", "io"):
            self._keep_open(proc / "pressure" / of, _pressure(of))
        self._delays = _RunDelays(proc / "self" / "task")
        self._delays.seconds()  # opens the files of the threads that run now

    def read(self) -> dict[str, float]:
        """Return the present value of each counter, by name."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        reading: dict[str, float] = {
            "user_seconds": usage.ru_utime,
            "system_seconds": usage.ru_stime,
            "minor_faults": usage.ru_minflt,
            "major_faults": usage.ru_majflt,
            "voluntary_switches": usage.ru_nvcsw,
            "involuntary_switches": usage.ru_nivcsw,
            "blocks_in": usage.ru_inblock,
            "blocks_out": usage.ru_oublock,
        }
        for descriptor, parse in self._files:
            # The training code may have closed all descriptors, and opened other files with the same numbers.
            with contextlib.suppress(OSError, ValueError, IndexError):
                reading |= parse(os.pread(descriptor, _READ_AT_ONCE_BYTES, 0))
        delay = self._delays.seconds()
        if delay is not None:
            reading["run_delay_seconds"] = delay
        return reading

    def close(self) -> None:
        self._delays.close()
        while self._files:
            with contextlib.suppress(OSError):
                os.close(self._files.pop()[0])

    def _keep_open(self, path: Path, parse: Callable[[bytes], dict[str, float]]) -> None:
        """Keep a file open for read() if it can be read and parsed.

        Opening a file takes longer than reading it.
        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            parse(os.pread(descriptor, _READ_AT_ONCE_BYTES, 0))
        except (OSError, ValueError, IndexError):
            os.close(descriptor)
        else:
            self._files.append((descriptor, parse))


def rates(before: Mapping[str, float], after: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Return the counters of the time between two readings, by name.

    Counts become rates per second of wall time. Gauges have the value of the later reading. Counts that only one
    reading has are left out. If no time has passed, all counts are left out. No rate is below 0.
    """
    result = {name: value for name, value in after.items() if name in GAUGES}
    if seconds > 0:
        for name in after.keys() & before.keys() - GAUGES:
            result[name] = max(0.0, after[name] - before[name]) / seconds
    return result


class _RunDelays:
    """The time for which all threads of the process have waited for a core.

    Threads that have ended are included. /proc/self/schedstat counts only the main thread, but other threads do
    much of the training. The descriptors stay open. Reading the descriptor of a thread that has ended fails,
    even if a new thread has the same number.
    """

    def __init__(self, tasks: Path) -> None:
        self._tasks = str(tasks)
        self._descriptors: dict[str, int] = {}
        self._nanoseconds: dict[str, int] = {}  # the waiting time of each thread at its last reading
        self._total = 0  # nanoseconds

    def seconds(self) -> float | None:
        """Return the sum over all threads, or None if the kernel does not report it."""
        try:
            threads = os.listdir(self._tasks)[:_MOST_THREADS]  # noqa: PTH208 (pathlib takes twice as long)
        except OSError:
            return None
        for ended in self._descriptors.keys() - set(threads):
            self._forget(ended)
        for thread in threads:
            try:
                if thread not in self._descriptors:
                    path = f"{self._tasks}/{thread}/schedstat"
                    self._descriptors[thread] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                delay = int(os.pread(self._descriptors[thread], 128, 0).split()[1])
            except (OSError, ValueError, IndexError):
                self._forget(thread)
                continue
            self._total += max(0, delay - self._nanoseconds.get(thread, 0))
            self._nanoseconds[thread] = delay
        return self._total / 1e9 if self._descriptors else None

    def close(self) -> None:
        for thread in list(self._descriptors):
            self._forget(thread)

    def _forget(self, thread: str) -> None:
        self._nanoseconds.pop(thread, None)
        descriptor = self._descriptors.pop(thread, None)
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _io(text: bytes) -> dict[str, float]:
    pairs = (line.split(b": ") for line in text.splitlines())
    return {_IO_NAMES[name]: int(value) for name, value in pairs if name in _IO_NAMES}


def _stat(text: bytes) -> dict[str, float]:
    fields = text[text.rindex(b")") + 2 :].split()  # after the program's name, which may contain spaces
    return {"threads": int(fields[17]), "resident_bytes": int(fields[21]) * _PAGE_BYTES}


def _pressure(of: str) -> Callable[[bytes], dict[str, float]]:
    """Return a parser for the pressure on a resource: "cpu", "memory" or "io".

    Pressure is the time during which at least one process of the machine waited for the resource.
    """
    name = f"{of}_pressure_seconds"

    def parse(text: bytes) -> dict[str, float]:
        some = text[: text.index(b"\n")]
        return {name: int(some[some.rindex(b"total=") + 6 :]) / 1e6}

    return parse
