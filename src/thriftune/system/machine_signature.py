"""Describe this machine in a few words: effects of knobs are only expected again on the same kind of machine."""

from __future__ import annotations

import functools
import math
import os
import platform
from pathlib import Path

_GIB = 1 << 30


@functools.cache
def signature() -> str:
    """Return the machine's processor, cores and memory."""
    cores = os.cpu_count() or 1  # of the machine, whatever this process may use of it at the moment
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _GIB
    # The kernel reserves some memory for itself, and another amount after an update.
    rounded_gib = 2 ** max(0, round(math.log2(memory_gib)))
    return f"{_processor()}, {cores} {'core' if cores == 1 else 'cores'}, {rounded_gib} GiB"


def _processor() -> str:
    try:
        return _processor_in(Path("/proc/cpuinfo").read_text(errors="replace"))
    except OSError:
        return platform.machine()


def _processor_in(cpuinfo: str) -> str:
    """Return the model's name; on ARM, which has none, its numbers; else the architecture."""
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    numbers = [fields[name] for name in ("CPU implementer", "CPU part") if fields.get(name)]
    return fields.get("model name") or " ".join([platform.machine(), *numbers])
