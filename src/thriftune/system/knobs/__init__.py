"""Which system parameters may a running trial change?

A panel applies the knobs between steps. It restores them before the worker process runs its next trial. The thread
that trains applies the knobs, because OpenMP has a separate number of threads for each calling thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from thriftune.system.knobs.memory import Memory
from thriftune.system.knobs.panel import Panel
from thriftune.system.knobs.protocol import CannotTurn, Knob
from thriftune.system.knobs.threads import Threads

__all__ = ["BUILT_IN", "CannotTurn", "Knob", "Memory", "Panel", "Threads"]

BUILT_IN: Mapping[str, Callable[[], Knob]] = {"threads": Threads, "memory": Memory}
