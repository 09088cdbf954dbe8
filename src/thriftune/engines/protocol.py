"""The protocol of engines, which run the workers of trials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from thriftune.state.events import Event
from thriftune.training.run import Run


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """The present state of a worker, for display."""

    worker: str
    pid: int | None
    trial: int | None
    waits_for: str = ""  # the resources that the trial waits for, as text


class Engine(Protocol):
    """Starts and stops the workers of trials, and reports what happens to them.

    An engine owns processes, not policy: it carries out decisions.

    The driver calls recover() and records its events. Then it calls open(), then the other methods in any order,
    then close(). Each attempt that was started ends with exactly one Ended, Failed, Killed or Lost, after all its
    reports.
    """

    def recover(self) -> list[Event]:
        """Return the events of an earlier driver's workers, recorded or not.

        Waits until all these workers have ended.
        """
        ...

    def open(self) -> None:
        """Prepare to start workers."""
        ...

    def start(self, run: Run, workers: Mapping[str, int]) -> None:
        """Start an attempt.

        Never waits for the trial.

        `workers`: the number of workers on each machine, in order of rank. No machine gets more workers at a time
        than it has slots.
        """
        ...

    def request_end(self, trial: int, attempt: int) -> None:
        """Have the attempt end after its next step.

        Unknown or ended attempts are ignored.
        """
        ...

    def acknowledge_report(self, trial: int, attempt: int, number: int) -> None:
        """Tell the attempt that its report of this number was judged.

        If the attempt is to end because of the report, request_end() is called before. Only for runs that are
        `judged`.
        """
        ...

    def set_knobs(self, trial: int, attempt: int, setting: Mapping[str, Any]) -> None:
        """Have the attempt use this knob setting from its next step on.

        This is also the answer to each UsageMeasured. Unknown or ended attempts are ignored.
        """
        ...

    def kill(self, trial: int, attempt: int) -> None:
        """End the attempt now.

        Unknown or ended attempts are ignored.
        """
        ...

    def wait(self, timeout: float | None) -> list[Event]:
        """Return new events as soon as there are any.

        Returns an empty list after `timeout` seconds or a wake().

        The driver records the events of a wait() before it calls the next, or start().
        """
        ...

    def wake(self) -> None:
        """Make a wait() in progress, or the next one, return.

        Safe from signal handlers and other threads.
        """
        ...

    def machine_lost(self, machine: str) -> list[Event]:
        """Return the last events of attempts on a machine that is lost or released.

        Each of these attempts ends, in most cases with a Lost.
        """
        ...

    def status(self) -> list[WorkerStatus]:
        """Return what each worker does now."""
        ...

    def close(self) -> None:
        """End all processes that the engine has started, and their descendants.

        May be called twice.
        """
        ...
