"""Fetch the code of a study on a machine that does not share a folder with the driver.

    ~/.cache/thriftune/code/HASH/          the files of an archive or of a wheel
    ~/.cache/thriftune/code/HASH.used      locked by each process that uses the files; keeps them in the cache
    ~/.cache/thriftune/code/HASH.lock      locked by the process that creates the folder

The driver has packed the files of the user's project and the local packages that it imports, and has uploaded them
(launch/send_code.py). Each machine fetches them once. All its workers, also those of other studies, use the same
folders. Other packages must be installed on the machine; their versions are compared.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from thriftune.common.user_cache import user_cache
from thriftune.engines.code_archive import EXECUTABLE, LINK, ArchiveError, Entry, content_hash, unpack_wheel
from thriftune.engines.code_archive import unpack as read_archive
from thriftune.errors import SettingError
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import ObjectMissing, ObjectStore
from thriftune.version import __version__

_UNUSED_SECONDS = 14 * 86_400.0
"""Code that no process has used for this long is removed from the cache."""

_MOST_SHOWN = 5
"""How many differing packages a remark names."""

_START_AGAIN = "delete this object, and start the study again: its driver uploads the code if it is missing"

_used_locks: dict[Path, int] = {}
"""The descriptors of the locks on code that this process uses, by path."""


class ProjectFolders(NamedTuple):
    """The user's project on this machine.

    - `root`: the folder with all its files.
    - `working_folder`: the folder in which trials run.
    - `paths`: the folders for sys.path, in the order of the driver's, and then those of local packages.
    - `packages`: the folders of local packages.
    - `remark`: how installed packages differ from the driver's; empty if they do not.
    """

    root: Path
    working_folder: Path
    paths: list[str]
    packages: list[str]
    remark: str


def archive_key(name: str) -> str:
    """Return the key of an archive below the storage URL. `name`: its hash."""
    return f"code/{name}.zip"


def unpack(objects_url: str, archive: Mapping[str, Any]) -> ProjectFolders:
    """Fetch a project unless this machine has it, and return its folders.

    Several processes may call it at the same time. Raises SettingError if this machine has another Python or
    thriftune, or if something is missing or damaged. Raises ObjectStoreError if it cannot be fetched.

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
    return ProjectFolders(folder, working_folder, [*paths, *packages], packages, _differences(archive["versions"]))


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


def _differences(versions: Mapping[str, str]) -> str:
    """Return a sentence that tells which packages are missing here or have other versions."""
    found = []
    for name, version in versions.items():
        try:
            here = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            here = "missing"
        if here != version:
            found.append(f"{name} is {here} there and {version} here")
    if not found:
        return ""
    rest = f", and {len(found) - _MOST_SHOWN} others differ" if len(found) > _MOST_SHOWN else ""
    return (
        f"a machine has other packages than the one that started the study: {', '.join(found[:_MOST_SHOWN])}{rest}"
    )


def enter_project(target: dict[str, Any]) -> str:
    """Make this process, and those that it starts, run a study's code from its archive.

    `target`: see worker.load_target(). Its "archive" is removed, and its "folder" becomes the one on this machine.
    Does nothing without an archive. Returns how installed packages differ from the driver's; empty if they do not.
    Raises as unpack() does.
    """
    archive = target.pop("archive", None)
    if archive is None:
        return ""
    project = unpack(archive["url"], archive)
    sys.path[:0] = project.paths
    target["folder"] = str(project.working_folder)
    if project.packages:  # for commands
        given = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([*project.packages, *([given] if given else [])])
    return project.remark


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
    folder = cache / name
    used = folder.with_suffix(".used")
    if used not in _used_locks:
        descriptor = _lock(used, fcntl.LOCK_SH)
    else:
        descriptor = _used_locks[used]
    try:
        if not folder.exists():  # also if it was removed by hand
            fetching = _lock(folder.with_suffix(".lock"), fcntl.LOCK_EX)
            try:
                if not folder.exists():
                    _remove_unfinished(folder)
                    _write(folder, download())
            finally:
                os.close(fetching)
        os.utime(used)
    except BaseException:
        _used_locks.pop(used, None)
        os.close(descriptor)
        raise
    _used_locks[used] = descriptor
    _remove_unused(cache)
    return folder


def _lock(path: Path, kind: int) -> int:
    """Wait until a file can be locked, and return its descriptor. The lock is held until that is closed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, kind)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


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
    """Create the folder with these files. It is complete as soon as it exists."""
    unfinished = folder.with_suffix(f".unfinished-{os.getpid()}")
    unfinished.mkdir(mode=0o700)
    links = []
    for name, (mode, content) in entries.items():
        path = unfinished / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if mode == LINK:
            links.append((path, content))
        else:
            path.write_bytes(content)
            path.chmod(0o755 if mode == EXECUTABLE else 0o644)
    for path, content in links:  # at the end, so that no file is written through a link
        path.symlink_to(content.decode())
    unfinished.rename(folder)


def _remove_unfinished(folder: Path) -> None:
    """Remove what processes that were killed have left. Called by the process that holds the lock."""
    for left in folder.parent.glob(f"{folder.name}.unfinished-*"):
        shutil.rmtree(left, ignore_errors=True)


def _remove_unused(cache: Path) -> None:
    """Remove code that no process has used for a long time."""
    for used in cache.glob("*.used"):
        folder = used.with_suffix("")
        with contextlib.suppress(OSError):
            if used.stat().st_mtime > time.time() - _UNUSED_SECONDS or not folder.exists():
                continue
            with used.open("r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                doomed = folder.with_suffix(".unfinished-removed")  # removed later if this process is killed
                shutil.rmtree(doomed, ignore_errors=True)
                folder.rename(doomed)
                shutil.rmtree(doomed, ignore_errors=True)
