"""Download a dataset: several objects at a time, each checked against what was listed."""

from __future__ import annotations

import hashlib
import os
import re
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from thriftune.object_store.dataset_listing import DatasetListing
from thriftune.object_store.protocol import ObjectInfo, ObjectStore, ObjectStoreError

_LARGE_BYTES = 8 << 20
"""Larger objects are downloaded one after another, as each is downloaded in several ranges at a time."""

_SMALL_AT_A_TIME = 16
"""Enough to hide the time of a request. They use at most 16 times _LARGE_BYTES of memory."""

_READ_BYTES = 1 << 20

_MD5 = re.compile(r"[0-9a-f]{32}")


def download_dataset(listing: DatasetListing, path: Path) -> None:
    """Download a dataset to `path`, which becomes a file or a folder. On return, it survives a loss of power.

    Raises ObjectStoreError if an object is not the listed version any more or cannot be read, and OSError if a
    file cannot be written. What was written until then remains.
    """
    paths = {each.key: path / each.key if listing.is_folder else path for each in listing.files}
    folders = {parent for each in paths.values() for parent in each.parents if parent.is_relative_to(path)}
    for folder in sorted(folders):
        folder.mkdir(exist_ok=True)
    checks = _Checks(listing.objects)
    with ThreadPoolExecutor(1) as large, ThreadPoolExecutor(_SMALL_AT_A_TIME) as small:
        started = [
            (large if each.size > _LARGE_BYTES else small).submit(checks.fetch, each, paths[each.key])
            for each in listing.files
        ]
        try:
            for each in as_completed(started):
                each.result()
        except BaseException:
            large.shutdown(wait=False, cancel_futures=True)
            small.shutdown(wait=False, cancel_futures=True)
            raise
    for folder in folders:
        _sync(folder)


class _Checks:
    """Downloads objects and checks them."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        # Most ETags on S3 are the MD5 sum of the object. Those of objects with keys of KMS only look like one.
        self._etags_are_sums = True

    def fetch(self, listed: ObjectInfo, path: Path) -> None:
        """Download an object. Raise ObjectStoreError unless it arrives as it was listed."""
        etag = _plain(listed.etag)
        self._download(listed, path)
        if self._etags_are_sums and _MD5.fullmatch(etag) and (first := _md5(path)) != etag:
            self._download(listed, path)
            if (second := _md5(path)) == first:
                self._etags_are_sums = False
            elif second != etag:
                raise ObjectStoreError(f"{listed.key} arrived damaged twice")
        _sync(path)

    def _download(self, listed: ObjectInfo, path: Path) -> None:
        try:
            found = self._objects.download(listed.key, path)
        except ObjectStoreError as error:
            if isinstance(error.__cause__, OSError):  # the file could not be written
                raise error.__cause__ from None
            raise
        other_etag = listed.etag and found.etag and _plain(found.etag) != _plain(listed.etag)
        if other_etag or path.stat().st_size != listed.size:
            raise ObjectStoreError(f"{listed.key} has changed while it was fetched")


def _plain(etag: str) -> str:
    """Return an ETag without its quotes."""
    return etag.removeprefix("W/").strip('"')


def _md5(path: Path) -> str:
    found = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            found.update(block)
    return found.hexdigest()


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
