"""Tell other machines that a study has a driver, and find out whether it lives.

    driver.json    which process drives the study; put again every few seconds, and deleted at the end

Only the server's clock counts: the heartbeat's age is the time between its last change and that of an object that
is put now. So the clocks of machines may differ.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from dataclasses import asdict

from thriftune.object_store.protocol import AccessDenied, ObjectMissing, ObjectStore, ObjectStoreError
from thriftune.store.epochs import UNKNOWN, Claim

HEARTBEAT_SECONDS = 10.0
"""A driver puts its heartbeat this often."""

LIFETIME_SECONDS = 45.0
"""A heartbeat of this age is that of a driver that does not live any more: it has missed four."""

KEY = "driver.json"
_PROBE_PREFIX = "probes/"


class ServerClock:
    """Tells the time by the clock of the server. `objects`: a place where it may put an object."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._lock = threading.Lock()
        self._offset: float | None = None  # seconds by which the server is ahead; None: not measured yet

    def now(self) -> float:
        """Return the server's time in unix seconds, measured once. Without permission to write, the own time."""
        with self._lock:
            if self._offset is None:
                self._offset = self._measure()
        return time.time() + self._offset

    def _measure(self) -> float:
        key = f"{_PROBE_PREFIX}{secrets.token_hex(8)}"
        try:
            self._objects.put(key, b"")
            info = self._objects.info(key)
            own = time.time()
            self._objects.delete([key])
        except AccessDenied:
            return 0.0
        return info.modified_at - own if info else 0.0


class Heartbeat:
    """The heartbeat of one study. `objects`: of the study's URL."""

    def __init__(self, objects: ObjectStore, clock: ServerClock) -> None:
        self._objects = objects
        self._clock = clock

    def beat(self, claim: Claim) -> None:
        """Tell that this drive lives."""
        self._objects.put(KEY, json.dumps(asdict(claim)).encode())

    def end(self, claim: Claim) -> None:
        """Tell that this drive is over."""
        if self.last() == claim:
            try:
                self._objects.delete([KEY])
            except ObjectStoreError:  # who may not delete anything must not keep others waiting
                self._objects.put(KEY, b"")

    def last(self) -> Claim | None:
        """Return the drive with the last heartbeat, however old; None if it has ended, or there was none."""
        try:
            data = self._objects.get(KEY)
            return Claim(**json.loads(data)) if data else None
        except ObjectMissing:
            return None
        except (ValueError, TypeError):
            return UNKNOWN

    def seconds_left(self) -> float:
        """Return for how long the last heartbeat still counts; 0 for one that does not."""
        info = self._objects.info(KEY)
        return self.seconds_left_of(info.modified_at) if info else 0.0

    def seconds_left_of(self, at: float) -> float:
        """Return for how long a sign of life still counts. `at`: unix seconds by the server's clock."""
        return max(0.0, at + LIFETIME_SECONDS - self._clock.now())

    def living(self) -> Claim | None:
        """Return the drive that lives; None if none does."""
        last = self.last()
        return last if last is not None and self.seconds_left() > 0 else None
