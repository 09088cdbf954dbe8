"""Snapshots: states that were saved in local folders, to be uploaded as checkpoints."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from thriftune.errors import CheckpointError
from thriftune.training.checkpoint_files import disk_full_error
from thriftune.training.content_hash import file_hash


class Part(NamedTuple):
    """A part of a file of a snapshot."""

    file: str
    offset: int
    size: int


@dataclass(slots=True)
class Snapshot:
    """A state in a local folder, to be uploaded as a checkpoint.

    - `files`: the sizes of its files by name, from list_files().
    - `taken_at_ns`: when its files were complete, in unix nanoseconds.
    - `reports`: the reports since the snapshot before, each encoded by messages.to_line().
    - The other attributes are as in Manifest.
    """

    step: int
    partial: bool
    folder: Path
    files: Mapping[str, int]
    saved_at: float
    reports: Sequence[str] = ()
    command_state: bool = False
    first_step: int | None = None
    taken_at_ns: int = field(default_factory=time.time_ns)

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return sum(self.files.values())

    def parts(self, part_bytes: int) -> list[Part]:
        """Return the parts of all files, each of this size but the last of a file."""
        return [
            Part(name, offset, min(part_bytes, total - offset))
            for name, total in self.files.items()
            for offset in range(0, total, part_bytes)
        ]

    def check_unchanged(self) -> None:
        """Raise CheckpointError if a file was written to after the save function had returned."""
        for name, size in self.files.items():
            now = (self.folder / name).stat()
            if now.st_mtime_ns > self.taken_at_ns or (not name.endswith("/") and now.st_size != size):
                raise CheckpointError(
                    f"{name}: was written to after save had returned; let save wait until all is written"
                )

    def hash(self, part: Part) -> str:
        """Return the hash of a part. Raises CheckpointError if its file has become shorter."""
        return file_hash(self.folder / part.file, part.offset, part.size)

    def read(self, part: Part) -> bytes:
        """Return the data of a part. Raises CheckpointError if its file has become shorter."""
        descriptor = os.open(self.folder / part.file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(descriptor, part.size, part.offset)
            while len(data) < part.size:  # a signal or the file system may cut a read short
                more = os.pread(descriptor, part.size - len(data), part.offset + len(data))
                if not more:
                    raise CheckpointError(f"{part.file}: has become shorter since it was saved")
                data += more
            return data
        finally:
            os.close(descriptor)


def write_state(folder: Path, step: int, write: Callable[[Path], object]) -> dict[str, int]:
    """Create a folder with a state, by `write(folder)`, and return its files as list_files() does.

    If this fails, no folder is left. Raises DiskFullError, CheckpointError, and what `write` raises.
    """
    try:
        folder.mkdir(parents=True)
        write(folder)
        return state_files(folder, step)
    except BaseException as error:
        full = disk_full_error(error, folder, step)
        shutil.rmtree(folder, ignore_errors=True)
        if full is not None:
            raise full from error
        raise


def state_files(folder: Path, step: int) -> dict[str, int]:
    """Return the files of a state as list_files() does. Raises CheckpointError if it has none."""
    files = list_files(folder)
    if all(name.endswith("/") for name in files):
        raise CheckpointError(f"save wrote no file into {folder}, its folder for step {step}")
    return files


def list_files(folder: Path, prefix: str = "") -> dict[str, int]:
    """Return the sizes of all files of a state by name; an empty folder has size 0 and a name that ends with "/".

    Raises CheckpointError for anything but plain files and folders.
    """
    files: dict[str, int] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            name = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                files |= list_files(Path(entry.path), f"{name}/") or {f"{name}/": 0}
            elif entry.is_file(follow_symlinks=False):
                files[name] = entry.stat().st_size
            else:
                shown = name.encode(errors="backslashreplace").decode()
                raise CheckpointError(f"{shown}: save must write only plain files and folders")
    return files
