"""Converts the step numbers of a trial's command, which may count from 0 or from 1.

A command counts from 0 if the first step that it reports is 0. The first reported step decides this for all
attempts and processes of the trial; it is stored in the trial's folder.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from thriftune.errors import SettingError


class StepNumbers:
    """Converts the step numbers that a command reports to those of the trial, which count from 1."""

    def __init__(self, trial_folder: str | Path) -> None:
        self._file = Path(trial_folder) / "first-step"
        self._first: int | None = None  # 0 or 1; None if this process does not know it
        self._stored = False  # whether the file has it

    @property
    def from_zero(self) -> bool:
        """Whether the command counts from 0, as far as is known now."""
        self._read()
        return self._first == 0

    @property
    def first(self) -> int | None:
        """The number from which the command counts, 0 or 1; None if that is not known now."""
        self._read()
        return self._first

    def restore(self, first: int | None) -> None:
        """Store what a checkpoint of another machine says, unless it is known here."""
        if first is not None:
            self._decide(first)

    def step_of(self, reported: int) -> int:
        """Return the trial's step for a reported one. Raises SettingError if it is too low."""
        self._decide(0 if reported == 0 else 1)
        step = reported + 1 if self._first == 0 else reported
        if step < 1:
            order = " came after another one" if reported == 0 else ""
            raise SettingError(f"step {reported}{order}: steps count from 1, or from 0 if the first one is 0")
        return step

    def count_from_one(self) -> None:
        """Decide that steps count from 1, after a report without a step number."""
        self._decide(1)

    def _decide(self, first: int) -> None:
        """Store the first step number, if it is not decided yet."""
        self._read()
        if self._first is None:
            self._first = first
        if self._stored:
            return
        try:
            self._write(self._first)
            self._stored = True
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            # The disk is full. The next step tries again; reports wait for room as well.

    def _read(self) -> None:
        if self._first is None and self._file.exists():
            self._first = int(self._file.read_text())
            self._stored = True

    def _write(self, first: int) -> None:
        """Write the file atomically."""
        unfinished = self._file.with_name(f"first-step-{os.getpid()}")
        with unfinished.open("w") as file:
            file.write(str(first))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self._file)
