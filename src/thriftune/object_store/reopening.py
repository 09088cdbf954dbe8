"""Open an object store again when it denies access, so that renewed credentials are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from thriftune.object_store.protocol import AccessDenied, Data, ObjectInfo, ObjectStore


class ReopenedObjects:
    """An object store for a process that runs for days. Errors are raised all the same; the next call may succeed.

    `open_store`: opens it, and reads the credentials.
    """

    def __init__(self, open_store: Callable[[], ObjectStore]) -> None:
        self._open_store = open_store
        self._objects = open_store()

    @contextmanager
    def _opened(self) -> Iterator[ObjectStore]:
        objects = self._objects
        try:
            yield objects
        except AccessDenied:
            if self._objects is objects:  # no other thread has opened it again
                self._objects = self._open_store()
            raise

    @property
    def url(self) -> str:
        return self._objects.url

    @property
    def creates_exclusively(self) -> bool | None:
        return self._objects.creates_exclusively

    def put(self, key: str, data: Data) -> None:
        with self._opened() as objects:
            objects.put(key, data)

    def create(self, key: str, data: Data) -> bool:
        with self._opened() as objects:
            return objects.create(key, data)

    def get(self, key: str) -> bytes:
        with self._opened() as objects:
            return objects.get(key)

    def download(self, key: str, path: Path) -> ObjectInfo:
        with self._opened() as objects:
            return objects.download(key, path)

    def info(self, key: str) -> ObjectInfo | None:
        with self._opened() as objects:
            return objects.info(key)

    def list_objects(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        with self._opened() as objects:
            yield from objects.list_objects(prefix, after=after)

    def list_folders(self, prefix: str = "") -> list[str]:
        with self._opened() as objects:
            return objects.list_folders(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        with self._opened() as objects:
            objects.delete(keys)
