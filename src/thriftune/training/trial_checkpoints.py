"""The protocol by which a live trial saves and restores its state, in a folder or in an object store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from thriftune.state.events import Event, Reported

Share = Callable[[str, Any], Any]
"""Gives all workers of a gang the value of worker 0; see Gang.share(). Without a gang, it returns its argument."""


class Restored(NamedTuple):
    """A checkpoint that was found; step 0 and no folder if there is none.

    The other attributes are as in Manifest.
    """

    step: int = 0
    folder: Path | None = None
    partial: bool = False
    command_state: bool = False
    first_step: int | None = None


class TrialCheckpoints(Protocol):
    """The checkpoints of one attempt.

    The trial calls save() of one thread at a time, and the other methods from any thread and signal handler.
    """

    def save(self, step: int, write: Callable[[Path], object], *, partial: bool = False) -> bool:
        """Save a state by `write(folder)`; return whether the checkpoint counts already.

        If not, it counts some time after submit(), and CheckpointSaved says so. Raises DiskFullError, and what
        `write` raises.
        """

    def submit(self) -> None:
        """Let the state that was saved last count, since its report has been sent. Does not wait."""

    def reported(self, report: Reported, number: int) -> None:
        """Note a report that has been sent with this number. Submits the state of its step."""

    def find(self, share: Share) -> Restored:
        """Return the newest intact checkpoint from which this attempt may resume.

        All workers of a gang get the one that worker 0 finds. Damaged ones are passed over, with a warning.
        """

    def seconds_needed(self) -> float | None:
        """Return how long it takes until a state of the last size is safe; None if that is not known."""

    def finish(self, seconds: float, time_left: Callable[[], float | None]) -> None:
        """Wait until all submitted states count, at most for this time or the time left of the machine."""

    def close(self) -> None:
        """End all threads and remove local files; called last."""


Send = Callable[[Event], object]
"""Sends an event of the attempt. Any thread may call it."""
