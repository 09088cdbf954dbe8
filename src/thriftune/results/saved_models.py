"""Find the saved models of a trial: in its folder, or in an object store, from which they are fetched.

A fetched checkpoint stays in a cache folder, with checksums. The cache is in the trial's folder if the study owns
that, else in the user's cache of this machine.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from thriftune.common.user_cache import cache_folder
from thriftune.errors import CheckpointError
from thriftune.loop.kept_checkpoints import checkpoint_of
from thriftune.object_store.protocol import ObjectMissing, ObjectStore
from thriftune.state.trial_record import StoredCheckpoint, TrialRecord
from thriftune.training.checkpoint_files import Checkpoints, DiskFullError
from thriftune.training.checkpoint_objects import Manifest, manifest_key
from thriftune.training.stored_checkpoints import StoredCheckpoints

MISSING = "not in the object store any more"
"""The flaw of a model whose checkpoint is in the log, but not in the object store. The study itself deletes those
that are neither the newest nor the best of their trial."""

_FETCHED = "fetched"  # the cache in a trial's folder


class SavedModel(NamedTuple):
    """A saved model.

    - `folder`: its folder. Without verification, it may not exist yet: it is fetched when it is verified.
    - `where`: the folder if it exists, else its place in the object store.
    - `flaw`: what is wrong with it; None if nothing is.
    """

    folder: Path
    where: str
    flaw: str | None = None


class SavedModels(Protocol):
    """The saved models of one trial."""

    def find(self, step: int, attempt: int, *, verify: bool) -> SavedModel | None:
        """Return the model that was saved at a step; None if there is none.

        - `attempt`: the attempt that reported the step last.
        - `verify`: read every byte, and fetch it if necessary.
        """

    def of_command(self, *, verify: bool) -> SavedModel | None:
        """Return what a command has written without a report; None if there is nothing."""


class ModelsInFolder:
    """The models in a trial's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._checkpoints = Checkpoints(folder / "checkpoints")
        self._steps = set(self._checkpoints.steps())  # few of the saved steps, because old ones are deleted

    def find(self, step: int, attempt: int, *, verify: bool) -> SavedModel | None:
        if step not in self._steps:
            return None
        folder, flaw = self._checkpoints.find(step, attempt, verify=verify)
        return None if folder is None else SavedModel(folder, str(folder), flaw)

    def of_command(self, *, verify: bool) -> SavedModel | None:  # noqa: ARG002 (its files have no checksums)
        state = self._folder / "state"
        has_files = any(path.is_file() for path in state.rglob("*"))
        return SavedModel(state, str(state)) if has_files else None


class ModelsInObjectStore:
    """The models of a trial in an object store.

    The log has the names of its checkpoints, so that nothing is asked of the store until a model is verified.
    """

    def __init__(
        self, trial: TrialRecord, url: str, open_store: Callable[[str], ObjectStore], cache: Path
    ) -> None:
        """`url`: of the study. `cache`: the folder for this trial's fetched checkpoints."""
        self._trial = trial
        self._url = url
        self._open_store = open_store
        self._cache = cache

    def find(self, step: int, attempt: int, *, verify: bool) -> SavedModel | None:
        stored = checkpoint_of(self._trial, step, attempt)
        return None if stored is None else self._model(stored, verify=verify)

    def of_command(self, *, verify: bool) -> SavedModel | None:
        partial = next((each for each in reversed(self._trial.checkpoints) if each.partial), None)
        if partial is None or not verify:  # only the manifest tells who has written the files
            return None
        return self._model(partial, verify=True, of_command=True)

    def _model(self, stored: StoredCheckpoint, *, verify: bool, of_command: bool = False) -> SavedModel | None:
        """Return a model. With `of_command`, return None if no command has written it."""
        checkpoints = Checkpoints(self._cache / stored.name.replace("/", "-"))
        folder, flaw = checkpoints.find(stored.step, stored.attempt, verify=verify)
        if folder is not None and flaw is None:
            return SavedModel(folder, str(folder))
        if not verify:
            where = f"{self._url.partition('?')[0]}/{manifest_key(self._trial.id, stored.name)}"
            return SavedModel(checkpoints.folder, where)
        in_store = StoredCheckpoints(self._open_store(self._url), self._trial.id)
        try:
            manifest = in_store.manifest(stored.name)
            if of_command and not manifest.command_state:
                return None
            folder = self._fetch(in_store, manifest, checkpoints.folder)
        except ObjectMissing:
            return SavedModel(checkpoints.folder, "", MISSING)
        except DiskFullError:
            raise
        except CheckpointError as error:
            return SavedModel(checkpoints.folder, "", str(error))
        return SavedModel(folder, str(folder))

    def _fetch(self, in_store: StoredCheckpoints, manifest: Manifest, folder: Path) -> Path:
        """Fetch a checkpoint into the cache, and return the folder of its state."""

        def write(state: Path) -> None:
            state.rmdir()  # fetch() creates it once it is complete
            in_store.fetch(manifest, state)

        unfinished = folder.with_name(f".unfinished-{os.urandom(6).hex()}")
        try:
            Checkpoints(unfinished).save(manifest.step, write, attempt=manifest.attempt)
            shutil.rmtree(folder, ignore_errors=True)  # a damaged one
            with contextlib.suppress(OSError):  # another process has fetched it just now
                unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        fetched, flaw = Checkpoints(folder).find(manifest.step, manifest.attempt)
        if fetched is None or flaw is not None:
            raise CheckpointError(f"{folder}: the fetched checkpoint is damaged: {flaw or 'it was removed'}")
        return fetched


def fetched_folder(trial_folder: Path, study_id: str, *, owned: bool) -> Path:
    """Return the folder for a trial's fetched checkpoints. `owned`: the study owns the trial's folder."""
    return trial_folder / _FETCHED if owned else _in_user_cache(study_id) / trial_folder.name


def remove_fetched(study_id: str) -> None:
    """Remove the fetched checkpoints of a study from the user's cache. Called when it is deleted."""
    if study_id:
        shutil.rmtree(_in_user_cache(study_id), ignore_errors=True)


def _in_user_cache(study_id: str) -> Path:
    return cache_folder() / "checkpoints" / study_id
