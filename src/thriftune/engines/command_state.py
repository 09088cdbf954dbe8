"""Keeps the own folder of a command, THRIFTUNE_CHECKPOINT_DIR, in the object store of its study.

A command that saves by thriftune.report(save=) keeps its state there instead: its folder is then not uploaded.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from thriftune.common.clock import wall_time
from thriftune.state.events import DiskFull, Warned
from thriftune.training.checkpoint_files import DiskFullError
from thriftune.training.checkpoint_objects import attempt_prefix
from thriftune.training.object_checkpoints import ObjectCheckpoints
from thriftune.training.snapshots import write_state
from thriftune.training.step_numbers import StepNumbers
from thriftune.training.trial import Trial
from thriftune.training.trial_checkpoints import Restored

_COPIES = 3
"""How often to copy the folder at most, if the command writes to it meanwhile."""

Signature = dict[str, tuple[int, int, int]]
"""The size, time of modification and inode of each file, by its name."""


class CommandState:
    """The own folder of a trial's command."""

    def __init__(self, trial: Trial, checkpoints: ObjectCheckpoints, numbers: StepNumbers) -> None:
        """`checkpoints`: those of the trial. `numbers`: how the command counts its steps."""
        self._run = run = trial.run
        self._send = trial.relay
        self._folder = trial.folder / "state"
        self._checkpoints = checkpoints
        self._numbers = numbers
        # Holds the attempt that has used the folder last, with its drive.
        self._used_by = trial.folder / "state-attempt"
        self._uploaded: Signature = {}
        self._saved_at = time.monotonic()
        self._active = run.rank == 0  # whether the folder is to be uploaded

    def put_back(self, found: Restored) -> None:
        """Replace the folder by a checkpoint, unless the attempt before has left it on this machine.

        Called before the command starts. What a killed attempt has left here is at least as new as its checkpoint.
        """
        self._numbers.restore(found.first_step)
        if found.folder is not None:
            self._active = self._active and found.command_state
        with self._used_by.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # other workers of the trial may share the folder
            file.seek(0)
            is_current = self._is_current(file.read())
            if found.folder is not None and found.command_state and not is_current:
                shutil.rmtree(self._folder, ignore_errors=True)
                found.folder.rename(self._folder)
                self._uploaded = signature(self._folder)
            file.truncate(0)
            file.write(attempt_prefix(self._run.attempt, self._run.drive))

    def _is_current(self, used_by: str) -> bool:
        """Return whether the attempt before this one has used the folder last, or this one.

        An attempt of the same number may be that of a drive which had lost the study, and does not count. So one
        of another drive counts only if the log has its checkpoint.
        """
        run = self._run
        if used_by in (attempt_prefix(run.attempt - 1, run.drive), attempt_prefix(run.attempt, run.drive)):
            return True
        newest = run.checkpoints[0][0] if run.checkpoints else ""
        return used_by.startswith(f"{run.attempt - 1}-") and newest.startswith(used_by)

    def leave_to_saves(self) -> None:
        """Upload the folder no more. Called when the command saves by thriftune.report(save=)."""
        self._active = False

    def reported(self, step: int) -> None:
        """Upload the folder after a report of this step, if it has changed and a checkpoint is due."""
        every = self._run.save_every
        if every is not None and time.monotonic() - self._saved_at >= every:
            self.save(step)

    def save(self, step: int, *, partial: bool = False) -> None:
        """Upload the folder if it has changed. Gives up if the command keeps changing it while it is copied."""
        if not self._active:
            return
        for _ in range(_COPIES):
            before = signature(self._folder)
            if not before or before == self._uploaded:
                return
            copy = self._checkpoints.new_folder()
            try:
                write_state(copy, step, lambda copy, names=before: copy_files(self._folder, copy, names))  # type: ignore[misc]
            except FileNotFoundError:  # the command has removed a file
                continue
            except DiskFullError as error:
                self._send(DiskFull(wall_time(), self._run.trial, self._run.attempt, str(error)))
                return
            except OSError as error:
                why = f"the command's folder {self._folder} cannot be uploaded: {error}"
                self._send(Warned(wall_time(), self._run.trial, self._run.attempt, why))
                return
            if signature(self._folder) == before:
                self._checkpoints.take(
                    copy, step, partial=partial, command_state=True, first_step=self._numbers.first
                )
                self._checkpoints.submit()
                self._uploaded, self._saved_at = before, time.monotonic()
                return
            shutil.rmtree(copy, ignore_errors=True)


def signature(folder: Path) -> Signature:
    """Return what shows whether a file of the folder has changed."""
    return {name: (status.st_size, status.st_mtime_ns, status.st_ino) for name, status in _files(folder)}


def _files(folder: Path, prefix: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Yield the name and status of each plain file, and of each link to one. Links to folders are skipped."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path), f"{prefix}{entry.name}/")
            elif entry.is_file():
                with contextlib.suppress(FileNotFoundError):
                    yield prefix + entry.name, entry.stat()


def copy_files(folder: Path, to: Path, names: Signature) -> None:
    """Copy these files of a folder into a new one."""
    for name in names:
        target = to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / name, target)
