"""The protocol of stores, which keep the logs of studies.

A log is a sequence of entries (events.Event) that are numbered from 1. Entries are only appended, and never
changed. The state of a study can be computed from its log. One driver at a time writes the log. Any number of
readers, in any process, can read it at any time.
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
    """The process that drives a study.

    - `since`: the time at which it began to drive the study, in unix seconds.
    """

    pid: int
    host: str
    since: float


@dataclass(frozen=True, slots=True)
class StudyListing:
    """The data of a study for a list of studies. The store creates it without the log.

    - `created_at`: in unix seconds.
    - `summary`: the result of summarize(); empty if the store has none.
    - `entries`: the length of the log.
    - `driver`: the process that drives the study now; None if no process does.
    - `damage`: what cannot be read, as a sentence; empty if the study is not damaged. Otherwise `spec` and
      `summary` are empty.
    """

    name: str
    created_at: float
    spec: dict[str, Any]
    summary: dict[str, Any]
    entries: int
    driver: DriverInfo | None
    damage: str = ""


class Store(Protocol):
    """A durable collection of studies.

    - Errors: every method with the parameter `name`, except create(), raises StudyNotFound if the store has no
      study of this name. Any method raises StoreError if the store itself fails. spec(), length() and read()
      raise StudyDamaged if they cannot read what is stored. All other methods also work with a damaged study.
    - Atomicity: a method that writes has written everything when it returns, and nothing when it raises.
    - Durability: what was written survives the death of any process. It also survives the death of the machine,
      except for append(), which needs a sync() for that.
    - Concurrency: readers do not block the driver, and the driver does not block readers. A store may be used from
      several threads, but not in a forked child.
    """

    @property
    def url(self) -> str:
        """Return the path or URL with which open_store() opens this store."""

    @property
    def folder(self) -> Path:
        """Return the default folder for files of studies, such as checkpoints.

        Each store has a folder of its own.
        """

    def create(self, name: str, spec: Mapping[str, Any], at: float, entries: Sequence[Event] = ()) -> None:
        """Add a study whose log begins with `entries`.

        Raises StudyExists.

        - `spec`: any object that JSON can represent.
        - `at`: the time of creation, in unix seconds.
        """

    def spec(self, name: str) -> dict[str, Any]:
        """Return the spec with which the study was created or last updated."""

    def update_spec(self, name: str, spec: Mapping[str, Any]) -> None:
        """Replace the study's spec."""

    def append(
        self, name: str, after: int, entries: Sequence[Event], summary: Mapping[str, Any] | None = None
    ) -> None:
        """Append entries to a study's log, and replace the summary unless it is None.

        The entries survive the death of the machine only after sync(), which takes longer than the append itself.

        `after`: the number of entries of the log before. Raises StoreConflict if the log has another number of
        entries, because another driver wrote to it.
        """

    def sync(self) -> None:
        """Sync all appended entries to disk, so that they survive the machine's death."""

    def read(self, name: str, after: int = 0) -> list[Event]:
        """Return all entries whose number is greater than `after`, in order.

        Their values were checked by events.Codec.
        """

    def length(self, name: str) -> int:
        """Return the number of entries of the log."""

    def studies(self) -> list[StudyListing]:
        """Return all studies, the newest first, including damaged ones.

        The time that this takes does not depend on the length of the logs.
        """

    def drive(self, name: str) -> AbstractContextManager[None]:
        """Make this process the study's only driver for the time of a `with` block.

        Raises StudyBusy if the study already has a driver, in any process. A process that dies, for whatever
        reason, is not the driver any more.
        """

    def driver(self, name: str) -> DriverInfo | None:
        """Return the process that drives the study now; None if no process does."""

    def request(self, name: str, what: str, at: float) -> None:
        """Store a request to the study's driver, such as "stop".

        It stays until a driver takes it. `at`: unix seconds.
        """

    def take_requests(self, name: str) -> list[str]:
        """Return and remove the requests to the study's driver, the oldest first.

        A driver calls it about twice a second. It also raises StoreError if the store's file was removed or
        replaced, so that the driver notices.
        """

    def rename(self, name: str, new: str, spec: Mapping[str, Any]) -> None:
        """Rename a study and replace its spec, in one transaction.

        Raises StudyExists if the store has a study of the new name, and StudyBusy if this study has a driver.
        """

    def delete(self, name: str) -> None:
        """Remove the study and its log. Raises StudyBusy if it has a driver."""

    def close(self) -> None:
        """Close the store, after which it cannot be used. Closing it again does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class LogShipping(Protocol):
    """Ships the log of a study to an object store while the study is driven."""

    def raise_if_lost(self) -> None:
        """Raise StoreConflict if a driver on another machine has taken the study over."""

    def ship_soon(self) -> None:
        """Ship all entries that the local log has now, without delay. Does not wait."""

    def wait_until_shipped(self, what: str = "", at_risk: str = "") -> None:
        """Return once the object store has all entries that the local log has now.

        Called before something happens that must not be forgotten. Waits only for a limited time, and then warns.
        Raises StoreConflict as raise_if_lost() does.

        - `what`: what has happened, and `at_risk`: what may be lost, for the warning. By default, a machine was
          rented or released.
        """

    def ship_now(self) -> None:
        """Return once the object store has all entries that the local log has now. Any thread may call it.

        Called before checkpoints are deleted that a log without these entries would need. Waits only for a limited
        time. Raises StoreUnavailable then, and StoreConflict as raise_if_lost() does.
        """

    def check(self) -> None:
        """Ask the object store whether a driver on another machine has taken the study over.

        Raises StoreConflict if so. Any thread may call it.
        """
