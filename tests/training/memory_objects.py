"""An object store in memory, whose calls tests can make fail, and checkpoints in it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from thriftune.object_store.protocol import Data, ObjectInfo, ObjectMissing
from thriftune.training.checkpoint_objects import Manifest, StoredFile, encode, manifest_key, part_key
from thriftune.training.content_hash import content_hash


class MemoryObjects:
    """An ObjectStore. `before(method, key)` is called first by each method, and may raise or wait."""

    url = "memory://tests"

    creates_exclusively = True

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.before: Callable[[str, str], object] = lambda method, key: None
        self.calls: list[tuple[str, str]] = []  # (method, key), in order
        self._lock = threading.Lock()

    def _begin(self, method: str, key: str) -> None:
        self.calls.append((method, key))
        self.before(method, key)

    def keys(self, method: str) -> list[str]:
        """Return the keys of all calls of a method."""
        return [key for name, key in self.calls if name == method]

    def put(self, key: str, data: Data) -> None:
        self._begin("put", key)
        self.data[key] = bytes(data)

    def create(self, key: str, data: Data) -> bool:
        self._begin("create", key)
        with self._lock:
            return self.data.setdefault(key, bytes(data)) == bytes(data)

    def get(self, key: str) -> bytes:
        self._begin("get", key)
        try:
            return self.data[key]
        except KeyError:
            raise ObjectMissing(key) from None

    def download(self, key: str, path: Path) -> ObjectInfo:
        path.write_bytes(self.get(key))
        return ObjectInfo(key, len(self.data[key]), 0.0)

    def info(self, key: str) -> ObjectInfo | None:
        self._begin("info", key)
        return ObjectInfo(key, len(self.data[key]), 0.0) if key in self.data else None

    def list_objects(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        self._begin("list", prefix)
        for key in sorted(self.data):
            if key.startswith(prefix) and key > after:
                yield ObjectInfo(key, len(self.data[key]), 0.0)

    def list_folders(self, prefix: str = "") -> list[str]:
        rest = (key.removeprefix(prefix) for key in self.data if key.startswith(prefix))
        return sorted({name.partition("/")[0] for name in rest if "/" in name})

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.data.pop(key, None)


def store_checkpoint(
    objects: MemoryObjects,
    name: str,
    files: Mapping[str, bytes],
    *,
    step: int = 1,
    trial: int = 7,
    part_bytes: int = 4,
) -> Manifest:
    """Store a checkpoint as a worker does, and return its manifest."""
    stored = {}
    for file, data in files.items():
        pieces = [data[start : start + part_bytes] for start in range(0, len(data), part_bytes)]
        parts = [f"{name}/{content_hash(piece)}" for piece in pieces]
        for part, piece in zip(parts, pieces, strict=True):
            objects.data[part_key(trial, part)] = piece
        stored[file] = StoredFile(len(data), parts)
    attempt = int(name.partition("-")[0])
    manifest = Manifest(name, trial, attempt, step, False, 0.0, stored)
    objects.data[manifest_key(trial, name)] = encode(manifest)
    return manifest
