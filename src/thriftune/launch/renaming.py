"""Rename a study: first in its store, then its folder.

The two cannot change at once. The store records the name of the old folder (Spec.moved_from), and the folder
records which study it belongs to. So after a kill between the two steps, the files are found, and the next process
that uses the study moves them.
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
    """Give the study and its folder another name.

    Raise StudyExists, StudyBusy, StudyNotFound or SettingError.
    """
    spec = load_spec(store, name)
    files = StudyFiles.of(spec, store)
    renamed = replace(spec, name=new, moved_from=files.folder.name)  # checks the name
    if new == name:
        raise SettingError(f"name: study {name!r} has that name already")
    folder = files.folder.with_name(new)
    taken = new != files.folder.name and os.path.lexists(folder) and not StudyFiles(folder, spec.id).is_free
    if taken and all(listed.name != new for listed in store.studies()):
        raise SettingError(f"name: the folder {folder} exists; give another name, or move that folder")
    store.rename(name, new, renamed.to_json())
    files.move(new)


def set_aside(store: Store, name: str) -> str:
    """Rename the study, so that another can have its name. Return its new name."""
    stem = f"-before-{datetime.datetime.now():%Y%m%d-%H%M}"
    stem = name[: _LONGEST_NAME - len(stem) - 4] + stem
    for number in range(1, 1000):
        new = stem if number == 1 else f"{stem}-{number}"
        with contextlib.suppress(StudyExists):
            if os.path.lexists(StudyFiles.of(load_spec(store, name), store).folder.with_name(new)):
                continue
            rename_study(store, name, new)
            return new
    raise StudyExists(
        f"study {name!r} cannot be renamed to {stem!r}: too many studies have such a name; delete some"
    )


def settle(store: Store, spec: Spec) -> StudyFiles:
    """Return the files of the study, after finishing renames that a kill has cut short.

    Moves this study's folder if the study was renamed, and the folder of a renamed study that has this name's
    folder. Called by the study's driver before it uses the folder.
    """
    files = StudyFiles.of(spec, store).move(spec.name)
    if (others := files.other_owner) is not None:
        for listed in store.studies():
            if listed.spec.get("id") == others and listed.name != spec.name:
                with contextlib.suppress(StudyBusy, StudyDamaged, StudyNotFound), store.drive(listed.name):
                    StudyFiles.of(load_spec(store, listed.name), store).move(listed.name)
    return files
