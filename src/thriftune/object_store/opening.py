"""Open the object store of a URL or folder."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from thriftune.errors import MissingExtra, SettingError
from thriftune.object_store import amazon, azure, google
from thriftune.object_store.causes import Destination, first_line
from thriftune.object_store.protocol import ObjectStore
from thriftune.object_store.retries import RETRY_SECONDS
from thriftune.object_store.urls import ObjectUrl, folder_of, is_object_url, parse_object_url

if TYPE_CHECKING:
    from obstore.store import MemoryStore

    from thriftune.object_store.obstore_objects import Connection

CONNECT_SECONDS = 5.0
"""How long a connection may take."""

SILENCE_SECONDS = 15.0
"""A request fails if the server sends nothing for this long, unless it is a large write."""

LARGE_SECONDS = 300.0
"""How long a large write or read may take: a part of 32 MiB at 1 Mbit/s."""

_PROVIDERS = {"s3": amazon, "gs": google, "az": azure}
_BUCKETS = {"s3": "bucket", "gs": "bucket", "az": "container"}

_memories: dict[str, MemoryStore] = {}
_memories_lock = threading.Lock()


def open_objects(
    url: str | ObjectUrl, *, retry_seconds: float = RETRY_SECONDS, silence_seconds: float = SILENCE_SECONDS
) -> ObjectStore:
    """Return the objects below a URL or a folder. A folder is created if it is missing.

    It does not connect yet, so it does not notice a bucket that does not exist: see access.check_access(). All
    objects of memory://NAME are kept in this process until it ends, and are shared by all who open that name.

    Raises SettingError for a wrong URL, and MissingExtra.

    - `retry_seconds`: no retry begins later than this after a request first failed.
    - `silence_seconds`: a request fails if the server sends nothing for this long, unless it is a large write.
    """
    try:
        from thriftune.object_store.obstore_objects import ObstoreObjects
    except ImportError as error:
        if error.name != "obstore":
            raise
        raise MissingExtra("object stores need obstore; install it: pip install 'thriftune[storage]'") from None
    if isinstance(url, str) and not is_object_url(url) and ("://" not in url or url.startswith("file://")):
        folder = folder_of(url)
        return ObstoreObjects(str(folder), "", _open_folder(folder), retry_seconds)
    parsed = parse_object_url(url) if isinstance(url, str) else url
    return ObstoreObjects(str(parsed), parsed.prefix, _connect(parsed, silence_seconds), retry_seconds)


def _open_folder(folder: Path) -> Connection:
    from obstore.store import LocalStore

    from thriftune.object_store.obstore_objects import Connection

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(
            f"storage: the folder {folder} cannot be created: {error.strerror}; choose another one"
        ) from error
    store = LocalStore(folder)
    return Connection(store, store, store, "folder", Destination(str(folder), "folder", ""))


def _connect(url: ObjectUrl, silence_seconds: float) -> Connection:
    from obstore.exceptions import BaseError
    from obstore.store import MemoryStore

    from thriftune.object_store.obstore_objects import Connection

    if url.scheme == "memory":
        with _memories_lock:
            memory = _memories.setdefault(url.bucket, MemoryStore())
        return Connection(memory, memory, memory, "memory", Destination(str(url), "store", ""))
    provider = _PROVIDERS[url.scheme]
    endpoint = _checked_endpoint(url)
    options: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=min(CONNECT_SECONDS, silence_seconds)),
        "timeout": timedelta(seconds=LARGE_SECONDS),
        "allow_http": endpoint.startswith("http://"),
    }
    impatient = options | {"read_timeout": timedelta(seconds=silence_seconds)}
    try:
        small = provider.connect(url, os.environ, impatient)
        large = provider.connect(url, os.environ, options)
        single = amazon.connect(url, os.environ, impatient, bulk_delete=False) if url.scheme == "s3" else small
    except BaseError as error:
        raise SettingError(
            f"storage: {url} cannot be opened: {first_line(error)}; {provider.CREDENTIALS}"
        ) from None
    place = Destination(str(url), _BUCKETS[url.scheme], provider.CREDENTIALS)
    creates = amazon.creates(endpoint) if url.scheme == "s3" else True
    return Connection(small, large, single, url.scheme, place, creates)


def _checked_endpoint(url: ObjectUrl) -> str:
    """Return the server's address; empty for the provider's own."""
    if url.scheme == "az":
        endpoint = azure.settings(url, os.environ).get("endpoint", "")
    else:
        endpoint = _PROVIDERS[url.scheme].endpoint_of(url, os.environ)
    if endpoint:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingError(
                f"storage: the endpoint {endpoint!r} is no address of a server; write https://HOST or http://HOST:PORT"
            )
    return endpoint
