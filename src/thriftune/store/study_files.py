"""Where are a study's own files? In a folder of its own: what its workers run, say and save.

    owner             which study it belongs to
    function.pickle   the training function of a script
    run/              what the engine needs while it runs, and what workers said last
    trials/7/         of one trial: its checkpoints, what it printed, and a command's state

By default that folder is beside the store, and is looked for there. Both may be moved or copied together while no
study runs. The folder has the name of its study; for a moment after the study was renamed, the one it had before.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from thriftune.errors import StudyMismatch
from thriftune.state.spec import Spec
from thriftune.store.protocol import Store


@dataclass(frozen=True, slots=True)
class StudyFiles:
    folder: Path
    owner: str  # the study's id, which no other study has, whatever its name

    @classmethod
    def of(cls, spec: Spec, store: Store) -> StudyFiles:
        """Return the files of the study, where they are now."""
        home = Path(spec.storage) if spec.storage else store.folder
        files = cls(home / spec.name, spec.id)
        if spec.moved_from and not files._is_ours():
            before = cls(home / spec.moved_from, spec.id)
            return before if before._is_ours() else files
        return files

    def move(self, name: str) -> StudyFiles:
        """Give the folder the name of its study, if it is this study's and that name is free.

        Return the files where they are then. Called after the study was renamed, and again by its next driver, as
        the process that renamed it may have been killed before.
        """
        moved = StudyFiles(self.folder.with_name(name), self.owner)
        if self.folder.name == name or not self._is_ours():
            return self
        with suppress(OSError):  # another process was quicker, or a folder of that name is there
            self.folder.rename(moved.folder)
        return moved if moved._is_ours() else self

    @property
    def other_owner(self) -> str | None:
        """Return the id of the other study whose files are in the folder; None if there is none."""
        try:
            found = self._owner_file.read_text()
        except (OSError, UnicodeDecodeError):
            return None
        return found if found != self.owner else None

    @property
    def function(self) -> Path:
        return self.folder / "function.pickle"

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def has_trials(self) -> bool:
        return self._is_ours() and (self.folder / "trials").exists()

    @property
    def is_free(self) -> bool:
        """Return whether the folder may be replaced by this study's: it is empty, or holds this study's files."""
        return self._is_ours() or (self.folder.is_dir() and not any(self.folder.iterdir()))

    def claim(self) -> None:
        """Make the folder this study's own: no other study uses it, and no other user writes to it."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self.folder.stat()
        if found.st_uid == os.geteuid() and found.st_mode & 0o022:
            self.folder.chmod(found.st_mode & ~0o022 & 0o7777)
        if self._owner_file.exists():
            if not self._is_ours():
                raise StudyMismatch(
                    f"{self.folder} holds the files of another study of the same name; "
                    "give this one another name or storage folder, or remove that folder if nobody needs it"
                )
            return
        unfinished = self._owner_file.with_suffix(".unfinished")
        unfinished.write_text(self.owner)
        unfinished.replace(self._owner_file)

    def remove(self) -> Path | None:
        """Remove the study's own files, and the folder if it is then empty. Return the folder if it stays.

        A person may have made the folder for something else, so files that thriftune did not make stay.
        Symbolic links are neither followed nor removed.
        """
        if self._is_ours() and not self.folder.is_symlink():
            trials = self.folder / "trials"
            for trial in [] if trials.is_symlink() else trials.glob("*"):
                if re.fullmatch(r"\d+", trial.name):
                    shutil.rmtree(trial, ignore_errors=True)
            shutil.rmtree(self.run, ignore_errors=True)
            for path in (self.function, self.function.with_suffix(".unfinished"), self._owner_file):
                path.unlink(missing_ok=True)
            for empty in (trials, self.folder):
                with suppress(OSError):
                    empty.rmdir()
        return self.folder if os.path.lexists(self.folder) else None

    @property
    def _owner_file(self) -> Path:
        return self.folder / "owner"

    def _is_ours(self) -> bool:
        try:
            return self._owner_file.read_text() == self.owner
        except OSError:
            return False
