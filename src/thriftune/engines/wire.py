"""How do a worker and its driver talk? Lines: `Kind {json}` for events up, one JSON object down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from thriftune.events import Codec, Event

GOODBYE = b"Goodbye"
"""A worker's word that it ends after the next event it sends."""


def to_line(event: Event) -> bytes:
    return f"{type(event).__name__} {Codec.body(event)}\n".encode()


def from_line(line: bytes) -> Event:
    kind, _, body = line.decode().partition(" ")
    return Codec.event(kind, body)


class Lines:
    """Cuts a stream of bytes into whole lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return lines


def read_spool(path: Path) -> Iterator[Event]:
    """The events of a worker's spool. A line that was torn by a kill or a full disk was never acknowledged."""
    for line in path.read_bytes().split(b"\n"):
        if line:
            try:
                yield from_line(line)
            except ValueError:
                continue
