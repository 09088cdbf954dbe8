"""How does a study get another name? In its store first, in one step; then its folder follows.

The store keeps the name of the folder that the files were in before (Spec.moved_from), and the folder says which
study it belongs to. So files are found wherever the two steps are cut apart, and whoever comes next finishes them.
"""

from __future__ import annotations

import contextlib
import datetime
import os
from dataclasses import replace

from thriftune.errors import SettingError, StudyBusy, StudyDamaged, StudyExists, StudyNotFound
from thriftune.results.loading import load_spec
from thriftune.state.spec import Spec
from thriftune.store.protocol import Store
from thriftune.store.study_files import StudyFiles

_LONGEST_NAME = 100


def rename_study(store: Store, name: str, new: str) -> None:
    """Give the study and its folder another name. Raises StudyExists, StudyBusy, StudyNotFound or SettingError."""
    spec = load_spec(store, name)
    files = StudyFiles.of(spec, store)
    renamed = replace(spec, name=new, moved_from=files.folder.name)  # checks the name
    if new == name:
        raise SettingError(f"name: study {name!r} has that name already")
    there = files.folder.with_name(new)
    taken = new != files.folder.name and os.path.lexists(there) and not StudyFiles(there, spec.id).is_free
    if taken and all(listed.name != new for listed in store.studies()):
        raise SettingError(f"name: there is a folder {there} already; give another name, or move that folder")
    store.rename(name, new, renamed.to_json())
    files.move(new)


def set_aside(store: Store, name: str) -> str:
    """Rename the study, so that another can have its name, and return the name it has now."""
    stem = f"-before-{datetime.datetime.now():%Y%m%d-%H%M}"
    stem = name[: _LONGEST_NAME - len(stem) - 4] + stem
    for number in range(1, 1000):
        new = stem if number == 1 else f"{stem}-{number}"
        with contextlib.suppress(StudyExists):
            if os.path.lexists(StudyFiles.of(load_spec(store, name), store).folder.with_name(new)):
                continue
            rename_study(store, name, new)
            return new
    raise StudyExists(f"study {name!r} cannot be kept as {stem!r}: too many studies have such a name; delete some")


def settle(store: Store, spec: Spec) -> StudyFiles:
    """Return the files of the study, in their place.

    Finishes what a killed process has left undone: the move of this study's folder after it was renamed, and that
    of an earlier study of this name. Called by the study's driver, before it uses the folder.
    """
    files = StudyFiles.of(spec, store).move(spec.name)
    if (others := files.other_owner) is not None:
        for listed in store.studies():
            if listed.spec.get("id") == others and listed.name != spec.name:
                with contextlib.suppress(StudyBusy, StudyDamaged, StudyNotFound), store.drive(listed.name):
                    StudyFiles.of(load_spec(store, listed.name), store).move(listed.name)
    return files
