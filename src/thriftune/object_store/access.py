"""Check before a study starts that its object store can be written, read, listed and emptied."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple, TypeVar

from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import AccessDenied, ObjectStore, ObjectStoreError

T = TypeVar("T")

PROBE_PREFIX = ".thriftune-probe-"
"""The keys of probes begin with it. A killed process may leave one behind; it is safe to delete."""

_RETRY_SECONDS = 2.0
_SILENCE_SECONDS = 4.0
"""With these two, no request takes longer than 10 seconds at a server that does not answer."""


class Permissions(NamedTuple):
    """A provider's names of the permissions that a study needs."""

    write: str
    read: str
    list: str
    delete: str


PERMISSIONS: Mapping[str, Permissions] = {
    "s3": Permissions("s3:PutObject", "s3:GetObject", "s3:ListBucket", "s3:DeleteObject"),
    "gs": Permissions(
        "storage.objects.create", "storage.objects.get", "storage.objects.list", "storage.objects.delete"
    ),
    "az": Permissions(
        "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/write",
        "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read",
        "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read",
        "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/delete",
    ),
}
"""By scheme. A role that is enough for Azure is "Storage Blob Data Contributor"."""

_FOLDER = Permissions("write", "read", "read", "write")


def check_access(objects: ObjectStore) -> None:
    """Write, read, list and delete a small probe. Called before a study starts.

    Each of them takes at most about 10 seconds. Raises AccessDenied with the permission that is missing,
    StoreUnavailable, and ObjectStoreError for a bucket that does not exist.
    """
    scheme, separator, _ = objects.url.partition("://")
    permissions = PERMISSIONS.get(scheme, _FOLDER) if separator else _FOLDER
    store = open_objects(objects.url, retry_seconds=_RETRY_SECONDS, silence_seconds=_SILENCE_SECONDS)
    key = PROBE_PREFIX + secrets.token_hex(8)
    _permitted("write", permissions.write, lambda: store.put(key, key.encode()))
    try:
        data = _permitted("read", permissions.read, lambda: store.get(key))
        listed = _permitted("list", permissions.list, lambda: list(store.list_objects(key)))
        _permitted(
            "look for", permissions.list, lambda: store.info(f"{key}-missing")
        )  # S3 refuses it to strangers
    except AccessDenied:
        with suppress(ObjectStoreError):  # the first error counts
            store.delete([key])
        raise
    _permitted("delete", permissions.delete, lambda: store.delete([key]))
    if data != key.encode() or [each.key for each in listed] != [key]:
        raise ObjectStoreError(
            f"{objects.url} does not return what was just written to it; use a store that is strongly consistent"
        )


def _permitted(verb: str, permission: str, request: Callable[[], T]) -> T:
    """Return what the request returns. Name the permission in its error."""
    try:
        return request()
    except AccessDenied as error:
        raise AccessDenied(f"cannot {verb} objects; the permission for it is {permission}: {error}") from error
