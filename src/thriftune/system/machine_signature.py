"""Describe this machine in a short text.

The effects of knobs on different kinds of machines are not compared.
"""

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
    cores = os.cpu_count() or 1  # all cores of the machine, even if this process may use only some
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _GIB
    # Rounded, because the kernel reserves some memory for itself, and the amount differs between its versions.
    rounded_gib = 2 ** max(0, round(math.log2(memory_gib)))
    return f"{_processor()}, {cores} {'core' if cores == 1 else 'cores'}, {rounded_gib} GiB"


def _processor() -> str:
    try:
        return _processor_in(Path("/proc/cpuinfo").read_text(errors="replace"))
    except OSError:
        return platform.machine()


def _processor_in(cpuinfo: str) -> str:
    """Return the name of the processor's model.

    ARM processors have no name. Their architecture and numbers are returned instead.
    """
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    numbers = [fields[name] for name in ("CPU implementer", "CPU part") if fields.get(name)]
    return fields.get("model name") or " ".join([platform.machine(), *numbers])
