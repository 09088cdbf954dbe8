"""Copy the output files of trials to an object store while a study runs, and back when someone wants to read them.

The objects have the names of the files: trials/7/output/2.log.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from thriftune.object_store.protocol import ObjectMissing, ObjectStore
from thriftune.store.shipped_log import in_parallel

BYTES_PER_PASS = 4 << 20
"""A pass copies at most about this much, so that trials that print a lot delay neither log nor heartbeat."""

_KEY = re.compile(r"trials/\d+/output/[^/]+\.log")


class OutputShipper:
    """Copies the output files of one study that have changed. `objects`: of the study's URL."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._copied: dict[str, tuple[int, int]] = {}  # by key: time and size of the file when it was copied
        self._next = ""  # the key at which the next pass begins, so that all trials get their turn

    def ship(
        self, folder: Path, limit: int | None = BYTES_PER_PASS, is_urgent: Callable[[], bool] = lambda: False
    ) -> bool:
        """Copy what has changed; return whether that was all.

        - `limit`: in bytes; None for no limit.
        - `is_urgent`: returns whether something else has to be shipped first.
        """
        files = list(_files(folder))
        first = next((index for index, (key, _) in enumerate(files) if key == self._next), 0)
        for key, status in files[first:] + files[:first]:
            stamp = status.st_mtime_ns, status.st_size
            if self._copied.get(key) == stamp:
                continue
            if (limit is not None and limit <= 0) or is_urgent():
                self._next = key
                return False
            try:
                data = (folder / key).read_bytes()
            except FileNotFoundError:  # a part that its writer has removed to make room
                continue
            self._objects.put(key, data)
            self._copied[key] = stamp
            limit = limit if limit is None else limit - len(data)
        present = {key for key, _ in files}
        removed = [key for key in self._copied if key not in present]
        self._objects.delete(removed)
        for key in removed:
            del self._copied[key]
        return True


def fetch_output(objects: ObjectStore, folder: Path, trial: int | None = None) -> None:
    """Copy the output files of a trial, or of all, into the study's local folder, where they are new or longer."""
    prefix = "trials/" if trial is None else f"trials/{trial}/output/"

    def fetch(key: str) -> None:
        try:
            data = objects.get(key)
        except ObjectMissing:
            return
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_bytes(data)
        unfinished.replace(path)

    listed = [info for info in objects.list_objects(prefix) if _KEY.fullmatch(info.key)]
    in_parallel(fetch, [info.key for info in listed if _size(folder / info.key) != info.size])


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the key and status of each output file, trial by trial."""
    try:
        trials = sorted(entry.name for entry in os.scandir(folder / "trials") if entry.name.isdigit())
    except (FileNotFoundError, NotADirectoryError):
        return
    for trial in trials:
        try:
            files = list(os.scandir(folder / "trials" / trial / "output"))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in files:
            key = f"trials/{trial}/output/{entry.name}"
            if _KEY.fullmatch(key):
                try:
                    yield key, entry.stat()
                except FileNotFoundError:
                    continue


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
