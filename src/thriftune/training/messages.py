"""How do a worker and its driver talk? Lines: `Kind {json}` for events up, one JSON object down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from thriftune.space.values import value_from_json, value_to_json
from thriftune.state.events import Codec, Event
from thriftune.training.run import Run

GOODBYE = b"Goodbye"
"""A worker's word that it ends after the next event it sends."""

MESSAGE_BYTES = 1 << 24
"""The longest message that a driver takes from a worker: 16 MiB. Reports have some hundred bytes."""


def to_line(event: Event) -> bytes:
    return f"{Codec.kind(event)} {Codec.body(event)}\n".encode()


def from_line(line: bytes) -> Event:
    """Raises ValueError where it is none."""
    kind, _, body = line.decode().partition(" ")
    return Codec.event(kind, body)


_RUN_FIELDS = tuple(each.name for each in fields(Run))


def run_message(run: Run) -> list[Any]:
    """Return a run as JSON for run_from(). It tells tuples from lists, which JSON alone does not."""
    values = {name: getattr(run, name) for name in _RUN_FIELDS}
    values["config"] = {name: value_to_json(value) for name, value in run.config.items()}
    return list(values.values())


def run_from(message: list[Any]) -> Run:
    """Return the run that run_message() was given."""
    run = Run(*message)
    return replace(run, config={name: value_from_json(value) for name, value in run.config.items()})


class Lines:
    """Cuts a stream of bytes into whole lines."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # of the line that has not ended
        self._length = 0

    @property
    def unfinished_bytes(self) -> int:
        """The length of the line that has not ended."""
        return self._length

    def feed(self, chunk: bytes) -> list[bytes]:
        if b"\n" in chunk:
            *lines, rest = b"".join((*self._parts, chunk)).split(b"\n")
            self._parts, self._length = [], 0
        else:
            lines, rest = [], chunk
        if rest:
            self._parts.append(rest)
            self._length += len(rest)
        return lines


def read_spool(path: Path) -> Iterator[Event]:
    """The events of a worker's spool. A line that was torn by a kill or a full disk was never acknowledged."""
    for line in path.read_bytes().split(b"\n"):
        if line:
            try:
                yield from_line(line)
            except ValueError:
                continue
