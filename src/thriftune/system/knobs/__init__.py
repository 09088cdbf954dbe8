"""What of its machine may a running trial change? Knobs, and the panel by which a worker turns them between steps.

Whatever is turned is put back before the next trial, which may be given the same process. Knobs are turned by the
thread that trains: OpenMP keeps its number of threads for each calling thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from thriftune.system.knobs.cores import Cores, Nice
from thriftune.system.knobs.gpus import GpuPower
from thriftune.system.knobs.knob import CannotTurn, Knob
from thriftune.system.knobs.libraries import Precision, Threads
from thriftune.system.knobs.memory import Memory, MemoryLimit
from thriftune.system.knobs.panel import Panel

__all__ = [
    "BUILT_IN",
    "CannotTurn",
    "Cores",
    "GpuPower",
    "Knob",
    "Memory",
    "MemoryLimit",
    "Nice",
    "Panel",
    "Precision",
    "Threads",
]

BUILT_IN: Mapping[str, Callable[[], Knob]] = {
    "threads": Threads,
    "memory": Memory,
    "cores": Cores,
    "nice": Nice,
    "precision": Precision,
}
"""Those that need no argument."""
