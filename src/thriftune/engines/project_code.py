"""Fetch the code of a study on a machine that does not share a folder with the driver.

The driver has packed the files of the user's project and the local packages that it imports, and has uploaded them
(launch/send_code.py). Each machine fetches them once into its cache (node_cache.py): ~/.cache/thriftune/code/HASH
has the files of an archive or of a wheel. Other packages that it lacks are installed (install_packages.py).
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from thriftune.common.user_cache import user_cache
from thriftune.engines.code_archive import EXECUTABLE, LINK, ArchiveError, Entry, content_hash, unpack_wheel
from thriftune.engines.code_archive import unpack as read_archive
from thriftune.engines.install_packages import install_packages
from thriftune.engines.node_cache import cached_folder
from thriftune.engines.node_packages import compare_packages
from thriftune.errors import SettingError
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import ObjectMissing, ObjectStore
from thriftune.version import __version__

_START_AGAIN = "delete this object, and start the study again: its driver uploads the code if it is missing"


class ProjectFolders(NamedTuple):
    """The user's project on this machine.

    - `root`: the folder with all its files.
    - `working_folder`: the folder in which trials run.
    - `paths`: the folders for sys.path, in the order of the driver's, and then those of local packages.
    - `packages`: the folders of local packages.
    - `installed`: the folder with packages that this machine lacks; empty if it lacks none. It must be last on
      sys.path.
    - `remarks`: what was installed, and how the machine's packages differ from the driver's.
    """

    root: Path
    working_folder: Path
    paths: list[str]
    packages: list[str]
    installed: str
    remarks: list[str]


def archive_key(name: str) -> str:
    """Return the key of an archive below the storage URL. `name`: its hash."""
    return f"code/{name}.zip"


def unpack(objects_url: str, archive: Mapping[str, Any]) -> ProjectFolders:
    """Fetch a project unless this machine has it, and return its folders.

    Several processes may call it at the same time. Raises SettingError if this machine has another Python or
    thriftune, if something is missing or damaged, or if a package cannot be installed. Raises ObjectStoreError if
    it cannot be fetched.

    - `objects_url`: the storage URL, below which the archives are.
    - `archive`: as send_code() returns it.
    """
    _check_versions(archive)
    cache = user_cache("code")
    folder = _fetched(cache, archive["hash"], lambda: _download(open_objects(objects_url), archive["hash"]))
    packages = [str(_fetched_wheel(cache, objects_url, key)) for key in archive["wheels"]]
    working_folder = _below(folder, archive["folder"])
    working_folder.mkdir(parents=True, exist_ok=True)  # an archive has no empty folders
    paths = [str(_below(folder, path)) for path in archive["paths"]]
    compared = compare_packages(archive["versions"], archive.get("packages", {}))
    installed, remark = install_packages(compared.missing) if compared.missing else ("", "")
    remarks = [each for each in (remark, compared.remark) if each]
    return ProjectFolders(folder, working_folder, [*paths, *packages], packages, installed, remarks)


def _check_versions(archive: Mapping[str, Any]) -> None:
    """Raise SettingError if the code cannot run here."""
    here, there = python_version(), archive["python"]
    if here != there:
        raise SettingError(
            f"{socket.gethostname()} has Python {here}, and the study was started with Python {there}; functions "
            f"cannot be sent from one to the other: install Python {there} there"
        )
    if archive["thriftune"] != __version__:
        raise SettingError(
            f"{socket.gethostname()} has thriftune {__version__}, and the study was started with "
            f"{archive['thriftune']}; install the same version there"
        )


def python_version() -> str:
    """Return the version of Python without its last part, such as "3.11"."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def enter_project(target: dict[str, Any]) -> list[str]:
    """Make this process, and those that it starts, run a study's code from its archive.

    `target`: see worker.load_target(). Its "archive" is removed, and its "folder" becomes the one on this machine.
    Does nothing without an archive. Returns remarks about the packages of this machine. Raises as unpack() does.
    """
    archive = target.pop("archive", None)
    if archive is None:
        return []
    project = unpack(archive["url"], archive)
    sys.path[:0] = project.paths
    target["folder"] = str(project.working_folder)
    if project.installed:
        sys.path.append(project.installed)
    given = os.environ.get("PYTHONPATH")
    path = [*project.packages, *([given] if given else []), *([project.installed] if project.installed else [])]
    if path:  # for commands
        os.environ["PYTHONPATH"] = os.pathsep.join(path)
    return project.remarks


def _below(folder: Path, relative: str) -> Path:
    """Return a folder of the project. Raises SettingError for a path that leaves it."""
    if Path(relative).is_absolute() or ".." in Path(relative).parts:
        raise SettingError(f"{relative!r} is not a folder of the project")
    return folder / relative


def _fetched(cache: Path, name: str, download: Callable[[], Mapping[str, Entry]]) -> Path:
    """Return a folder of the cache. If it is missing, it is created with the files that `download` returns.

    `name`: the hash of its files.
    """
    if not re.fullmatch("[0-9a-f]{64}", name):
        raise SettingError(f"{name!r} is not the hash of an archive")
    return cached_folder(cache, name, lambda folder, _: _write(folder, download()))


def _download(objects: ObjectStore, name: str) -> dict[str, Entry]:
    """Return the entries of an archive, after comparing them with its hash."""
    key = archive_key(name)
    try:
        entries = read_archive(objects.get(key))
    except ObjectMissing:
        raise SettingError(
            f"the code of the study, {key} below {objects.url}, does not exist; {_START_AGAIN}"
        ) from None
    except ArchiveError as error:
        raise SettingError(f"the code of the study, {key} below {objects.url}, {error}; {_START_AGAIN}") from None
    if content_hash(entries) != name:
        raise SettingError(
            f"the code of the study, {key} below {objects.url}, is not what was uploaded; {_START_AGAIN}"
        )
    return entries


def _fetched_wheel(cache: Path, objects_url: str, key: str) -> Path:
    """Return the folder with the files of a wheel. They are fetched if they are missing."""
    match = re.fullmatch(r"wheels/([0-9a-f]{64})/[^/]+\.whl", key)
    if match is None:
        raise SettingError(f"{key!r} is not the key of a wheel")
    return _fetched(cache, match[1], lambda: _download_wheel(open_objects(objects_url), key, match[1]))


def _download_wheel(objects: ObjectStore, key: str, digest: str) -> dict[str, Entry]:
    """Return the files of a wheel, after comparing it with its hash."""
    try:
        data = objects.get(key)
    except ObjectMissing:
        raise SettingError(f"the package {key} below {objects.url} does not exist; {_START_AGAIN}") from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise SettingError(f"the package {key} below {objects.url} is not what was uploaded; {_START_AGAIN}")
    try:
        return unpack_wheel(data)
    except ArchiveError as error:
        raise SettingError(f"the package {key} below {objects.url} {error}; install it on the machines") from None


def _write(folder: Path, entries: Mapping[str, Entry]) -> None:
    """Write these files into an empty folder."""
    links = []
    for name, (mode, content) in entries.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if mode == LINK:
            links.append((path, content))
        else:
            path.write_bytes(content)
            path.chmod(0o755 if mode == EXECUTABLE else 0o644)
    for path, content in links:  # at the end, so that no file is written through a link
        path.symlink_to(content.decode())
