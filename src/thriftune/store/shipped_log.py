"""Read and write the log of one study in an object store.

    log/000002-3fa9c1d2/000000000000    a segment: consecutive entries, compressed; see log_segments.py
    epochs/...                          which drive's log counts; see epochs.py

The log of an epoch is complete: it begins with a copy of the log that the drive has found. Readers use the newest
epoch that has started, and nothing else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from typing import TypeVar

from thriftune.errors import StoreConflict, StudyDamaged
from thriftune.object_store.protocol import ObjectMissing, ObjectStore, ObjectStoreError
from thriftune.store.epochs import Claim, Epoch, Epochs
from thriftune.store.log_segments import (
    COPIED,
    DamagedSegment,
    Line,
    Segment,
    decode,
    encode,
    first_of,
    join,
    merged,
    shipped_name,
    split,
    to_merge,
)

A = TypeVar("A")
B = TypeVar("B")

PREFIX = "log/"

_PARALLEL = 16
"""Segments that are fetched or sent at a time. Most of the time is spent waiting for the server."""

_ATTEMPTS = 5
_ATTEMPT_SECONDS = 0.3
"""Read a log again if it has a gap. Its driver may have merged segments, or a list may be out of date."""


class ShippedLogReader:
    """Reads the shipped log of one study, and remembers what it has read.

    - `objects`: of the study's URL.
    - `name`, `url`: the study's name and its store's URL, for errors.
    """

    def __init__(self, objects: ObjectStore, name: str, url: str) -> None:
        self._objects = objects
        self._name, self._url = name, url
        self._epochs = Epochs(objects)
        self._epoch: Epoch | None = None  # of the lines
        self._lines: list[Line] = []  # all entries of the log that were read until now
        self._copied = 0  # number of entries with which that epoch started
        self._names: set[str] = set()  # the segments from which they were read

    def epoch(self) -> Epoch | None:
        """Return the newest epoch that has started; None if none has."""
        return self._epochs.newest_started()

    def read(self, at_least: int = 0) -> tuple[Epoch | None, Sequence[Line]]:
        """Return the newest epoch that has started, and the entries of its log.

        Raises StudyDamaged for a segment that is missing or damaged. `at_least`: how many entries are known to
        exist; a log with fewer is damaged, too.
        """
        for attempt in count(1):
            epoch = self._epochs.newest_started()
            if epoch != self._epoch:
                self._epoch, self._lines, self._names = epoch, [], set()
                self._copied = self._epochs.entries_at_start(epoch) if epoch is not None else 0
            problem = self._catch_up(epoch) if epoch is not None else ""
            least = max(at_least, self._copied)
            if not problem and len(self._lines) < least:
                problem = f"its log has {len(self._lines)} entries, and should have {least}"
            if not problem:
                return epoch, self._lines
            if attempt == _ATTEMPTS:
                raise StudyDamaged(self._name, self._url, problem)
            time.sleep(_ATTEMPT_SECONDS * attempt)
        raise AssertionError("unreachable")

    def _catch_up(self, epoch: Epoch) -> str:
        """Read the entries that are new. Return what is wrong with the log; empty if nothing is."""
        prefix = f"{PREFIX}{epoch.name}/"
        names = [info.key.removeprefix(prefix) for info in self._objects.list_objects(prefix)]
        new = [name for name in names if name not in self._names and name[:1].isdigit()]
        try:
            fetched = self._fetch(prefix, new)
            lines, gap = join(len(self._lines), fetched)
            self._lines += lines
            # Those beyond a gap are fetched again, once the gap is filled.
            self._names.update(name for name in fetched if first_of(name) < len(self._lines))
            if gap:
                return f"its log has a gap after entry {len(self._lines)}"
            # Those that were merged meanwhile are in a segment that is not in the list.
            if missing := [name for name in new if first_of(name) >= len(self._lines)]:
                return f"segment {missing[0]} of its log is missing"
            # The list may be out of date. The name of the next segment is known.
            while more := self._fetch(prefix, [shipped_name(len(self._lines))]):
                self._names.update(more)
                self._lines += (entries := next(iter(more.values())))
                if not entries:
                    break
        except DamagedSegment as error:
            return str(error)
        return ""

    def _fetch(self, prefix: str, names: Sequence[str]) -> dict[str, list[Line]]:
        """Return the lines of segments, without those that are missing."""

        def fetch(name: str) -> list[Line] | None:
            try:
                return decode(name, self._objects.get(f"{prefix}{name}"))
            except ObjectMissing:  # it was merged into another
                return None

        fetched = zip(names, in_parallel(fetch, names), strict=True)
        return {name: lines for name, lines in fetched if lines is not None}


class ShippedLogWriter:
    """Ships the log of one drive. One thread uses it.

    - `epoch`: the drive's own, which it has claimed.
    - `read`: returns lines of the local log: (number of the first, how many).
    """

    def __init__(
        self, objects: ObjectStore, epoch: Epoch, read: Callable[[int, int], Sequence[Line]], name: str
    ) -> None:
        self._objects = objects
        self.epoch = epoch
        self._read = read
        self._name = name
        self._epochs = Epochs(objects)
        self._prefix = f"{PREFIX}{epoch.name}/"
        self._segments: list[Segment] = []  # all that readers need, in order
        self._queue: list[Segment] = []  # to be sent next; unchanged until they are, as requests may be repeated
        self.shipped = 0  # number of entries that are safe: a newer drive has them, too

    def start(self, entries: int) -> None:
        """Ship the first `entries` entries, and make readers use this epoch. Raises StoreConflict."""
        self._segments = [replace(segment, level=COPIED) for segment in split(0, entries)]
        in_parallel(self._put, self._segments)
        self._epochs.start(self.epoch, entries)
        self.check()
        self.shipped = entries
        self._delete_older()

    def ship(self, entries: int) -> None:
        """Ship all entries up to number `entries`, and return once they are safe.

        Raises StoreConflict if another drive has taken the study over.
        """
        queued = (self._queue or self._segments or [Segment(0, 0)])[-1].end
        self._queue += split(queued, entries - queued)
        while self._queue:  # in order, so that there is never a gap
            self._put(self._queue[0])
            self._segments.append(self._queue.pop(0))
        self.check()
        self.shipped = self._segments[-1].end if self._segments else 0
        while due := to_merge(self._segments):
            self._merge(due)

    def check(self) -> None:
        """Raise StoreConflict if another drive has taken the study over."""
        if (by := self._epochs.newer_than(self.epoch)) is not None:
            raise StoreConflict(taken_over(self._name, by))

    def _merge(self, due: Sequence[Segment]) -> None:
        larger = merged(due)
        self._put(larger)
        self._objects.delete([self._key(segment) for segment in due])
        self._segments = [each for each in self._segments if each.first < larger.first] + [larger]

    def _put(self, segment: Segment) -> None:
        lines = self._read(segment.first, segment.entries)
        if len(lines) != segment.entries:
            raise ObjectStoreError(f"the local log has {len(lines)} of {segment.entries} entries to ship")
        self._objects.put(self._key(segment), encode(segment.first, lines))

    def _key(self, segment: Segment) -> str:
        return f"{self._prefix}{segment.name}"

    def _delete_older(self) -> None:
        """Delete the logs of older drives, which readers do not use any more.

        Never those of newer ones: this drive may have been paused here while another has taken the study over.
        """
        # The markers first, so that no reader looks for the logs.
        self._objects.delete(self._epochs.older_markers(self.epoch))
        keys = [info.key for info in self._objects.list_objects(PREFIX)]
        self._objects.delete([key for key in keys if _number(key) < self.epoch.number])


def _number(key: str) -> float:
    """Return the number of the epoch to whose log an object belongs; infinity for any other object."""
    number = key.removeprefix(PREFIX).partition("-")[0]
    return int(number) if number.isdigit() else math.inf


def taken_over(name: str, by: Claim) -> str:
    """Return the message of the error when another drive has taken a study over."""
    return (
        f"study {name!r}: another driver, process {by.pid} on {by.host}, has taken it over; nothing that this one "
        "does counts any more, and it stops"
    )


def in_parallel(function: Callable[[A], B], items: Sequence[A]) -> list[B]:
    """Return function(item) for each item, in order, calling it in several threads."""
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(_PARALLEL, len(items)), thread_name_prefix="objects") as pool:
        return list(pool.map(function, items))
