"""What becomes of freed memory, and how much may there be?"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from thriftune.system.knobs.knob import CannotTurn, Knob, given, one_of, whole

# Of mallopt(3).
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_LARGEST_INT = (1 << 31) - 1


class Memory(Knob):
    """Freed memory is "kept" by the process, instead of going back to the kernel with every large array.

    Pages that come anew from the kernel have to be cleared, which may take half as long again as training itself.
    What is computed stays the same to the last bit; more memory may lie idle.

    glibc adjusts its thresholds by itself until they are set, and cannot be told to do so again; any that are
    fixed make some training slower than it was. So restore() gives back what is free, and leaves the thresholds as
    they are: a process that has once kept its memory goes on doing so.
    """

    name = "memory"
    lasts = True

    def __init__(self) -> None:
        self._glibc: Any = None  # None: nothing is turned

    def values(self, cores: int) -> Sequence[str]:  # noqa: ARG002
        return ("kept",)

    def apply(self, value: Any) -> None:
        one_of(value, "kept")
        if self._glibc is None and not _plenty():
            raise CannotTurn("there is not much more memory left than the process has already")
        import ctypes

        library = ctypes.CDLL(None)
        if not all(hasattr(library, name) for name in ("gnu_get_libc_version", "mallopt", "malloc_trim")):
            raise CannotTurn("this takes the GNU C library, and Python runs with another one here")
        # Before 2.35, glibc takes no threshold above 32 MiB: then only smaller arrays are kept.
        if not (library.mallopt(_MMAP_THRESHOLD, 1 << 30) or library.mallopt(_MMAP_THRESHOLD, 32 << 20)):
            raise CannotTurn("the C library does not allow it (mallopt)")
        self._glibc = library
        library.mallopt(_TRIM_THRESHOLD, _LARGEST_INT)
        library.mallopt(_TOP_PAD, 64 << 20)

    def restore(self) -> None:
        if self._glibc is None:
            return
        self._glibc.malloc_trim(0)
        self._glibc = None


def _plenty() -> bool:
    """Whether there is twice as much memory to be had as the process has: others may keep theirs, too."""
    try:
        with Path("/proc/meminfo").open() as lines:
            free = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return True
    return all(each > 2 * resident for each in [*free, *_free_in_groups()])


def _free_in_groups() -> Iterator[int]:
    """Of a container, which may have much less than the machine: by control groups of either version."""
    groups = Path("/sys/fs/cgroup")
    for most, used in (
        (groups / "memory.max", groups / "memory.current"),
        (groups / "memory/memory.limit_in_bytes", groups / "memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):  # there is none, or it says "max"
            yield int(most.read_text()) - int(used.read_text())


class MemoryLimit(Knob):
    """No more data than so many bytes: what asks for more gets a MemoryError. By the soft limit RLIMIT_DATA."""

    name = "memory_limit"

    def __init__(self, bytes_: int | Sequence[int]) -> None:
        """`bytes_`: one number or several, all of which may be tried."""
        self._values = given(self.name, bytes_, "bytes")
        self._before: int | None = None

    def values(self, cores: int) -> Sequence[int]:  # noqa: ARG002
        return self._values

    def apply(self, value: Any) -> None:
        limit = whole(value)
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard != resource.RLIM_INFINITY and limit > hard:
            raise CannotTurn(f"the hard limit RLIMIT_DATA is {hard:,} bytes, and only root can raise it")
        if limit < (used := _data_bytes()):
            raise CannotTurn(f"the process has {used / (1 << 30):.1f} GiB of data already")
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
        if self._before is None:
            self._before = soft

    def restore(self) -> None:
        if self._before is not None:
            hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
            resource.setrlimit(resource.RLIMIT_DATA, (self._before, hard))
            self._before = None


def _data_bytes() -> int:
    """What RLIMIT_DATA is compared with."""
    with Path("/proc/self/status").open() as lines:
        return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:")), 0)
