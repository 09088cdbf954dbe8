"""Reads the checkpoints of a trial in an object store; see checkpoint_objects.py for their layout.

Workers restore from them, and the driver reads manifests and models.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from thriftune.errors import CheckpointError
from thriftune.object_store.protocol import ObjectMissing, ObjectStore
from thriftune.training import checkpoint_objects as layout
from thriftune.training.checkpoint_files import DiskFullError
from thriftune.training.checkpoint_objects import Manifest
from thriftune.training.content_hash import content_hash
from thriftune.training.parallel import for_each

TRANSFERS = 4
"""How many parts are transferred at the same time. Each of them is in memory as a whole, with 32 MiB."""

_MANIFEST_SUFFIX = ".json"


class _Part(NamedTuple):
    key: str  # as the manifest names it
    path: Path
    offset: int
    size: int


class StoredCheckpoints:
    """The checkpoints of one trial in an object store. Any number of threads may use it."""

    def __init__(self, objects: ObjectStore, trial: int, *, part_bytes: int = layout.PART_BYTES) -> None:
        """`objects`: the store of the study's URL. `part_bytes`: the size of parts, for tests."""
        self._objects = objects
        self._trial = trial
        self._part_bytes = part_bytes

    def names(self) -> list[str]:
        """Return the names of all checkpoints that have a manifest, in ascending order of keys."""
        prefix = layout.trial_prefix(self._trial)
        keys = (each.key for each in self._objects.list_objects(prefix))
        return [
            key.removeprefix(prefix).removesuffix(_MANIFEST_SUFFIX)
            for key in keys
            if key.endswith(_MANIFEST_SUFFIX)
        ]

    def manifest(self, name: str) -> Manifest:
        """Return the manifest of a checkpoint.

        Raises ObjectMissing if there is none, and CheckpointError if it is damaged.
        """
        data = self._objects.get(layout.manifest_key(self._trial, name))
        try:
            manifest = layout.decode(data)
            _check_names(manifest)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"checkpoint {name}: its manifest is damaged: {error}") from None
        if (manifest.name, manifest.trial) != (name, self._trial):
            raise CheckpointError(
                f"checkpoint {name}: its manifest belongs to {manifest.name} of trial {manifest.trial}"
            )
        return manifest

    def fetch(self, manifest: Manifest, folder: Path) -> None:
        """Write all files of a checkpoint into a new folder, which exists only once it is complete.

        Raises CheckpointError if a part is damaged or missing, and DiskFullError if there is no room.
        """
        unfinished = folder.with_name(f".unfinished-{os.urandom(6).hex()}")
        try:
            unfinished.mkdir(parents=True)
            parts = list(self._parts(manifest, unfinished))
            for_each(lambda part: self._fetch_part(manifest.name, part), parts, TRANSFERS)
            unfinished.rename(folder)
        except BaseException as error:
            shutil.rmtree(unfinished, ignore_errors=True)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFullError(
                    f"{folder}: no room for the {manifest.size:,} bytes of checkpoint {manifest.name}; free some "
                    "room. The checkpoint is intact in the object store."
                ) from error
            raise

    def _parts(self, manifest: Manifest, folder: Path) -> Iterator[_Part]:
        """Create the files and folders, and yield the parts to fetch."""
        for name, stored in manifest.files.items():
            path = folder / name
            if name.endswith("/"):
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.truncate(stored.size)
            expected = -(-stored.size // self._part_bytes)
            if len(stored.parts) != expected:
                raise CheckpointError(
                    f"checkpoint {manifest.name}: {name} has {len(stored.parts)} parts instead of {expected}"
                )
            for index, key in enumerate(stored.parts):
                offset = index * self._part_bytes
                yield _Part(key, path, offset, min(self._part_bytes, stored.size - offset))

    def _fetch_part(self, name: str, part: _Part) -> None:
        try:
            data = self._objects.get(layout.part_key(self._trial, part.key))
        except ObjectMissing:
            raise CheckpointError(f"checkpoint {name}: {part.path.name}: part {part.key} is missing") from None
        if len(data) != part.size:
            raise CheckpointError(
                f"checkpoint {name}: {part.path.name}: part {part.key} has {len(data):,} bytes instead of "
                f"{part.size:,}"
            )
        if content_hash(data) != layout.part_hash(part.key):
            raise CheckpointError(f"checkpoint {name}: {part.path.name}: the hash of part {part.key} differs")
        descriptor = os.open(part.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            rest, offset = memoryview(data), part.offset
            while rest:
                written = os.pwrite(descriptor, rest, offset)
                rest, offset = rest[written:], offset + written
        finally:
            os.close(descriptor)


def _check_names(manifest: Manifest) -> None:
    """Raise ValueError if the manifest names a file outside of the folder into which it is fetched."""
    for name in manifest.files:
        path = PurePosixPath(name)
        if not name or path.is_absolute() or ".." in path.parts:
            raise ValueError(f"it names the file {name!r}")
