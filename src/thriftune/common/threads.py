"""How many threads do the libraries of a process take? What is said to them before they are loaded."""

from __future__ import annotations

THREAD_VARIABLES = tuple(f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB"))
"""PyTorch goes by the first. Where they are not set, libraries count the cores, some all of the machine."""


def thread_limits(count: int) -> dict[str, str]:
    """Environment variables, so that processes share the cores instead of fighting for them."""
    return dict.fromkeys(THREAD_VARIABLES, str(max(1, count)))
