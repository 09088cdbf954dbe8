"""Upload the files of the user's project, for trials on machines that share no folder with the driver.

The archive is an object below the storage URL, named by its hash: code/HASH.zip. A study whose project has not
changed finds it there. What a machine needs to know besides, such as the working folder, travels with the trials'
target.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from thriftune.engines.code_archive import (
    EXECUTABLE,
    FILE,
    LINK,
    MOST_BYTES,
    ArchiveError,
    Entry,
    content_hash,
    pack,
)
from thriftune.engines.project_code import archive_key
from thriftune.errors import SettingError
from thriftune.launch.fingerprint import CODE_SUFFIXES
from thriftune.launch.project_files import Project, find_project
from thriftune.object_store.protocol import ObjectStore
from thriftune.state.spec import Target

Say = Callable[[str], object]

_SHOWN_BYTES = 10_000_000
"""The size of an archive above which the user is told about it."""

_LARGEST_SHOWN = 5
"""How many of the largest files an error names."""


@dataclass(frozen=True, slots=True)
class ProjectArchive:
    """The archive of a project, and what machines need to know to use it.

    - `root`: the folder of the project.
    - `entries`: its files; `data` is the archive of them, and `hash` its name.
    - `folder`: the folder in which trials run, relative to the root.
    - `paths`: the folders of the project on sys.path, relative to the root.
    """

    root: Path
    entries: Mapping[str, Entry]
    data: bytes
    hash: str
    folder: str
    paths: Sequence[str]


def script_folder() -> str:
    """Return the folder from which the running script imports its own modules.

    It is the working folder in a notebook, and in a program that is installed, such as pytest.
    """
    main = sys.modules.get("__main__")
    file, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if file is None or str(Path(file).resolve()).startswith(_installed()):
        return str(Path.cwd())
    path = Path(file).resolve()
    return str(path.parents[spec.name.count(".") if spec is not None else 0])


def pack_project(target: Target, patterns: Sequence[str] | None, store: Path, say: Say) -> ProjectArchive:
    """Return the archive of the project that a target belongs to.

    Raises SettingError if it is too large or cannot be read, or if it lacks a file that the target names.

    - `patterns`: the setting `files`.
    - `store`: the study's store. It is left out, with the files of its studies.
    - `say`: called with remarks for the user.
    """
    project = find_project(Path(target.project or target.folder), patterns)
    project = Project(
        project.root, [name for name in project.files if not _is_of_store(project.root / name, store)]
    )
    _check_target(target, project, say)
    entries = read_entries(project)
    try:
        data = pack(entries)
    except ArchiveError as error:
        raise SettingError(f"files: the project in {project.root} {error}") from None
    if len(data) > _SHOWN_BYTES:
        say(f"the code of the study is {_megabytes(len(data))}, in {len(entries)} files of {project.root}")
    folder = _relative(Path(target.folder), project.root)
    paths = _paths(target.paths or sys.path, project)
    return ProjectArchive(project.root, entries, data, content_hash(entries), folder or "", paths)


def upload_project(objects: ObjectStore, archive: ProjectArchive) -> None:
    """Upload the archive unless an equal one is there. `objects`: of the storage URL."""
    key = archive_key(archive.hash)
    if objects.info(key) is None:
        objects.create(key, archive.data)


def read_entries(project: Project) -> dict[str, Entry]:
    """Return the entries of a project's archive. Raises SettingError for files that cannot be sent."""
    sizes = {name: _size(project.root / name) for name in project.files}
    if sum(sizes.values()) > MOST_BYTES:
        raise SettingError(_too_large(project, sizes))
    return {name: _entry(project.root, name) for name in project.files}


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError as error:
        raise _unreadable(path, error) from None


def _entry(root: Path, name: str) -> Entry:
    """Return a file or link of the project as an entry of an archive."""
    path = root / name
    try:
        name.encode()
    except UnicodeEncodeError:
        raise SettingError(
            f"files: the name {os.fsencode(name)!r} in {root} is not UTF-8; rename this file or leave it out"
        ) from None
    try:
        if path.is_symlink():
            return Entry(LINK, _link_target(root, path).encode())
        mode = EXECUTABLE if path.stat().st_mode & 0o100 else FILE
        return Entry(mode, path.read_bytes())
    except OSError as error:
        raise _unreadable(path, error) from None


def _link_target(root: Path, path: Path) -> str:
    """Return where a symbolic link leads, relative to its own folder."""
    real = os.path.realpath(path)
    if not Path(real).is_relative_to(root):
        raise SettingError(
            f"files: the symbolic link {path} leads to {path.readlink()}, which is not in the project {root} and "
            "would be missing on other machines; add the link to .gitignore, or leave it out with "
            f'files=["!{path.relative_to(root).as_posix()}"]'
        )
    return os.path.relpath(real, path.parent)


def _unreadable(path: Path, error: OSError) -> SettingError:
    return SettingError(
        f"files: {path} cannot be read ({error.strerror}), so it cannot be sent to other machines; change its "
        "permissions, or leave it out: add it to .gitignore or use files=[...]"
    )


def _too_large(project: Project, sizes: Mapping[str, int]) -> str:
    largest = sorted(sizes, key=lambda name: -sizes[name])[:_LARGEST_SHOWN]
    listed = ", ".join(f"{name} ({_megabytes(sizes[name])})" for name in largest)
    total = _megabytes(sum(sizes.values()))
    return (
        f"files: the project in {project.root} has {total} in {len(sizes)} files, and at most "
        f"{_megabytes(MOST_BYTES)} can be sent to other machines; the largest files are {listed}. Add what is not "
        f'code to .gitignore, or leave it out with files=["!{largest[0]}"], or name what trials need with '
        "files=[...]"
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.3g} MB" if size >= 100_000 else f"{size / 1e3:.2g} kB"


def _is_of_store(path: Path, store: Path) -> bool:
    """Return whether a file is the store, or one of its companions such as studies.db-wal and studies.db.files."""
    parts = path.parts
    above = store.parent.resolve().parts
    return len(parts) > len(above) and parts[: len(above)] == above and parts[len(above)].startswith(store.name)


def _check_target(target: Target, project: Project, say: Say) -> None:
    """Raise SettingError if a file of code that a study file names would be missing on other machines."""
    folder = Path(target.folder)
    if target.kind == "function":
        source = target.where.rpartition(":")[0]
        named = [source] if source.endswith(".py") else []
    elif target.kind == "command":
        program, *others = target.command
        named = [each for each in others if _names_file(folder, each)]
        if "/" in program and not Path(program).is_absolute() and _names_file(folder, program):
            named.append(program)
    else:
        return
    files = set(project.files)
    for name in named:
        if Path(name).is_absolute():
            raise SettingError(
                f"{target.kind}: {name} is a path of this machine; write it relative to the folder of the study "
                f"file, {folder}, so that it can be found on other machines"
            )
        if _relative(folder / name, project.root) in files:
            continue
        missing = f"{target.kind}: {name} is not sent to other machines: git ignores it, or `files` leaves it out"
        if target.kind == "function" or Path(name).suffix.lower() in CODE_SUFFIXES:
            raise SettingError(f"{missing}, or it is outside of the project in {project.root}")
        say(f"{missing}; trials there find it only if they create it")


def _names_file(folder: Path, argument: str) -> bool:
    """Return whether an argument of a command names a file."""
    try:
        return "{" not in argument and (folder / argument).is_file()
    except (OSError, ValueError):  # not a path
        return False


def _paths(search_path: Sequence[str], project: Project) -> list[str]:
    """Return the folders of a sys.path that are in the project, relative to its root."""
    folders = {"", *(parent for name in project.files for parent in _parents(name))}
    inside = (_relative(Path(each or "."), project.root) for each in search_path)
    return [each for each in dict.fromkeys(inside) if each is not None and each in folders]


def _parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _relative(path: Path, root: Path) -> str | None:
    """Return a path relative to the root, "" for the root itself; None if it is outside."""
    path = path.resolve()
    if not path.is_relative_to(root):
        return None
    relative = path.relative_to(root).as_posix()
    return "" if relative == "." else relative


def _installed() -> tuple[str, ...]:
    """Return the folders of Python and of installed packages and programs."""
    names = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    return tuple({f"{Path(sysconfig.get_path(name)).resolve()}/" for name in names})
