"""The folder with the datasets that were fetched to this machine, which all trials of a user share.

    data/entries/KEY/content/train.csv   a dataset, read-only; KEY is made of its URL and version
    data/entries/KEY/about.json          its URL, and the size and time of each file
    data/partial/KEY/                    a dataset that is being fetched
    data/trash/                          what is being deleted
    data/locks/KEY.fetch                 held by the process that fetches the dataset
    data/locks/KEY.use                   held, shared, by the processes that use it; its time is the last use
    data/locks/room                      held while room is made

A dataset is in entries/ once it is complete. Locks are released by the kernel, so a process may be killed at any
line: the next one that needs the dataset removes what is partial, and fetches it again.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thriftune.common.formatting import format_bytes
from thriftune.common.user_cache import FOLDER_VARIABLE, cache_folder
from thriftune.errors import DataError, SettingError
from thriftune.training.cache_files import (
    bytes_on_disk,
    listed,
    make_read_only,
    remove,
    room_for,
    sizes_and_times,
    sync_folder,
    write,
)
from thriftune.training.file_lock import FileLock

BYTES_VARIABLE = "THRIFTUNE_DATA_CACHE_BYTES"

_DEFAULT_SHARE = 0.9
"""The share of the disk space that is free, or used by the cache, which the cache may use."""

_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class CachedDataset:
    """A dataset in the cache. `used_at`: when a trial last began to use it, in unix seconds."""

    key: str
    url: str
    size: int
    used_at: float


class DataFolder:
    """The datasets on this machine. Any number of processes use the folder at the same time."""

    def __init__(self, cache: Path | None = None) -> None:
        """Use the folder, without creating it yet. `cache`: by default cache_folder()."""
        self.path = (cache or cache_folder()) / "data"
        self._entries, self._partial = self.path / "entries", self.path / "partial"
        self._trash, self._locks = self.path / "trash", self.path / "locks"

    def create(self) -> None:
        """Create the folder if it is missing. Called before anything is added."""
        for folder in (self._entries, self._partial, self._trash, self._locks):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    # --- datasets ---------------------------------------------------------------------------------------------

    def intact(self, key: str) -> Path | None:
        """Return the file or folder of a dataset; None if there is none, or a file is not as it was fetched."""
        about = self._about(key)
        content = self._entries / key / "content"
        if about is None or sizes_and_times(content) != about["files"]:
            return None
        return content / str(about["name"])

    def exists(self, key: str) -> bool:
        """Return whether there is a dataset, intact or not."""
        return (self._entries / key).exists()

    def new(self, key: str, url: str, size: int) -> Path:
        """Return an empty folder for the content of a dataset, and reserve room for it.

        Removes the least recently used datasets that nobody uses. Raises DataError if that does not suffice.
        Called with the fetch lock of `key` held. Then either publish() or drop() is called.
        """
        remove(self._partial / key)  # its process has died, as it does not hold the lock
        with self.wait_for(self._locks / "room", exclusive=True):
            self._make_room(key, url, size)
            (self._partial / key).mkdir()
            write(self._partial / key / "reserved", str(size))
        content = self._partial / key / "content"
        content.mkdir()
        return content

    def publish(self, key: str, url: str, name: str) -> None:
        """Let others see a dataset whose content is complete. `name`: of the file or folder in its content."""
        partial = self._partial / key
        content = partial / "content"
        make_read_only(content)
        about = {"url": url, "name": name, "files": sizes_and_times(content)}
        write(partial / "about.json", json.dumps(about))
        for folder in (content, partial):
            sync_folder(folder)
        self._discard(key)  # a damaged one. It may be in use; files of it that are open stay readable
        partial.rename(self._entries / key)
        sync_folder(self._entries)

    def drop(self, key: str) -> None:
        """Remove a dataset that could not be fetched."""
        remove(self._partial / key)

    def entries(self) -> list[CachedDataset]:
        """Return all datasets, the least recently used one first."""
        found = []
        for path in listed(self._entries):
            about = self._about(path.name)
            try:
                used_at = self.use_lock(path.name).stat().st_mtime
            except FileNotFoundError:
                used_at = 0.0
            if about is None:
                found.append(CachedDataset(path.name, "(damaged)", bytes_on_disk(path), used_at))
            else:
                size = room_for(each[0] for each in about["files"].values())
                found.append(CachedDataset(path.name, about["url"], size, used_at))
        return sorted(found, key=lambda each: each.used_at)

    def remove(self, key: str) -> bool:
        """Remove a dataset, unless a live process uses or fetches it; return whether it was removed."""
        with contextlib.ExitStack() as locks:
            for path in (self.fetch_lock(key), self.use_lock(key)):
                if (lock := FileLock.try_take(path, exclusive=True)) is None:
                    return False
                locks.enter_context(lock)
            self._discard(key)
            for path in (self.fetch_lock(key), self.use_lock(key)):
                path.unlink()
        return True

    def _about(self, key: str) -> dict[str, Any] | None:
        """Return what was written about a dataset; None if there is none, or this cannot be read."""
        try:
            found = json.loads((self._entries / key / "about.json").read_bytes())
            return found if isinstance(found, dict) and found.keys() >= {"url", "name", "files"} else None
        except (OSError, ValueError):
            return None

    def _discard(self, key: str) -> None:
        """Remove a dataset, if there is one. It is never seen in part."""
        waste = self._trash / f"{key}-{secrets.token_hex(4)}"
        with contextlib.suppress(FileNotFoundError):
            (self._entries / key).rename(waste)
            remove(waste)

    # --- room -------------------------------------------------------------------------------------------------

    def capacity(self) -> int:
        """Return how many bytes all datasets may have together: the set limit, but at most what the disk has."""
        folder = self.path
        while not folder.exists():
            folder = folder.parent
        own = sum(bytes_on_disk(path) for path in (self._entries, self._partial))
        available = shutil.disk_usage(folder).free + own
        given = os.environ.get(BYTES_VARIABLE, "")
        if not given:
            return int(_DEFAULT_SHARE * available)
        if not given.isascii() or not given.isdigit():
            raise SettingError(f"{BYTES_VARIABLE}: {given!r} must be a whole number of bytes, such as 50000000000")
        return min(int(given), available)

    def check_room(self, size: int, what: str) -> None:
        """Raise SettingError if `size` bytes would not fit into an empty cache. `what`: needs them."""
        if size > (room := self.capacity()):
            raise SettingError(
                f"{what} of {format_bytes(size)} cannot be cached in {self.path}, which has room for "
                f"{format_bytes(room)}; {way_out()}"
            )

    def _make_room(self, key: str, url: str, size: int) -> None:
        """Remove datasets until this one has room, with the room lock held."""
        for path in listed(self._trash):
            remove(path)
        reserved = 0
        for path in listed(self._partial):
            lock = FileLock.try_take(self.fetch_lock(path.name), exclusive=True)
            if lock is None:
                reserved += _reserved(path)
                continue
            with lock:  # the process that fetched it has died
                remove(path)
        entries = self.entries()
        capacity = self.capacity()
        left = capacity - reserved - sum(each.size for each in entries)
        for each in entries if size <= capacity else ():
            if left < size and each.key != key and self.remove(each.key):
                left += each.size
        damaged = next((each for each in entries if each.key == key), None)
        if damaged is not None and left < size <= left + damaged.size:
            self._discard(key)  # without room for both, its users lose it now
            left += damaged.size
        if left < size:
            used = capacity - left
            others = f", of which live trials use {format_bytes(used)}" if used and size <= capacity else ""
            raise DataError(
                f"{url} has {format_bytes(size)}, and the cache in {self.path} has room for "
                f"{format_bytes(capacity)}{others}; {way_out()}"
            )

    # --- locks ------------------------------------------------------------------------------------------------

    def use_lock(self, key: str) -> Path:
        """Return the path of the lock that is held, shared, by the processes that use a dataset."""
        return self._locks / f"{key}.use"

    def fetch_lock(self, key: str) -> Path:
        """Return the path of the lock that is held by the process that fetches a dataset."""
        return self._locks / f"{key}.fetch"

    def wait_for(
        self, path: Path, *, exclusive: bool, waited: Callable[[float], object] = lambda _: None
    ) -> FileLock:
        """Take a lock as soon as it is free. `waited`: called often, with the seconds waited so far."""
        began = time.monotonic()
        while (lock := FileLock.try_take(path, exclusive=exclusive)) is None:
            waited(time.monotonic() - began)
            time.sleep(_POLL_SECONDS)
        return lock


def way_out() -> str:
    """Return what a user can do if there is no room."""
    return (
        f"free disk space, let {FOLDER_VARIABLE} name a folder on a larger disk, or raise {BYTES_VARIABLE} if it "
        "is set"
    )


def _reserved(partial: Path) -> int:
    """Return the size that a dataset which is being fetched will have."""
    try:
        return int((partial / "reserved").read_text())
    except (OSError, ValueError):  # it is complete by now, and among the entries
        return 0
