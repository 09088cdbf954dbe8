"""List, stop, rename and delete studies by their names."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path

from thriftune.common.command_hints import stop_hint
from thriftune.errors import SettingError, StudyBusy, StudyDamaged, StudyNotFound
from thriftune.launch.object_storage import delete_objects
from thriftune.launch.renaming import rename_study
from thriftune.loop.callbacks import in_callback
from thriftune.object_store.urls import is_object_url
from thriftune.results.loading import load_spec
from thriftune.results.saved_models import remove_fetched
from thriftune.results.summaries import StudySummary, summaries
from thriftune.store.opening import use_store
from thriftune.store.protocol import DriverInfo, Store
from thriftune.store.study_files import StudyFiles, objects_of, storage_of

_POLL_SECONDS = 0.1
"""Look this often whether a study has stopped."""

_SAY_SECONDS = 5.0
"""Tell the user this often that the study is still stopping."""


def studies(store: str | Path | Store | None = None) -> list[StudySummary]:
    """Return a summary of every study in the store, the newest first; none if the store does not exist."""
    try:
        with use_store(store, create=False) as opened:
            return summaries(opened)
    except StudyNotFound:
        return []


def stop(name: str, store: str | Path | Store | None = None, *, wait: bool = True) -> bool:
    """Stop a running study cleanly, wherever it runs, so that it can be resumed. Return whether it was running.

    Each trial ends after its next step. With `wait`, return once all have ended. A callback of tune() does not
    wait, as the study goes on only when the callback has returned.
    """
    with use_store(store, create=False) as opened:
        driver = request_stop(opened, name)
        if driver is not None and wait and not in_callback():
            wait_for_stop(opened, name, driver)
        return driver is not None


def rename(old: str, new: str, store: str | Path | Store | None = None) -> None:
    """Give a study and its folder another name. The study must not be running."""
    with use_store(store, create=False) as opened:
        rename_study(opened, old, new)


def delete(name: str, store: str | Path | Store | None = None) -> None:
    """Delete a study, its trials and their checkpoints. The study must not be running."""
    with use_store(store, create=False) as opened:
        if remaining := delete_study(opened, name):
            warnings.warn(f"study {name!r} is deleted; {remaining}", stacklevel=2)


def request_stop(store: Store, name: str) -> DriverInfo | None:
    """Ask the process that runs the study to stop it. Return that process; None if there is none."""
    if load_spec(store, name).target.kind == "outside":
        raise SettingError(f"study {name!r} runs in its user's own code, by ask and tell; end that instead")
    driver = store.driver(name)
    if driver is not None:
        store.request(name, "stop", time.time())
    return driver


def wait_for_stop(store: Store, name: str, driver: DriverInfo, say: Callable[[], None] = lambda: None) -> None:
    """Wait until `driver` no longer runs the study. Call `say` every few seconds until then."""
    called_at = float("-inf")
    while (now := store.driver(name)) is not None and now.since == driver.since:
        if time.monotonic() - called_at >= _SAY_SECONDS:
            called_at = time.monotonic()
            say()
        time.sleep(_POLL_SECONDS)


def check_idle(store: Store, name: str) -> None:
    """Raise StudyBusy if a process runs the study."""
    if (driver := store.driver(name)) is not None:
        raise StudyBusy(
            f"study {name!r} is being run by process {driver.pid} on {driver.host}; "
            f"stop it first: {stop_hint(name, store.url)}"
        )


def delete_study(store: Store, name: str) -> str:
    """Delete the study and its files. Return a sentence about what could not be deleted; empty if all was.

    Its objects in an object store go first. If they cannot be deleted, an ObjectStoreError is raised. The study
    then stays, so that this can be called again.
    """
    files: StudyFiles | None
    storage = ""
    try:
        spec = load_spec(store, name)
        files, storage = StudyFiles.of(spec, store), storage_of(spec, store)
    except StudyDamaged:
        files = None
    check_idle(store, name)
    # A store in an object store deletes all that is below the study's URL there.
    is_own = files is not None and is_object_url(store.url) and objects_of(store.url, files.owner) == files.objects
    if files is not None and files.objects and not is_own:
        with store.drive(name):  # no driver starts meanwhile
            delete_objects(store, name, files, storage)
    store.delete(name)
    if files is None:
        return f"its settings were damaged, so its files stay, by default in {store.folder / name}"
    remove_fetched(files.owner)
    left = files.remove()
    return f"{left} has links or files of others and stays" if left else ""
