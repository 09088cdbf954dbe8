"""What did the machine do for this process meanwhile? Its counters, read in some dozens of microseconds.

Everything is a count that only grows, but for the GAUGES. What is read depends on the machine: hardware events
where there are any, the kernel's own events where it allows them, and always what /proc says. Whatever is missing
(in an old kernel, a sandbox, a container) is left out. What getrusage and /proc say is of this process, perf's
events are also of the processes that it started later, and pressure is of the whole machine.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable, Mapping
from pathlib import Path

from thriftune.system.perf_events import Events

GAUGES = frozenset({"resident_bytes", "threads"})
"""How much there was; all other counters are so much a second."""

_IO_NAMES = {
    b"rchar": "read_bytes",  # asked for, wherever it came from
    b"wchar": "written_bytes",
    b"syscr": "read_calls",
    b"syscw": "write_calls",
    b"read_bytes": "disk_read_bytes",
    b"write_bytes": "disk_written_bytes",
}
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MOST_THREADS = 64  # whose waiting is looked up; at about 2 microseconds each
_READ_AT_ONCE_BYTES = 4096


class Counters:
    """The counters of the process that made it, from then on. To be made before that starts threads.

    `source` says in a few words what is counted. `kind` is "hardware", "software" or "proc"; profiles of
    different kinds cannot be compared.
    """

    def __init__(self, *, proc: Path = Path("/proc")) -> None:
        self._events = Events()
        self._files: list[tuple[int, Callable[[bytes], dict[str, float]]]] = []
        own = sum(self._keep(proc / "self" / name, parse) for name, parse in (("io", _io), ("stat", _stat)))
        pressures = sum(self._keep(proc / "pressure" / of, _pressure(of)) for of in ("cpu", "memory", "io"))
        self._delays = _Delays(proc / "self" / "task")
        own += self._delays.seconds() is not None
        self.kind = "hardware" if self._events.hardware else "software" if self._events.software else "proc"
        self.source = _source(self._events, own > 0, pressures > 0)

    def read(self) -> dict[str, float]:
        """Counts since some start, and gauges, by name."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        read: dict[str, float] = {
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
            # Such as after a trial has closed all descriptors, and perhaps opened its own in their places.
            with contextlib.suppress(OSError, ValueError, IndexError):
                read |= parse(os.pread(descriptor, _READ_AT_ONCE_BYTES, 0))
        delay = self._delays.seconds()
        if delay is not None:
            read["run_delay_seconds"] = delay
        return read | self._events.read()

    def close(self) -> None:
        self._events.close()
        self._delays.close()
        while self._files:
            with contextlib.suppress(OSError):
                os.close(self._files.pop()[0])

    def _keep(self, path: Path, parse: Callable[[bytes], dict[str, float]]) -> bool:
        """Opens a file for good if it can be read and understood: opening costs more than reading."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            parse(os.pread(descriptor, _READ_AT_ONCE_BYTES, 0))
        except (OSError, ValueError, IndexError):
            os.close(descriptor)
            return False
        self._files.append((descriptor, parse))
        return True


def rates(before: Mapping[str, float], after: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Per second of wall time for counts; the later reading for gauges.

    A count that only one reading has is left out, and so are all if no time has passed. None is below 0: scaled
    events can fall a little.
    """
    found = {name: value for name, value in after.items() if name in GAUGES}
    if seconds > 0:
        for name in after.keys() & before.keys() - GAUGES:
            found[name] = max(0.0, after[name] - before[name]) / seconds
    return found


class _Delays:
    """How long the threads have waited for a core: those there are, and those there were when it was last asked.

    /proc/self/schedstat has the main thread only, and much of training happens in others. Their descriptors are
    kept, too; that of a thread which is no more gives an error, even if another has its number by now.
    """

    def __init__(self, tasks: Path) -> None:
        self._tasks = str(tasks)
        self._descriptors: dict[str, int] = {}
        self._nanoseconds: dict[str, int] = {}
        self._total = 0

    def seconds(self) -> float | None:
        """None: the kernel does not say."""
        try:
            threads = os.listdir(self._tasks)[:_MOST_THREADS]  # noqa: PTH208 (pathlib takes twice as long)
        except OSError:
            return None
        for gone in self._descriptors.keys() - set(threads):
            self._forget(gone)
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
    fields = text[text.rindex(b")") + 2 :].split()  # the program's name before it may have spaces
    return {"threads": int(fields[17]), "resident_bytes": int(fields[21]) * _PAGE_BYTES}


def _pressure(of: str) -> Callable[[bytes], dict[str, float]]:
    """How long at least one process of the machine had to wait for it."""
    name = f"{of}_pressure_seconds"

    def parse(text: bytes) -> dict[str, float]:
        some = text[: text.index(b"\n")]
        return {name: int(some[some.rindex(b"total=") + 6 :]) / 1e6}

    return parse


def _source(events: Events, own: bool, pressure: bool) -> str:
    said = " and ".join(["/proc"] * own + ["pressure"] * pressure)
    counted = events.hardware + events.software
    if not counted:
        return {"/proc": "/proc only", "": "getrusage only"}.get(said, said)
    kinds = "hardware and software" if events.hardware else "software"
    mode = " of user mode" if events.user_only else ""
    return f"{counted} {kinds} events{mode}" + (f", {said}" if said else "")
