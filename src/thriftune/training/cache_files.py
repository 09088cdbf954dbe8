"""Read, write, protect and remove the files of a cache."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

_BLOCK_BYTES = 4096
"""The smallest space that a file takes on most disks."""


def room_for(sizes: Iterable[int]) -> int:
    """Return how many bytes files of these sizes take on a disk, about."""
    return sum(-(-size // _BLOCK_BYTES) * _BLOCK_BYTES for size in sizes)


def listed(folder: Path) -> list[Path]:
    """Return the paths in a folder, sorted; an empty list if there is no such folder."""
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield all files below a folder with their paths relative to it. Files that disappear are left out."""
    left = [str(folder)]
    while left:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(left.pop()) as found:
            for each in found:
                if each.is_dir(follow_symlinks=False):
                    left.append(each.path)
                else:
                    yield os.path.relpath(each.path, folder), each.stat(follow_symlinks=False)


def sizes_and_times(content: Path) -> dict[str, list[int]]:
    """Return the size in bytes, and the time of the last change in nanoseconds, of each file below a folder."""
    return {path: [about.st_size, about.st_mtime_ns] for path, about in _files(content)}


def bytes_on_disk(folder: Path) -> int:
    """Return how many bytes of the disk the files below a folder take."""
    return sum(about.st_blocks * 512 for _, about in _files(folder))


def make_read_only(folder: Path) -> None:
    """Forbid everybody to write the files below a folder, and to add others. Administrators still can."""
    for root, _, files in os.walk(folder, topdown=False):
        for name in files:
            Path(root, name).chmod(0o444)
        Path(root).chmod(0o555)


def remove(path: Path) -> None:
    """Remove a folder and all in it, also what is read-only. A missing one is ignored."""
    for root, _, _ in os.walk(path):
        with contextlib.suppress(OSError):
            Path(root).chmod(stat.S_IRWXU)
    shutil.rmtree(path, ignore_errors=True)


def write(path: Path, text: str) -> None:
    """Write a file, so that it survives a loss of power."""
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Let the names in a folder survive a loss of power."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
