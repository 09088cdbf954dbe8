"""Send a study's code and local packages to machines that share no folder with the driver."""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

from thriftune.engines.project_code import python_version
from thriftune.errors import SettingError
from thriftune.launch.local_wheels import build_wheel
from thriftune.launch.package_needs import needed_packages
from thriftune.launch.packages import imported_modules, modules_left_behind, notebook_modules
from thriftune.launch.project_archive import pack_project, upload_project
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import ObjectMissing, ObjectStore
from thriftune.state.spec import Target
from thriftune.version import __version__

Say = Callable[[str], object]

_DESCRIPTION_KEY = "code.json"
"""The key of the description of a study's code, below the study's URL."""

_MOST_SHOWN = 5
"""How many modules a warning names."""


def send_code(
    target: Target, patterns: Sequence[str] | None, storage: str, study: str, store: Path, say: Say
) -> Mapping[str, Any]:
    """Upload the project and local packages, and return what machines need to fetch them, as JSON.

    Called before anything of a study starts. The description is stored with the study. If the project is not on
    this machine, because another machine resumes the study, the stored one is returned.

    Raises SettingError if the project cannot be sent, if a local package cannot be built, or if the version of a
    package is not known.

    - `storage`, `study`: the URLs of the storage and of the study in it.
    - `patterns`, `store`, `say`: see pack_project().
    """
    described = open_objects(study)
    folder = Path(target.project or target.folder)
    if not folder.is_dir():
        try:
            stored: Mapping[str, Any] = json.loads(described.get(_DESCRIPTION_KEY))
        except ObjectMissing:
            raise SettingError(
                f"the folder {folder} with the code of the study is not on this machine, and no copy of it is in "
                f"{storage}; resume the study on a machine that has the folder"
            ) from None
        say(f"the folder {folder} is not on this machine; trials use the code that was stored with the study")
        return stored
    archive = pack_project(target, patterns, store, say)
    modules = imported_modules(archive.entries, archive.folder)
    if target.kind == "pickled":
        if not hasattr(sys.modules["__main__"], "__file__"):  # a notebook: its imports are in none of the files
            modules |= notebook_modules()
        if left := modules_left_behind(archive.root, archive.entries):
            say(_left_behind(left, archive.root))
    packages = needed_packages(modules, archive.root, archive.paths)
    objects = open_objects(storage)
    wheels = _upload_wheels(objects, packages.local)
    upload_project(objects, archive)
    description = {
        "url": storage,
        "hash": archive.hash,
        "folder": archive.folder,
        "paths": archive.paths,
        "python": python_version(),
        "thriftune": __version__,
        "versions": packages.versions,
        "packages": {name: asdict(package) for name, package in packages.pinned.items()},
        "wheels": wheels,
    }
    described.put(_DESCRIPTION_KEY, json.dumps(description).encode())
    return description


def _left_behind(modules: Mapping[str, Path], root: Path) -> str:
    shown = ", ".join(f"{name} ({path})" for name, path in sorted(modules.items())[:_MOST_SHOWN])
    rest = f" and {len(modules) - _MOST_SHOWN} others" if len(modules) > _MOST_SHOWN else ""
    return (
        f"modules that you have imported are not sent to other machines: {shown}{rest}; if trials need them, put "
        f"them into the project in {root}, where git must not ignore them, or install them as packages"
    )


def _upload_wheels(objects: ObjectStore, packages: Iterable[Distribution]) -> list[str]:
    """Upload the wheels of local packages unless they are there. Return their keys."""
    keys = []
    with tempfile.TemporaryDirectory(prefix="thriftune-") as folder:
        wheels = [build_wheel(package, Path(folder)) for package in packages]  # all, before anything is uploaded
        for wheel in wheels:
            data = wheel.read_bytes()
            key = f"wheels/{hashlib.sha256(data).hexdigest()}/{wheel.name}"
            if objects.info(key) is None:
                objects.create(key, data)
            keys.append(key)
    return keys
