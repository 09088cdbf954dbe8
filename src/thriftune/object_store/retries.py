"""Repeat a request that failed for a reason that may pass, with exponential backoff."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from thriftune.object_store.protocol import StoreUnavailable

T = TypeVar("T")

RETRY_SECONDS = 30.0
"""No retry begins later than this after the first failure: longer than most restarts and throttling, and shorter
than a spot machine's notice."""

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0


def with_retries(request: Callable[[], T], retry_seconds: float) -> T:
    """Return the result of a request. Retry it after StoreUnavailable, and raise the last error.

    `retry_seconds`: no retry begins later than this after the first failure.
    """
    give_up_at: float | None = None
    longest = _FIRST_PAUSE_SECONDS
    while True:
        try:
            return request()
        except StoreUnavailable:
            now = time.monotonic()
            give_up_at = give_up_at or now + retry_seconds
            pause = longest * random.uniform(0.5, 1.0)  # so that many workers do not come back at the same moment
            if now + pause >= give_up_at:
                raise
        time.sleep(pause)
        longest = min(2 * longest, _LONGEST_PAUSE_SECONDS)
