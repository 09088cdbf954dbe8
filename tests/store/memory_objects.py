"""An object store in memory that tests can look into, and whose requests they can carry out in any order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from thriftune.object_store.protocol import Data, ObjectInfo, ObjectMissing


class MemoryObjects:
    """Keeps objects in a dict.

    - `before`: called before each request, in the thread that makes it.
    - `creates`: honours that an object is to be created. Some servers replace it instead.
    """

    def __init__(self, before: Callable[[], None] = lambda: None, *, creates: bool = True) -> None:
        self.data: dict[str, bytes] = {}
        self.times: dict[str, float] = {}
        self._before = before
        self._creates = creates

    @property
    def url(self) -> str:
        return "memory://test"

    @property
    def creates_exclusively(self) -> bool | None:
        return self._creates

    def put(self, key: str, data: Data) -> None:
        self._before()
        self.data[key], self.times[key] = bytes(data), time.time()

    def create(self, key: str, data: Data) -> bool:
        self._before()
        if self._creates and key in self.data:
            return False
        self.data[key], self.times[key] = bytes(data), time.time()
        return True

    def get(self, key: str) -> bytes:
        self._before()
        if key not in self.data:
            raise ObjectMissing(f"there is no object {key}")
        return self.data[key]

    def download(self, key: str, path: Path) -> ObjectInfo:
        path.write_bytes(self.get(key))
        return self._info(key)

    def info(self, key: str) -> ObjectInfo | None:
        self._before()
        return self._info(key) if key in self.data else None

    def list_objects(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        self._before()
        keys = sorted(key for key in self.data if key.startswith(prefix) and key > after)
        return iter([self._info(key) for key in keys])

    def list_folders(self, prefix: str = "") -> list[str]:
        self._before()
        below = [key.removeprefix(prefix) for key in self.data if key.startswith(prefix)]
        return sorted({key.partition("/")[0] for key in below if "/" in key})

    def delete(self, keys: Iterable[str]) -> None:
        for key in list(keys):
            self._before()
            self.data.pop(key, None)

    def _info(self, key: str) -> ObjectInfo:
        return ObjectInfo(key, len(self.data[key]), self.times[key])
