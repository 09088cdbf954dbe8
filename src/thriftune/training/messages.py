"""Encodes the messages between a worker and its driver.

A worker sends events as lines of the form `Kind {json}`. The driver sends lines of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from thriftune.space.values import value_from_json, value_to_json
from thriftune.state.events import Codec, Event
from thriftune.training.run import Run

GOODBYE = b"Goodbye"
"""The line by which a worker announces that it ends after the next event."""

MESSAGE_BYTES = 1 << 24
"""The longest message that a driver accepts from a worker: 16 MiB. A report has some hundred bytes."""


def saved_message(folder: Path, step: int | None, *, partial: bool) -> bytes:
    """Return the line by which a command tells its worker of a state in `folder`, which is to be uploaded.

    `step`: None if the line of its report follows.
    """
    return _SAVED + json.dumps({"folder": str(folder), "step": step, "partial": partial}).encode() + b"\n"


def saved_state(line: bytes) -> dict[str, Any] | None:
    """Return the arguments of saved_message(); None for any other line."""
    return json.loads(line.removeprefix(_SAVED)) if line.startswith(_SAVED) else None


def to_line(event: Event) -> bytes:
    """Encode an event as a line."""
    return f"{Codec.kind(event)} {Codec.body(event)}\n".encode()


def from_line(line: bytes) -> Event:
    """Decode an event. Raises ValueError for any other line."""
    kind, _, body = line.decode().partition(" ")
    return Codec.event(kind, body)


_SAVED = b"Saved "

_RUN_FIELDS = tuple(each.name for each in fields(Run))


def run_message(run: Run) -> list[Any]:
    """Return a run as a JSON value for run_from(). Unlike plain JSON, it distinguishes tuples from lists."""
    values = {name: getattr(run, name) for name in _RUN_FIELDS}
    values["config"] = {name: value_to_json(value) for name, value in run.config.items()}
    return list(values.values())


def run_from(message: list[Any]) -> Run:
    """Return the run that run_message() has encoded."""
    run = Run(*message)
    return replace(run, config={name: value_from_json(value) for name, value in run.config.items()})


class LineBuffer:
    """Splits a stream of bytes into complete lines."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # of the incomplete line, in order
        self._length = 0

    @property
    def unfinished_bytes(self) -> int:
        """The length of the incomplete line."""
        return self._length

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add bytes, and return the lines that are complete now, without their line breaks."""
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
    """Yield the events of a worker's spool file.

    A line that a kill or a full disk has cut off is skipped: its event was never acknowledged.
    """
    for line in path.read_bytes().split(b"\n"):
        if line:
            try:
                yield from_line(line)
            except ValueError:
                continue
