"""Use a place below another one of an object store, through the same connections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from thriftune.object_store.protocol import Data, ObjectInfo, ObjectStore
from thriftune.object_store.urls import is_object_url, parse_object_url


class ObjectsBelow:
    """The objects below a folder of another object store. `folder`: without slashes at its ends."""

    def __init__(self, objects: ObjectStore, folder: str) -> None:
        self._objects = objects
        self._folder = folder
        self._prefix = f"{folder}/"

    @property
    def url(self) -> str:
        url = self._objects.url
        return str(parse_object_url(url).child(self._folder)) if is_object_url(url) else f"{url}/{self._folder}"

    @property
    def creates_exclusively(self) -> bool | None:
        return self._objects.creates_exclusively

    def put(self, key: str, data: Data) -> None:
        self._objects.put(self._prefix + key, data)

    def create(self, key: str, data: Data) -> bool:
        return self._objects.create(self._prefix + key, data)

    def get(self, key: str) -> bytes:
        return self._objects.get(self._prefix + key)

    def download(self, key: str, path: Path) -> ObjectInfo:
        return self._own(self._objects.download(self._prefix + key, path))

    def info(self, key: str) -> ObjectInfo | None:
        info = self._objects.info(self._prefix + key)
        return info and self._own(info)

    def list_objects(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        after = after and self._prefix + after
        return map(self._own, self._objects.list_objects(self._prefix + prefix, after=after))

    def list_folders(self, prefix: str = "") -> list[str]:
        return self._objects.list_folders(self._prefix + prefix)

    def delete(self, keys: Iterable[str]) -> None:
        self._objects.delete([self._prefix + key for key in keys])

    def _own(self, info: ObjectInfo) -> ObjectInfo:
        return info._replace(key=info.key.removeprefix(self._prefix))
