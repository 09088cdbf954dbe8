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
    waits_for: str = ""  # the resources for which the trial waits, as a text; empty if it runs


class Engine(Protocol):
    """Starts and stops the workers of trials, and reports their events.

    An engine makes no decisions. It carries out those of the conductor.

    The driver first calls recover() and records its events. Then it calls open(), then the other methods in any
    order, and at the end close(). Each attempt that was started ends with exactly one Ended, Failed, Killed or
    Lost, after all its reports.
    """

    def recover(self) -> list[Event]:
        """Return the events of an earlier driver's workers.

        Waits until all these workers have ended. Some of the events may already be in the log.
        """
        ...

    def open(self) -> None:
        """Prepare to start workers."""
        ...

    def start(self, run: Run, workers: Mapping[str, int]) -> None:
        """Start an attempt. Does not wait until the workers have started.

        `workers`: the number of workers on each machine, in order of rank. No machine gets more workers at a time
        than it has slots.
        """
        ...

    def request_end(self, trial: int, attempt: int) -> None:
        """Make the attempt end after its next step.

        Unknown or ended attempts are ignored.
        """
        ...

    def acknowledge_report(self, trial: int, attempt: int, number: int) -> None:
        """Let the attempt continue after a report, because the report was judged.

        `number`: the number of the report. If the attempt must end because of the report, request_end() is called
        before. Called only for runs that are `judged`.
        """
        ...

    def set_knobs(self, trial: int, attempt: int, setting: Mapping[str, Any]) -> None:
        """Make the attempt use this knob setting from its next step on.

        Also called to answer each UsageMeasured. Unknown or ended attempts are ignored.
        """
        ...

    def give_notice(self, trial: int, attempt: int, seconds_left: float) -> None:
        """Tell the attempt that its machine will be preempted in this time.

        The attempt learns it within a step, by trial.time_left. Called again if the time changes. Unknown or ended
        attempts are ignored.
        """
        ...

    def kill(self, trial: int, attempt: int) -> None:
        """End the attempt now.

        Unknown or ended attempts are ignored.
        """
        ...

    def wait(self, timeout: float | None) -> list[Event]:
        """Wait for new events and return them.

        Returns an empty list after `timeout` seconds or a wake(). A `timeout` of None waits without a limit. The
        driver records the events before it calls wait() again, or start().
        """
        ...

    def wake(self) -> None:
        """Make a wait() in progress, or the next one, return.

        Safe from signal handlers and other threads.
        """
        ...

    def machine_lost(self, machine: str) -> list[Event]:
        """End all attempts on a machine that was lost or released.

        Returns their last events. Most of these attempts end with Lost.
        """
        ...

    def status(self) -> list[WorkerStatus]:
        """Return the present state of each worker."""
        ...

    def close(self) -> None:
        """End all processes that the engine has started, and their descendants.

        May be called twice.
        """
        ...
