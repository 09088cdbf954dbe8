"""Encode the segments of a shipped log, and decide which belong together. Nothing here does IO.

A segment is an object with consecutive entries of a log. Its content never changes. Thus a request that a server
carries out late, after the driver has given it up and sent it again, does no harm.

    000000000120                  a segment as it was shipped, named by the number of its first entry; so the name
                                  of the next one is known
    000000000000-000000000120     a segment that was merged from others: the numbers of its first entry and its end

Merged segments are written first, and then those that they replace are deleted. In between, segments overlap. A
reader ignores what it has already.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

LARGEST_SEGMENT_ENTRIES = 50_000
"""A segment has at most this many entries: compressed, about a megabyte of reports."""

MERGED_AT_A_TIME = 16
"""This many segments of one level make one of the next. A driver that ships every few seconds for a year then has
fewer than a hundred segments that are not of the largest size."""

COPIED = -1
"""The level of segments that are not merged."""

_DIGITS = 12
_MAGIC = b"thriftune-log"
_FORMAT = b"1"
_COMPRESSION = 1  # the fastest: reports shrink to a tenth, and higher levels gain little


class Line(NamedTuple):
    """An entry of a log as stores keep it. `body`: the JSON object of Codec.body(), which is ASCII in one line."""

    kind: str
    trial: int | None
    at: float
    body: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment that its driver has shipped.

    - `first`: the number of its first entry, counted from 0.
    - `level`: how often its entries were merged; COPIED for a part of the log that the drive has found.
    """

    first: int
    entries: int
    level: int = 0

    @property
    def end(self) -> int:
        return self.first + self.entries

    @property
    def name(self) -> str:
        if self.level <= 0:
            return shipped_name(self.first)
        return f"{shipped_name(self.first)}-{shipped_name(self.end)}"


class DamagedSegment(ValueError):
    """A segment that is not what was written."""


def shipped_name(first: int) -> str:
    """Return the name of the shipped segment that begins with entry `first`. Names sort as their numbers do."""
    return f"{first:0{_DIGITS}}"


def first_of(name: str) -> int:
    """Return the number of a segment's first entry, from its name. Raise ValueError for another name."""
    first, _, _ = name.partition("-")
    return int(first)


def encode(first: int, lines: Sequence[Line]) -> bytes:
    """Return the segment with the given lines."""
    text = "\n".join(
        f"{kind}\t{'' if trial is None else trial}\t{at!r}\t{body}" for kind, trial, at, body in lines
    )
    data = zlib.compress(text.encode("ascii"), _COMPRESSION)
    return b"%s %s %d %d %08x\n%s" % (_MAGIC, _FORMAT, first, len(lines), zlib.crc32(data), data)


def decode(name: str, data: bytes) -> list[Line]:
    """Return the lines of the segment of this name. Raise DamagedSegment."""
    header, _, body = data.partition(b"\n")
    try:
        magic, version, begins, count, checksum = header.split()
        if magic != _MAGIC:
            raise ValueError("it is no segment of a log")
        if version != _FORMAT:
            raise ValueError(f"its format {version.decode()} is unknown; upgrade thriftune")
        if zlib.crc32(body) != int(checksum, 16):
            raise ValueError("its checksum is wrong")
        if int(begins) != first_of(name):
            raise ValueError(f"it begins with entry {int(begins)}")
        text = zlib.decompress(body).decode("ascii")
        lines = [_line(line) for line in text.split("\n")] if text else []
        if len(lines) != int(count):
            raise ValueError(f"it has {len(lines)} entries instead of {int(count)}")
    except (ValueError, zlib.error) as error:
        raise DamagedSegment(f"segment {name}: {error}") from error
    return lines


def _line(text: str) -> Line:
    kind, trial, at, body = text.split("\t", 3)
    return Line(kind, int(trial) if trial else None, float(at), body)


def join(begins: int, segments: Mapping[str, Sequence[Line]]) -> tuple[list[Line], bool]:
    """Return the contiguous entries from number `begins` on, and whether later ones lie beyond a gap.

    `segments`: lines by the segment's name. They may overlap.
    """
    joined: list[Line] = []
    for name in sorted(segments):
        first, have = first_of(name), begins + len(joined)
        if first > have:
            return joined, True
        joined += segments[name][have - first :]
    return joined, False


def split(first: int, entries: int) -> list[Segment]:
    """Return the segments in which `entries` entries from number `first` on are shipped."""
    full = LARGEST_SEGMENT_ENTRIES
    return [Segment(at, min(full, first + entries - at)) for at in range(first, first + entries, full)]


def to_merge(segments: Sequence[Segment]) -> list[Segment]:
    """Return the segments to merge next; none if no merge is due.

    `segments`: all segments of a drive, in order.
    """
    if not segments:
        return []
    level = segments[-1].level
    if level == COPIED:
        return []
    run: list[Segment] = []
    for segment in reversed(segments):
        if segment.level != level:
            break
        run.insert(0, segment)
    due = run[-MERGED_AT_A_TIME:]
    if len(due) < MERGED_AT_A_TIME or sum(segment.entries for segment in due) > LARGEST_SEGMENT_ENTRIES:
        return []
    return due


def merged(segments: Sequence[Segment]) -> Segment:
    """Return the segment that replaces consecutive ones."""
    return Segment(segments[0].first, segments[-1].end - segments[0].first, segments[0].level + 1)
