"""The limit of one BLAS thread while a suggestion is computed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

_lock = threading.RLock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Run the block with a single BLAS thread.

    The matrices are small and trials run on the other cores. On a busy machine, several threads would wait for
    each other, at ten times the cost. Their number would also change the last digit of sums.
    """
    with _lock, _controller().limit(limits=1, user_api="blas"):
        yield


@cache
def _controller() -> ThreadpoolController:
    """Return the controller of all BLAS libraries; finding them takes milliseconds."""
    import scipy.linalg  # noqa: F401 (loads SciPy's BLAS, so that the controller finds it)

    return ThreadpoolController()
