"""List the objects of a dataset: one object, or all below a prefix.

One object becomes a file. All objects below a prefix become a folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from thriftune.errors import SettingError
from thriftune.object_store.protocol import ObjectInfo, ObjectMissing, ObjectStore
from thriftune.object_store.urls import ObjectUrl, parse_object_url

OpenObjects = Callable[[ObjectUrl], ObjectStore]

_VERSION_BYTES = 12
"""Enough that two versions of a dataset never get the same name by chance."""


@dataclass(frozen=True, slots=True)
class DatasetListing:
    """The files of a dataset as they are in the object store now.

    - `name`: of the file or folder that the dataset becomes.
    - `is_folder`: whether it becomes a folder.
    - `objects`: has the keys below.
    - `files`: in ascending order of keys; never empty. A key is the file's path in the folder, or its name.
    """

    name: str
    is_folder: bool
    objects: ObjectStore
    files: tuple[ObjectInfo, ...]

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return sum(each.size for each in self.files)

    @property
    def version(self) -> str:
        """A short text that changes when a file is added, removed or changed.

        A file has changed if its ETag has. Without ETags, its time counts.
        """
        listed = [[each.key, each.size, each.etag or str(each.modified_at)] for each in self.files]
        return hashlib.blake2b(json.dumps(listed).encode(), digest_size=_VERSION_BYTES).hexdigest()


def list_dataset(text: str, open_objects: OpenObjects | None = None) -> DatasetListing:
    """List the dataset of a URL.

    Raises ObjectMissing if there is neither an object of this name nor one below it, SettingError if the keys
    below it cannot be files, and the other errors of the object store.

    - `text`: the URL. If its path ends with a slash, it means the folder, also if an object has this name.
    - `open_objects`: opens object stores; by default object_store/opening.py does.
    """
    opener = open_objects or _usual_opener()
    url = parse_object_url(text, "data")
    path = PurePosixPath(url.prefix)
    if url.prefix and not text.partition("?")[0].endswith("/"):
        parent = str(path.parent)
        objects = opener(replace(url, prefix="" if parent == "." else parent))
        if (found := objects.info(path.name)) is not None:
            return DatasetListing(path.name, False, objects, (found,))
    objects = opener(url)
    # Some tools create an empty object with a slash at its end, to show an empty folder.
    files = sorted(each for each in objects.list_objects() if each.key and not each.key.endswith("/"))
    if not files:
        raise ObjectMissing(f"{text} does not exist: there is no object of this name, and none below it")
    _check_paths(text, [each.key for each in files])
    return DatasetListing(path.name or url.bucket, True, objects, tuple(files))


def _usual_opener() -> OpenObjects:
    from thriftune.object_store.opening import open_objects  # only now: obstore may not be installed

    return open_objects


def _check_paths(url: str, paths: Sequence[str]) -> None:
    """Raise SettingError for keys that cannot be files of one folder."""
    folders: set[str] = set()
    for path in paths:
        parts = path.split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise SettingError(f"the object {path!r} in {url} cannot be a file; rename it")
        folders |= {"/".join(parts[:count]) for count in range(1, len(parts))}
    if both := folders.intersection(paths):
        raise SettingError(f"{min(both)!r} in {url} is an object and also a folder; rename one of the two")
