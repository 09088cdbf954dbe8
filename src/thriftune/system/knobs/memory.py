"""The knob "memory": the process keeps freed memory."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from thriftune.system.knobs.protocol import CannotTurn, Knob

# Parameters of mallopt(3).
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_LARGEST_INT = (1 << 31) - 1

_MMAP_THRESHOLD_BYTES = 1 << 30
"""The process keeps the memory of freed arrays that are smaller than this."""

_MMAP_THRESHOLD_BYTES_BEFORE_2_35 = 32 << 20
"""The largest threshold that glibc accepts before version 2.35."""

_TOP_PAD_BYTES = 64 << 20
"""The process requests memory from the kernel in pieces of this size, so that it requests memory less often."""


class Memory(Knob):
    """The handling of freed memory.

    With the value "kept", the process keeps the memory of freed arrays. Otherwise it returns the memory of each
    large array to the kernel, which clears each page before it is used again. That may take half as long as the
    training itself. The knob does not change any result. The process may occupy more memory.

    glibc adjusts its thresholds by itself until they are set. It has no function that makes it adjust them
    again, and any fixed thresholds make some training slower than before. Therefore restore() returns only the
    memory that is free now, and the process continues to keep memory that is freed later.
    """

    name = "memory"
    lasts = True

    def __init__(self) -> None:
        self._glibc: Any = None  # the C library; None unless the knob is applied

    def values(self, cores: int) -> Sequence[str]:  # noqa: ARG002
        return ("kept",)

    def apply(self, value: Any) -> None:
        if value != "kept":
            raise CannotTurn("it can be kept")
        if self._glibc is None and not _has_spare_memory():
            raise CannotTurn("the machine has little more memory left than the process uses already")
        import ctypes

        library = ctypes.CDLL(None)
        if not all(hasattr(library, name) for name in ("gnu_get_libc_version", "mallopt", "malloc_trim")):
            raise CannotTurn("it needs the GNU C library, and Python runs with another one here")
        thresholds = _MMAP_THRESHOLD_BYTES, _MMAP_THRESHOLD_BYTES_BEFORE_2_35
        if not any(library.mallopt(_MMAP_THRESHOLD, threshold) for threshold in thresholds):
            raise CannotTurn("the C library does not allow it (mallopt)")
        self._glibc = library
        library.mallopt(_TRIM_THRESHOLD, _LARGEST_INT)
        library.mallopt(_TOP_PAD, _TOP_PAD_BYTES)

    def restore(self) -> None:
        if self._glibc is None:
            return
        self._glibc.malloc_trim(0)
        self._glibc = None


def _has_spare_memory() -> bool:
    """Return whether more than twice the memory of this process is available.

    Other trials may keep their memory, too.
    """
    try:
        with Path("/proc/meminfo").open() as lines:
            free = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return True
    return all(each > 2 * resident for each in [*free, *_free_in_control_groups()])


def _free_in_control_groups() -> Iterator[int]:
    """Yield the free bytes under each memory limit of the container.

    The limits are set by control groups of version 1 or 2.
    """
    groups = Path("/sys/fs/cgroup")
    for limit, used in (
        (groups / "memory.max", groups / "memory.current"),
        (groups / "memory/memory.limit_in_bytes", groups / "memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):  # no such file, or it says "max"
            yield int(limit.read_text()) - int(used.read_text())
