"""How many threads a trial gets, and the environment variables that limit the threads of numeric libraries.

The variables are set before a process starts.
"""

from __future__ import annotations

THREAD_VARIABLES = tuple(f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB"))
"""PyTorch uses the first one. If they are not set, libraries use as many threads as the machine has cores."""


def thread_limits(count: int) -> dict[str, str]:
    """Return the environment variables that limit a process to `count` threads for each library."""
    return dict.fromkeys(THREAD_VARIABLES, str(count))


def threads_per_trial(cores: float, slots: int = 1) -> int:
    """Return how many threads each trial gets on a machine, or part of one, with these cores and slots."""
    return max(1, int(cores) // slots)
