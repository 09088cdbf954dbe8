"""An object store behind obstore: S3, Google Cloud Storage, Azure, a folder, or memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError

from thriftune.object_store.causes import Destination, NoRanges, Unsupported, translated
from thriftune.object_store.downloads import RANGE_BYTES, new_file, write_ranges, write_stream
from thriftune.object_store.keys import check_key, decode_local, encode_local, listing_of
from thriftune.object_store.protocol import (
    AccessDenied,
    Data,
    ObjectInfo,
    ObjectMissing,
    ObjectStoreError,
    StoreUnavailable,
)
from thriftune.object_store.retries import RETRY_SECONDS, with_retries

if TYPE_CHECKING:
    from obstore import GetResult, ObjectMeta
    from obstore.store import ObjectStore as Client

T = TypeVar("T")

SMALL_BYTES = 1 << 18
"""Larger objects are written by the client that waits long enough for a slow network."""

_PAGE_KEYS = 1000  # the most that servers return at once
_DELETE_BATCH = 1000  # keys; the most that S3 deletes in one request
_PARALLEL_DELETES = 8


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the bucket, container or folder of a URL.

    - `small`: gives up on a server that sends nothing for some seconds. For everything but large writes.
    - `large`: waits for minutes while an object is sent. For large writes.
    - `single`: the small client, but deletes objects one by one.
    - `kind`: "folder", "memory", or the scheme of a server.
    - `creates`: whether the server honours create-only writes; None if only trying it can tell.
    """

    small: Client
    large: Client
    single: Client
    kind: str
    place: Destination
    creates: bool | None = True


class _Exists(Exception):
    """A create-only write found an object."""


class ObstoreObjects:
    """The objects below a URL that obstore can reach. Implements ObjectStore."""

    def __init__(
        self, url: str, prefix: str, connection: Connection, retry_seconds: float = RETRY_SECONDS
    ) -> None:
        self._url = url
        self._prefix = f"{prefix}/" if prefix else ""
        self._small, self._large, self._single = connection.small, connection.large, connection.single
        self._kind, self._place = connection.kind, connection.place
        self._creates = connection.creates
        self._retry_seconds = retry_seconds

    @property
    def url(self) -> str:
        return self._url

    @property
    def creates_exclusively(self) -> bool | None:
        return self._creates

    def put(self, key: str, data: Data) -> None:
        self._put(key, data, "overwrite")

    def create(self, key: str, data: Data) -> bool:
        if self._creates:
            return self._create(key, data)
        if self.info(key) is None:
            self._create_unguarded(key, data)
        return self._is_mine(key, data)

    def get(self, key: str) -> bytes:
        path = self._path(key)
        return self._try(f"reading {key}", lambda: bytes(obstore.get(self._small, path).bytes()))

    def download(self, key: str, path: Path) -> ObjectInfo:
        info = self.info(key)
        if info is None:
            raise ObjectMissing(f"reading {key} failed in {self._place.url}: there is no such object")
        try:
            with new_file(path) as file:
                try:
                    write_ranges(file, info.size, lambda start, end: self._read_range(info, start, end))
                except NoRanges:
                    self._try(f"reading {key}", lambda: self._read_stream(info, file))
        except OSError as error:
            raise ObjectStoreError(f"{path} cannot be written: {error.strerror}; choose another folder") from error
        return info

    def info(self, key: str) -> ObjectInfo | None:
        path = self._path(key)
        try:
            return self._info(self._try(f"reading {key}", lambda: obstore.head(self._small, path)))
        except ObjectMissing:
            return None

    def list_objects(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        if self._kind in ("s3", "gs"):
            return self._list_in_pages(prefix, after)
        return self._list_at_once(prefix, after)

    def list_folders(self, prefix: str = "") -> list[str]:
        folder = self._encoded(self._prefix + prefix).rstrip("/") or None
        listed = self._try(_listing(prefix), lambda: obstore.list_with_delimiter(self._small, folder))
        return sorted(self._key(path).rpartition("/")[2] for path in listed["common_prefixes"])

    def delete(self, keys: Iterable[str]) -> None:
        rest = iter(keys)
        while batch := list(islice(rest, _DELETE_BATCH)):
            if self._kind != "s3" or not self._delete_together(batch):
                self._delete_singly(batch)

    def _put(self, key: str, data: Data, mode: Literal["create", "overwrite"]) -> None:
        path = self._path(key)
        buffer = bytes(data) if self._kind == "memory" or not len(data) else memoryview(data).cast("B")
        client = self._small if len(buffer) <= SMALL_BYTES else self._large

        def write() -> None:
            try:
                obstore.put(client, path, buffer, mode=mode, use_multipart=False)
            except AlreadyExistsError as error:
                raise _Exists from error

        self._try(f"writing {key}", write)

    def _create(self, key: str, data: Data) -> bool:
        """Create an object at a server that honours create-only writes."""

        def attempt() -> bool:
            try:
                self._put(key, data, "create")
            except _Exists:
                try:
                    return self._is_mine(key, data)
                except ObjectMissing as missing:  # two writers were in conflict, or it was deleted at this moment
                    raise StoreUnavailable(f"writing {key} met another writer in {self._place.url}") from missing
            return True

        return with_retries(attempt, self._retry_seconds)

    def _create_unguarded(self, key: str, data: Data) -> None:
        """Create an object of which there was none a moment ago, at a server that may ignore the condition.

        The first call learns from a second attempt whether the server does.
        """
        if self._creates is False:
            self._put(key, data, "overwrite")
            return
        try:
            self._put(key, data, "create")
            self._put(key, data, "create")
            self._creates = False
        except _Exists:
            self._creates = True
        except Unsupported:
            self._creates = False
            self._put(key, data, "overwrite")

    def _is_mine(self, key: str, data: Data) -> bool:
        return self.get(key) == bytes(data)

    def _read_range(self, info: ObjectInfo, start: int, end: int) -> memoryview:
        """Return a range of an object. Raises NoRanges if the server cannot send ranges."""
        path = self._path(info.key)

        def read() -> memoryview:
            found = obstore.get(self._small, path, options={"range": (start, end)})
            self._check_unchanged(info, found)
            data = memoryview(found.bytes())
            self._check_complete(info.key, len(data), end - start)
            return data

        return self._try(f"reading {info.key}", read)

    def _read_stream(self, info: ObjectInfo, file: int) -> None:
        found = obstore.get(self._small, self._path(info.key))
        self._check_unchanged(info, found)
        chunks = (memoryview(chunk) for chunk in found.stream(RANGE_BYTES))
        self._check_complete(info.key, write_stream(file, chunks), info.size)

    def _check_unchanged(self, info: ObjectInfo, found: GetResult) -> None:
        now = self._info(found.meta)
        if (now.size, now.etag) != (info.size, info.etag):
            raise ObjectStoreError(
                f"reading {info.key} failed in {self._place.url}: it was written again meanwhile; read it again"
            )

    def _check_complete(self, key: str, size: int, expected: int) -> None:
        if size != expected:
            raise StoreUnavailable(f"reading {key} failed in {self._place.url}: the connection was cut")

    def _list_in_pages(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        """Yield objects page by page, in the server's ascending order. A page that fails is asked for again."""
        wanted = self._prefix + prefix
        folder, offset = listing_of(wanted)
        if after:
            offset = max(offset, self._prefix + after)

        def page() -> list[ObjectMeta]:
            stream = obstore.list(self._small, folder or None, offset=offset or None, chunk_size=_PAGE_KEYS)
            return list(next(stream, ()))

        while True:
            found = self._try(_listing(prefix), page)
            if found and found[0]["path"] <= offset:  # the server ignores the offset
                yield from self._list_at_once(prefix, after)
                return
            for each in found:
                path = each["path"]
                if path.startswith(wanted):
                    info = self._info(each)
                    if info.key > after:
                        yield info
                        after = info.key
                elif path > wanted:
                    return
            if len(found) < _PAGE_KEYS:
                return
            offset = found[-1]["path"]

    def _list_at_once(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        """Yield objects in ascending order, from a server that lists them in another order."""
        folder = self._encoded(self._prefix + prefix).rpartition("/")[0] or None
        found = self._try(_listing(prefix), lambda: obstore.list(self._small, folder).collect())
        infos = sorted(self._info(each) for each in found)
        return (info for info in infos if info.key.startswith(prefix) and info.key > after)

    def _delete_together(self, keys: list[str]) -> bool:
        """Delete objects in one request; return False if the server does not implement that."""
        paths = [self._path(key) for key in keys]
        try:
            self._try("deleting objects", lambda: obstore.delete(self._small, paths))
        except (AccessDenied, StoreUnavailable):
            raise
        except ObjectStoreError:
            return False
        return True

    def _delete_singly(self, keys: list[str]) -> None:
        def delete(key: str) -> None:
            path = self._path(key)
            try:
                self._try(f"deleting {key}", lambda: obstore.delete(self._single, path))
            except ObjectMissing:
                return

        if len(keys) == 1 or self._kind in ("folder", "memory"):
            for key in keys:
                delete(key)
            return
        with ThreadPoolExecutor(_PARALLEL_DELETES, "thriftune-delete") as pool:
            for _ in pool.map(delete, keys):
                pass

    def _try(self, action: str, request: Callable[[], T]) -> T:
        """Return the result of a request of obstore. Retry what may pass, and translate errors."""

        def attempt() -> T:
            try:
                return request()
            except (BaseError, OSError, ValueError) as error:
                raise translated(error, action, self._place) from None

        return with_retries(attempt, self._retry_seconds)

    def _path(self, key: str) -> str:
        check_key(key)
        return self._encoded(self._prefix + key)

    def _encoded(self, path: str) -> str:
        return encode_local(path) if self._kind == "folder" else path

    def _key(self, path: str) -> str:
        full = decode_local(path) if self._kind == "folder" else path
        return full.removeprefix(self._prefix)

    def _info(self, meta: ObjectMeta) -> ObjectInfo:
        etag = (meta["e_tag"] or "").removeprefix("W/").strip('"')
        return ObjectInfo(self._key(meta["path"]), meta["size"], meta["last_modified"].timestamp(), etag)


def _listing(prefix: str) -> str:
    return f"listing {prefix}" if prefix else "listing all objects"
