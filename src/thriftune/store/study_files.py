"""Find, claim, rename and remove the folder with a study's files.

    owner             the id of the study that owns the folder
    function.pickle   the training function of a script
    run/              files of the engine while it runs, such as spool files
    trials/7/         the checkpoints and output of trial 7, and the state that a command saves

By default, the folder is in Store.folder, beside the store. While no study runs, the store and this folder may be
moved or copied together. The name of a study's folder is the name of the study. After a study was renamed, its
folder has the earlier name until move() is called.

With an object store, the checkpoints are below the study's URL there, which contains the study's id and not its
name. The local folder is then beside the store.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from thriftune.errors import StudyMismatch
from thriftune.object_store.urls import is_object_url, parse_object_url
from thriftune.state.spec import Spec
from thriftune.store.protocol import Store


@dataclass(frozen=True, slots=True)
class StudyFiles:
    """The files of one study.

    - `owner`: the unique id of the study.
    - `objects`: the study's URL in an object store; empty if it has none.
    """

    folder: Path
    owner: str
    objects: str = ""

    @classmethod
    def of(cls, spec: Spec, store: Store) -> StudyFiles:
        """Return the study's files, in the folder where they are now.

        The folder of a renamed study may still have its earlier name.
        """
        storage = storage_of(spec, store)
        objects = objects_of(storage, spec.id) if is_object_url(storage) else ""
        home = Path(storage) if storage and not objects else store.folder
        files = cls(home / spec.name, spec.id, objects)
        if spec.moved_from and not files.is_owned:
            earlier = cls(home / spec.moved_from, spec.id, objects)
            return earlier if earlier.is_owned else files
        return files

    def move(self, name: str) -> StudyFiles:
        """Rename the folder to `name`; return the files in their new folder.

        Returns the unchanged files if the study does not own the folder, or the name is not free. Called after the
        study was renamed. The next driver calls it again, because the process that renamed the
        study may have been killed before it renamed the folder.
        """
        moved = replace(self, folder=self.folder.with_name(name))
        if self.folder.name == name or not self.is_owned:
            return self
        with suppress(OSError):  # another process has renamed it, or a folder of that name exists
            self.folder.rename(moved.folder)
        return moved if moved.is_owned else self

    @property
    def other_owner(self) -> str | None:
        """Return the id of another study that owns the folder.

        Returns None if no other study does.
        """
        try:
            owner = self._owner_file.read_text()
        except (OSError, UnicodeDecodeError):
            return None
        return owner if owner != self.owner else None

    @property
    def function(self) -> Path:
        """Return the path of the pickled training function."""
        return self.folder / "function.pickle"

    @property
    def run(self) -> Path:
        """Return the folder of the engine's files."""
        return self.folder / "run"

    @property
    def has_trials(self) -> bool:
        """Return whether the study owns the folder and has files of trials there."""
        return self.is_owned and (self.folder / "trials").exists()

    @property
    def is_owned(self) -> bool:
        """Return whether the folder exists and belongs to this study."""
        try:
            return self._owner_file.read_text() == self.owner
        except OSError:
            return False

    @property
    def is_free(self) -> bool:
        """Return whether the study may use the folder.

        It may if it owns the folder, or if the folder is empty.
        """
        return self.is_owned or (self.folder.is_dir() and not any(self.folder.iterdir()))

    def claim(self) -> None:
        """Create the folder if needed, and make this study its owner.

        Also removes the permission of other users to write to it. Raises StudyMismatch if another study owns the
        folder.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = self.folder.stat()
        if status.st_uid == os.geteuid() and status.st_mode & 0o022:
            self.folder.chmod(status.st_mode & ~0o022 & 0o7777)
        if self._owner_file.exists():
            if not self.is_owned:
                raise StudyMismatch(
                    f"{self.folder} holds the files of another study of the same name; "
                    "give this one another name or storage folder, or remove that folder if nobody needs it"
                )
            return
        unfinished = self._owner_file.with_suffix(".unfinished")
        unfinished.write_text(self.owner)
        unfinished.replace(self._owner_file)

    def remove(self) -> Path | None:
        """Remove the study's files, and the folder if it is then empty.

        Returns the folder if it still exists, else None. Files that thriftune did not create stay, because a
        user may have created the folder for other purposes. Symbolic links are neither followed nor removed.
        """
        if self.is_owned and not self.folder.is_symlink():
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


def storage_of(spec: Spec, store: Store) -> str:
    """Return the folder or URL where a study keeps its checkpoints; empty: in a folder beside the store.

    A store that is itself in an object store keeps the checkpoints there, too.
    """
    return spec.storage or (store.url if is_object_url(store.url) else "")


def objects_of(storage: str, study_id: str) -> str:
    """Return the URL below which a study keeps its objects. `storage`: the URL of the study's setting."""
    return str(parse_object_url(storage).child("studies").child(study_id))
