"""The protocol of object stores, which keep files that several machines share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from thriftune.errors import ThriftuneError

Data = bytes | bytearray | memoryview


class ObjectStoreError(ThriftuneError):
    """The object store cannot do what was asked. The message says why, and what to do."""


class ObjectMissing(ObjectStoreError, LookupError):
    """There is no object of this key."""


class AccessDenied(ObjectStoreError):
    """The credentials are missing, wrong or expired, or they do not permit this."""


class StoreUnavailable(ObjectStoreError):
    """The server could not be reached, or it failed. The same call may succeed later."""


class ObjectInfo(NamedTuple):
    """What a list or a look-up tells of an object.

    - `modified_at`: when it was written, in unix seconds by the server's clock.
    - `etag`: changes whenever the object is written again; empty if the server gives none. It is no checksum.
    """

    key: str
    size: int
    modified_at: float
    etag: str = ""


class ObjectStore(Protocol):
    """The objects below one URL. Keys are relative to the URL and have no slash at their ends.

    - Errors: every method raises AccessDenied or StoreUnavailable. It has already retried what may pass.
    - Atomicity: an object is never seen in part. An object that was put can be read at once.
    - Threads: any number may use it at the same time. Not in a forked child.
    """

    @property
    def url(self) -> str:
        """Return the URL with which open_objects() opens the same place."""

    @property
    def creates_exclusively(self) -> bool | None:
        """Return whether create() is safe with several writers; None until the first create() has learnt it.

        False for a server that replaces an object although it is told not to. Then two writers that create an
        object at the same moment may both believe that they did.
        """

    def put(self, key: str, data: Data) -> None:
        """Write an object in a single request, and replace one of this key."""

    def create(self, key: str, data: Data) -> bool:
        """Write an object unless there is one of this key; return whether it was written.

        A server may have written it although its answer was lost. Then the retry finds an object of this key. The
        implementation reads it, and returns True if it has the same data. So `data` must be unique to the caller.
        """

    def get(self, key: str) -> bytes:
        """Return the data of an object. Raises ObjectMissing."""

    def download(self, key: str, path: Path) -> ObjectInfo:
        """Write an object to a file in ranges, several at a time, and return what is known of it.

        It uses at most 64 MiB of memory. The file appears when it is complete. Raises ObjectMissing, and
        ObjectStoreError if the object changes meanwhile.
        """

    def info(self, key: str) -> ObjectInfo | None:
        """Return what is known of an object; None if there is none."""

    def list_objects(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """Yield all objects whose keys begin with `prefix`, in ascending order of keys.

        - `prefix`: may end within a name; "log/00" finds "log/001".
        - `after`: only keys greater than this one.
        """

    def list_folders(self, prefix: str = "") -> list[str]:
        """Return the names of the folders directly below a prefix, in ascending order.

        `prefix`: empty, or ends with a slash.
        """

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects. Missing ones are ignored."""
