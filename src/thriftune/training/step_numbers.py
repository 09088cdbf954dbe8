"""Tells how a trial's command numbers its steps: from 1, or from 0 where the first step it tells is 0.

The first told step decides for the trial, in all its attempts and processes. It is kept in the trial's folder.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from thriftune.errors import SettingError


class StepNumbers:
    """Turns the step numbers that a command tells into the trial's, which count from 1."""

    def __init__(self, trial_folder: str | Path) -> None:
        self._file = Path(trial_folder) / "first-step"
        self._first: int | None = None  # 0 or 1; None: not known to this process
        self._kept = False  # the file has it

    @property
    def from_zero(self) -> bool:
        """Whether the command counts from 0, as far as it has told."""
        self._read()
        return self._first == 0

    def step_of(self, told: int) -> int:
        """Return the trial's step for one that the command has told. Raise SettingError if it is too low."""
        self._settle(0 if told == 0 else 1)
        step = told + 1 if self._first == 0 else told
        if step < 1:
            came = " came after another one" if told == 0 else ""
            raise SettingError(f"step {told}{came}: steps count from 1, or from 0 if the first one is 0")
        return step

    def counted(self) -> None:
        """Take note that a step was told without a number: the next ones count from 1."""
        self._settle(1)

    def _settle(self, first: int) -> None:
        """Keep where the steps count from, if that is not known yet."""
        self._read()
        if self._first is None:
            self._first = first
        if self._kept:
            return
        try:
            self._write(self._first)
            self._kept = True
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            # There is no room. The next step tries again; until there is room, reports wait, too.

    def _read(self) -> None:
        if self._first is None and self._file.exists():
            self._first = int(self._file.read_text())
            self._kept = True

    def _write(self, first: int) -> None:
        """Make the file, which is there whole or not at all."""
        unfinished = self._file.with_name(f"first-step-{os.getpid()}")
        with unfinished.open("w") as file:
            file.write(str(first))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self._file)
