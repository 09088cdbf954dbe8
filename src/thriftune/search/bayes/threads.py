"""How many cores does a suggestion take? One: its matrices are small, and trials run on the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

_lock = threading.RLock()


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS keeps to the calling thread. On a busy machine its threads would wait for each other, at ten times the
    cost; and the sum of two numbers of threads is not the same to the last digit."""
    with _lock, _controller().limit(limits=1, user_api="blas"):
        yield


@cache
def _controller() -> ThreadpoolController:
    """Finding the libraries takes milliseconds; SciPy's are loaded by whoever imports this package."""
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()
