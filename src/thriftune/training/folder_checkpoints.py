"""Saves and restores a live trial's state in its local or shared folder. A save is on disk when it returns."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from thriftune.common.clock import wall_time
from thriftune.errors import SettingError
from thriftune.state.events import CheckpointSaved, Reported, Warned
from thriftune.training.checkpoint_files import Checkpoints
from thriftune.training.checkpoint_objects import checkpoint_name
from thriftune.training.run import Run
from thriftune.training.saved_steps import SavedSteps
from thriftune.training.trial_checkpoints import Restored, Send, Share


class FolderCheckpoints:
    """The TrialCheckpoints of a trial whose folder all its machines share."""

    def __init__(self, run: Run, send: Send) -> None:
        self._run = run
        self._send = send
        self._checkpoints = Checkpoints(Path(run.folder) / "checkpoints", keep=run.keep)
        self._saved_steps = SavedSteps(run)
        # Step and attempt of the checkpoint from which the next attempt would resume.
        self._resumable = (run.resume_step, run.attempt - 1)
        self._seconds: float | None = None  # that the last save took

    def save(self, step: int, write: Callable[[Path], object], *, partial: bool = False) -> bool:
        started = time.monotonic()
        # These must not be replaced by checkpoints of killed workers, which saved but did not report them.
        also_keep = [self._resumable, *self._saved_steps.to_keep(step)]
        state = self._checkpoints.save(
            step, write, attempt=self._run.attempt, partial=partial, also_keep=also_keep
        )
        self._seconds = time.monotonic() - started
        if partial:
            # A random number makes the name unique.
            name = checkpoint_name(self._run.attempt, self._run.drive, int.from_bytes(os.urandom(6)))
            size = sum(path.stat().st_size for path in state.rglob("*") if path.is_file())
            self._send(CheckpointSaved(wall_time(), self._run.trial, self._run.attempt, name, step, True, size))
        return True

    def submit(self) -> None:
        """Do nothing: a checkpoint counts once it is saved."""

    def reported(self, report: Reported, number: int) -> None:  # noqa: ARG002 (the number is for manifests)
        if report.saved:
            self._resumable = report.step, self._run.attempt
        self._saved_steps.reported(report.step, report.metrics, saved=report.saved)

    def find(self, share: Share) -> Restored:
        run = self._run
        if run.rank == 0:
            found = self._checkpoints.load(at_most=run.resume_step)
            for sentence in found.passed_over:
                self._send(Warned(wall_time(), run.trial, run.attempt, sentence))
            share("checkpoint", [found.step, found.partial])
            return Restored(found.step, found.folder, found.partial)
        step, partial = share("checkpoint", None)
        if not step and not partial:
            return Restored()
        found = self._checkpoints.load(at_most=step)
        if (found.step, found.partial) != (step, partial):
            raise SettingError(
                f"worker {run.rank} does not find the checkpoint of step {step} that worker 0 has found "
                f"in {self._checkpoints.folder}: the machines of a trial must share the folder of the study"
            )
        return Restored(found.step, found.folder, found.partial)

    def seconds_needed(self) -> float | None:
        return self._seconds

    def finish(self, seconds: float, time_left: Callable[[], float | None]) -> None:
        """Do nothing: no checkpoint waits."""

    def close(self) -> None:
        """Do nothing: the checkpoints stay in their folder."""
