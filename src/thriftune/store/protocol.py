"""The store protocol. The store keeps the log of every study, and everything else is folded from it.

A log is a sequence of entries (events.Event), numbered from 1 and only ever appended to. One driver at a time
writes a study; any number of readers, in any process, read it whenever they like.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from thriftune.state.events import Event


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """The process that runs a study now, and since when (unix seconds)."""

    pid: int
    host: str
    since: float


@dataclass(frozen=True, slots=True)
class StudyListing:
    """A study as a listing shows it, without reading its log.

    `damage`: what of it cannot be read, in words; `spec` and `summary` are then empty.
    """

    name: str
    created_at: float
    spec: dict[str, Any]
    summary: dict[str, Any]
    entries: int
    driver: DriverInfo | None
    damage: str = ""


class Store(Protocol):
    """Where studies are kept.

    Every method that takes the name of a study (but `create`) raises StudyNotFound when there is none of that
    name, and any method raises StoreError when the store itself fails. spec(), length() and read() raise
    StudyDamaged when they cannot understand what is stored; all others work with a damaged study, too. A method
    that writes has written all when it returns, and nothing when it raises: written so that it survives the death
    of any process, and, but for append(), of the machine. Readers neither block the driver nor are blocked by it.
    A store may be used from several threads, but not in a forked child.
    """

    @property
    def url(self) -> str:
        """What open_store() takes to open this store again."""

    @property
    def folder(self) -> Path:
        """Where the files of studies, such as checkpoints, are kept by default. No other store has the same."""

    def create(self, name: str, spec: Mapping[str, Any], at: float, entries: Sequence[Event] = ()) -> None:
        """Add a study, its log begun with `entries`. `spec` is anything JSON can hold. Raises StudyExists."""

    def spec(self, name: str) -> dict[str, Any]:
        """What the study was created or last updated with."""

    def update_spec(self, name: str, spec: Mapping[str, Any]) -> None:
        """Replace the study's spec."""

    def append(
        self, name: str, after: int, entries: Sequence[Event], summary: Mapping[str, Any] | None = None
    ) -> None:
        """Add the entries to a log that has `after` of them, and replace the summary if one is given.

        Raises StoreConflict when the log has any other number of entries: somebody else wrote to it. Survives the
        death of the machine only after sync(), which costs more than all the rest.
        """

    def sync(self) -> None:
        """Whatever was appended survives the death of the machine, too."""

    def read(self, name: str, after: int = 0) -> list[Event]:
        """Return the entries numbered after + 1 and up, in order, their values checked by Codec."""

    def length(self, name: str) -> int:
        """How many entries the log has."""

    def studies(self) -> list[StudyListing]:
        """Return every study, damaged ones included, the newest first. Its cost does not depend on their logs."""

    def drive(self, name: str) -> AbstractContextManager[None]:
        """Be the study's one driver while inside. Raises StudyBusy when somebody else is, in any process.

        A driver that dies, however it dies, is the driver no more.
        """

    def driver(self, name: str) -> DriverInfo | None:
        """Who drives the study at this moment."""

    def request(self, name: str, what: str, at: float) -> None:
        """Ask the study's driver for something ("stop"). It stays until this or a later driver takes it."""

    def take_requests(self, name: str) -> list[str]:
        """What was asked for since the last call, oldest first. Cheap enough to be called twice a second.

        Raises StoreError, too, where the store is not in its place any more, so that a driver comes to know.
        """

    def rename(self, name: str, new: str, spec: Mapping[str, Any]) -> None:
        """Give the study another name, and replace its spec, in one step.

        Raises StudyExists where there is a study of the new name, and StudyBusy while this one is driven.
        """

    def delete(self, name: str) -> None:
        """Remove the study and its log. Raises StudyBusy while it is driven."""

    def close(self) -> None:
        """Let go of the store. It cannot be used any more; closing it again does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...
