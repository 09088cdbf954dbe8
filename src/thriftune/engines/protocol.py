"""The engine protocol: starts and stops the workers of trials, and delivers their events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from thriftune.state.events import Event
from thriftune.training.run import Run


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """What one worker does now, for people to look at."""

    worker: str
    pid: int | None
    trial: int | None
    waits_for: str = ""  # what the trial is still without, in words


class Engine(Protocol):
    """Owns processes, not policy: carries decisions out and tells what became of them.

    The driver calls recover(), records what it returns, then open(), then the rest in any order, then close().
    Every attempt that was started ends in exactly one Ended, Failed, Killed or Lost; all its reports come before.
    """

    def recover(self) -> list[Event]:
        """What the workers of an earlier driver said that the log may not know. Returns when they are all gone."""
        ...

    def open(self) -> None: ...

    def start(self, run: Run, workers: Mapping[str, int]) -> None:
        """So many workers on which machine, the first of them first. Never blocks on the trial. At most as many
        at a time as the machine has slots."""
        ...

    def request_end(self, trial: int, attempt: int) -> None:
        """The attempt shall end after its next step. Unknown or ended attempts are ignored."""
        ...

    def acknowledge_report(self, trial: int, attempt: int, number: int) -> None:
        """The attempt's report of that number was judged; if it is to end because of it, it was told so before.

        Only of runs that are `judged`.
        """
        ...

    def set_knobs(self, trial: int, attempt: int, setting: Mapping[str, Any]) -> None:
        """The attempt shall have its knobs at this setting from its next step on; it is also the answer to each
        Measured. Unknown or ended attempts are ignored.
        """
        ...

    def kill(self, trial: int, attempt: int) -> None:
        """The attempt shall end now. Unknown or ended attempts are ignored."""
        ...

    def wait(self, timeout: float | None) -> list[Event]:
        """What has happened, as soon as anything has; empty after `timeout` seconds or a wake().

        The driver has recorded what one wait() returned before it calls the next, or start().
        """
        ...

    def wake(self) -> None:
        """Makes a wait() in progress, or the next one, return. Safe from a signal handler and other threads."""
        ...

    def machine_lost(self, machine: str) -> list[Event]:
        """The machine is gone, or is given back: what attempts with workers there had said last, and that they
        are lost."""
        ...

    def status(self) -> list[WorkerStatus]: ...

    def close(self) -> None:
        """Ends every process it started, and their descendants. May be called twice."""
        ...
