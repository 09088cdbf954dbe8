"""Fetch datasets from object stores to this machine, once for all trials of a user."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from thriftune.common.user_cache import FOLDER_VARIABLE
from thriftune.errors import DataError
from thriftune.object_store.dataset_download import download_dataset
from thriftune.object_store.dataset_listing import DatasetListing, OpenObjects, list_dataset
from thriftune.object_store.protocol import ObjectStoreError
from thriftune.training.cache_files import room_for
from thriftune.training.data_folder import DataFolder, way_out
from thriftune.training.data_progress import Progress, Say
from thriftune.training.file_lock import FileLock

_MOST_CHANGES = 3
"""How many versions are tried of a dataset that changes while it is fetched."""


class _OtherVersion(Exception):
    """Raised if the object store has another version of a dataset than the one that is wanted."""

    def __init__(self, listing: DatasetListing) -> None:
        super().__init__()
        self.listing = listing


@dataclass(slots=True)
class LocalCopy:
    """A dataset on this machine, which is not removed until release() is called or this process ends.

    - `path`: the file or folder.
    - `version`: its DatasetListing.version.
    - `was_damaged`: an earlier copy was damaged, so that it was fetched again.
    """

    path: Path
    version: str
    was_damaged: bool
    _use: FileLock

    def release(self) -> None:
        """Allow that the dataset is removed."""
        self._use.release()


class DataCache:
    """Fetches datasets into a folder of this machine, and finds those that are there."""

    def __init__(self, open_objects: OpenObjects | None = None, folder: DataFolder | None = None) -> None:
        """Use a cache.

        - `open_objects`: opens object stores; None for the usual function.
        - `folder`: by default that of this user.
        """
        self._open_objects = open_objects
        self._folder = folder or DataFolder()

    def fetch(self, url: str, version: str, say: Say) -> LocalCopy:
        """Return the dataset of a URL. Fetch it if this machine has no intact copy; wait if another process does.

        The store is asked only if the dataset has to be fetched. If the store has another version by now, the copy
        is of that version.

        Raises DataError if there is no room or it cannot be written, SettingError if its keys cannot be files, and
        ObjectStoreError.

        - `version`: the DatasetListing.version that is wanted; empty for the current one.
        - `say`: called with messages about what takes long.
        """
        with _clear_errors(self._folder.path):
            self._folder.create()
            listing = None if version else list_dataset(url, self._open_objects)
            for _ in range(_MOST_CHANGES):
                try:
                    return self._copy_of(url, version if listing is None else listing.version, listing, say)
                except _OtherVersion as other:
                    listing = other.listing
        raise ObjectStoreError(f"{url} changes again and again while it is fetched")

    def _copy_of(self, url: str, version: str, listing: DatasetListing | None, say: Say) -> LocalCopy:
        """Return the copy of a version. Raises _OtherVersion. `listing`: of this version, if it is known."""
        folder = self._folder
        key = f"{hashlib.blake2b(url.encode(), digest_size=8).hexdigest()}-{version}"
        use = folder.wait_for(folder.use_lock(key), exclusive=False)
        try:
            was_damaged = False
            if (path := folder.intact(key)) is None:
                with folder.wait_for(folder.fetch_lock(key), exclusive=True, waited=_say_waiting(url, say)):
                    if (path := folder.intact(key)) is None:  # the process that had the lock has not fetched it
                        was_damaged = folder.exists(key)
                        path = self._download_version(key, url, version, listing, say)
            os.utime(folder.use_lock(key))
            return LocalCopy(path, version, was_damaged, use)
        except BaseException:
            use.release()
            raise

    def _download_version(
        self, key: str, url: str, version: str, listing: DatasetListing | None, say: Say
    ) -> Path:
        """Download a version with its fetch lock held, and return its path. Raises _OtherVersion."""
        listing = listing or list_dataset(url, self._open_objects)
        if listing.version != version:
            raise _OtherVersion(listing)
        try:
            self._download(key, url, listing, say)
        except ObjectStoreError:
            now = list_dataset(url, self._open_objects)
            if now.version != version:
                raise _OtherVersion(now) from None
            raise
        if (path := self._folder.intact(key)) is None:
            raise DataError(f"the copy of {url} was changed right after it was fetched")
        return path

    def _download(self, key: str, url: str, listing: DatasetListing, say: Say) -> None:
        content = self._folder.new(key, url, room_for(each.size for each in listing.files))
        try:
            with Progress(f"fetching {url}", listing.size, content, say):
                download_dataset(listing, content / listing.name)
            self._folder.publish(key, url, listing.name)
        except BaseException:
            self._folder.drop(key)
            raise


def _say_waiting(url: str, say: Say) -> Callable[[float], None]:
    """Return a function that says once that this process waits for another one, after some time."""
    said = False

    def waited(seconds: float) -> None:
        nonlocal said
        if seconds >= Progress.FIRST_SECONDS and not said:
            said = True
            say(f"waiting for another process that fetches {url}")

    return waited


@contextlib.contextmanager
def _clear_errors(folder: Path) -> Iterator[None]:
    """Turn errors of the file system into a DataError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DataError(f"the disk of the data cache in {folder} is full; {way_out()}") from error
        raise DataError(
            f"the data cache in {folder} cannot be used ({error.strerror}: {error.filename}); let the environment "
            f"variable {FOLDER_VARIABLE} name a folder that you may write"
        ) from error
