"""States of a trial for benchmarks of checkpoints, and a trial that saves them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from thriftune.state.events import CheckpointSaved, Event, Reported, Warned
from thriftune.training.run import Run
from thriftune.training.trial import Trial

FILES = 20
"""The number of files of a state, all of one size. Two of them are 10 %."""


class State:
    """Files of random bytes in memory."""

    def __init__(self, megabytes: int) -> None:
        self.size = megabytes * 10**6
        self._files = [os.urandom(self.size // FILES) for _ in range(FILES)]

    def change(self, files: int) -> None:
        """Replace the content of this many files."""
        for number in range(files):
            self._files[number] = os.urandom(self.size // FILES)

    def write(self, folder: Path) -> None:
        """Write all files."""
        for number, data in enumerate(self._files):
            (folder / f"{number:02}").write_bytes(data)

    def check(self, folder: Path) -> None:
        """Raise AssertionError unless the folder has this state."""
        for number, data in enumerate(self._files):
            assert (folder / f"{number:02}").read_bytes() == data, number


class Link:
    """A link to no driver. Keeps the events."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._lock = threading.Lock()
        self._number = 0

    def send(self, event: Event) -> int:
        with self._lock:
            self.events.append(event)
            self._number += isinstance(event, Reported)
        if isinstance(event, Warned):
            raise RuntimeError(event.message)
        return self._number

    def end_requested(self, after_report: int = 0, timeout_seconds: float = 0.0) -> bool:  # noqa: ARG002
        return False

    def seconds_left(self) -> float | None:
        return None

    @property
    def saved(self) -> list[CheckpointSaved]:
        return [event for event in self.events if isinstance(event, CheckpointSaved)]


class Attempt:
    """An attempt of a trial that saves states; `objects` as in Run."""

    def __init__(self, folder: Path, objects: str = "", saved: CheckpointSaved | None = None) -> None:
        self.link = Link()
        self.folder = folder
        attempt = 1 if saved is None else saved.attempt + 1
        checkpoints = [] if saved is None else [(saved.name, saved.step)]
        step = 0 if saved is None else saved.step
        run = Run(
            0, attempt, {}, step, ("loss",), None, 0, str(folder), 2,
            objects=objects, drive="00000000", checkpoints=checkpoints,
        )  # fmt: skip
        self.trial = Trial(run, self.link)

    def save(self, write: Callable[[Path], object]) -> tuple[float, float]:
        """Report and save; return the seconds until the report returns, and until the checkpoint counts."""
        started = time.perf_counter()
        self.trial.report(loss=1.0, save=write)
        blocked = time.perf_counter() - started
        self.trial.checkpoints.finish(600.0, lambda: None)
        return blocked, time.perf_counter() - started

    def end(self) -> None:
        self.trial.end(600.0)
