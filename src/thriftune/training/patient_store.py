"""Keeps calling an object store until it works, since an outage must not end training."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from thriftune.object_store.protocol import AccessDenied, ObjectStore, ObjectStoreError

T = TypeVar("T")

_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 1.0, 30.0
"""The time between two tries doubles from the first to the longest. The store itself has retried before each."""


class GaveUp(Exception):
    """The store did not work, and the caller does not want to wait for it any longer."""


class PatientStore:
    """An object store that is opened when it is first used. Only one thread at a time may use it."""

    def __init__(
        self,
        open_store: Callable[[], ObjectStore],
        warn: Callable[[str], object],
        wait: Callable[[float], bool],
        *,
        meanwhile: str,
        afterwards: str,
    ) -> None:
        """Create it.

        - `warn`: shows the user a sentence.
        - `meanwhile`, `afterwards`: say what happens until the store works, and when it works again.
        - `wait`: waits this many seconds; returns True as soon as the caller gives up.
        """
        self._open_store = open_store
        self._warn = warn
        self._wait = wait
        self._meanwhile, self._afterwards = meanwhile, afterwards
        self._store: ObjectStore | None = None
        self._is_down = False  # the user was told that the store does not work

    def call(self, function: Callable[[ObjectStore], T]) -> T:
        """Return function(store), called again until the store works.

        Says once that the store does not work, and once that it works again. Raises GaveUp. Errors that are no
        fault of the store, such as a missing object, must be handled by `function`.
        """
        seconds = _FIRST_WAIT_SECONDS
        while True:
            try:
                if self._store is None:
                    self._store = self._open_store()
                result = function(self._store)
            except ObjectStoreError as error:
                if isinstance(error, AccessDenied):
                    self._store = None  # opened again, it reads renewed credentials
                if not self._is_down:
                    self._is_down = True
                    self._warn(f"the object store does not work ({error}); until it does, {self._meanwhile}")
            else:
                if self._is_down:
                    self._is_down = False
                    self._warn(f"the object store works again, and {self._afterwards}")
                return result
            if self._wait(seconds):
                raise GaveUp
            seconds = min(2.0 * seconds, _LONGEST_WAIT_SECONDS)

    def close(self) -> None:
        """Close the store's connections."""
        self._store = None
