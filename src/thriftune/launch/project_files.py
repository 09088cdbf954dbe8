"""Find the files of the user's project, which trials on other machines need.

In a git repository, these are the files that git tracks or would track, as they are in the working tree. Elsewhere
they are the files in the folder of the script or the study file. Hidden files that git does not track may be
private, such as .env. They are left out, like the files that programs create.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from thriftune.engines.code_archive import MOST_FILES
from thriftune.errors import SettingError

_CREATED = ("__pycache__", "node_modules")
"""The names of folders with files that programs create."""

_ENVIRONMENT_FILE = "pyvenv.cfg"
"""A folder with this file is a Python environment."""

_GIT_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
"""Variables that git sets for its hooks. They could name another repository."""

_WAY_OUT = "; or name the files that trials need with files=[...]"


@dataclass(frozen=True, slots=True)
class Project:
    """The user's project.

    - `root`: its folder, an absolute path without symbolic links.
    - `files`: the paths of its files and symbolic links relative to the root, in ascending order.
    """

    root: Path
    files: Sequence[str]


def find_project(folder: Path, patterns: Sequence[str] | None = None) -> Project:
    """Return the project that a folder belongs to. Raises SettingError if its files cannot be listed.

    - `folder`: the folder of the script or study file.
    - `patterns`: the setting `files`. Those that begin with "!" leave files out; see file_patterns.py.
    """
    folder = folder.resolve()
    wanted = [each for each in patterns or () if not each.startswith("!")]
    repository = _repository(folder)
    if wanted:
        root = repository or folder
        found = {name for pattern in wanted for name in _matching(root, pattern)}
    elif repository is not None and not _ignores(repository, folder):
        root = repository
        found = set(_files_of_git(root))
    else:
        root = folder
        found = set(_files_below(root, root))
    unwanted = {name for each in patterns or () if each.startswith("!") for name in _paths_of(root, each[1:])}
    files = sorted(name for name in found if not unwanted.intersection(_with_parents(name)))
    if len(files) > MOST_FILES:
        raise SettingError(
            f"files: the project in {root} has {len(files)} files, and at most {MOST_FILES} can be sent to other "
            f"machines; add those that trials do not need to .gitignore{_WAY_OUT}"
        )
    return Project(root, files)


# --- git --------------------------------------------------------------------------------------------------


def _repository(folder: Path) -> Path | None:
    """Return the root of the git repository around a folder; None if there is none."""
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)


def _ignores(repository: Path, folder: Path) -> bool:
    """Return whether git ignores the folder, for example one for experiments."""
    return folder != repository and _git(repository, "check-ignore", str(folder), statuses=(0, 1)) != b""


def _files_of_git(root: Path, above: str = "") -> Iterator[str]:
    """Yield the files of a repository and of the repositories within it, such as submodules.

    `above`: the path of the repository in the project.
    """
    tracked = _names(_git(root, "ls-files", "-z", "--cached"))
    others = _names(_git(root, "ls-files", "-z", "--others", "--exclude-standard"))
    environments: dict[PurePosixPath, bool] = {}
    shown = [each for each in others if not _is_left_out(root, PurePosixPath(each), environments)]
    for name in {*tracked, *shown}:
        path = root / name
        if path.is_symlink() or path.is_file():
            yield above + name
        elif (path / ".git").exists():
            yield from _files_of_git(path, f"{above}{name}/")


def _names(output: bytes) -> list[str]:
    return [os.fsdecode(each.removesuffix(b"/")) for each in output.split(b"\0") if each]


def _is_left_out(
    root: Path, name: PurePosixPath, environments: dict[PurePosixPath, bool], *, hidden: bool = False
) -> bool:
    """Return whether to leave out a file that git does not track.

    Hidden files are left out, and files that programs create, such as those of a Python environment.

    - `name`: the path of the file, relative to `root`.
    - `environments`: a cache that this function fills: for each folder, whether it is a Python environment.
    - `hidden`: include hidden files.
    """
    if ".git" in name.parts or any(part in _CREATED for part in name.parts):
        return True
    if not hidden and any(part.startswith(".") for part in name.parts):
        return True
    for parent in (name, *name.parents):
        if parent not in environments:
            environments[parent] = (root / parent / _ENVIRONMENT_FILE).exists()
        if environments[parent]:
            return True
    return False


def _git(folder: Path, *arguments: str, statuses: Sequence[int] = (0,)) -> bytes:
    """Return the output of git. Raise SettingError if it is missing, or ends with another status."""
    environment = {name: value for name, value in os.environ.items() if name not in _GIT_VARIABLES}
    try:
        process = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, env=environment, check=False
        )
    except OSError as error:
        raise SettingError(
            f"files: {folder} is a git repository, and git cannot be run ({error.strerror}); install it{_WAY_OUT}"
        ) from None
    if process.returncode not in statuses:
        message = " ".join(process.stderr.decode(errors="replace").split())
        raise SettingError(f"files: git cannot list the files in {folder}: {message}{_WAY_OUT}")
    return process.stdout


# --- folders and patterns ---------------------------------------------------------------------------------


def _files_below(root: Path, folder: Path) -> Iterator[str]:
    """Yield the files below a folder, relative to the root, without hidden and created ones."""

    def fail(error: OSError) -> None:
        raise SettingError(f"files: the folder {error.filename} cannot be read ({error.strerror}){_WAY_OUT}")

    count = 0
    for place, folders, names in os.walk(folder, onerror=fail):
        links = [name for name in folders if Path(place, name).is_symlink()]
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in (*_CREATED, *links)
            and not Path(place, name, _ENVIRONMENT_FILE).exists()
        ]
        for name in (*names, *links):
            path = Path(place, name)
            if not name.startswith(".") and not name.endswith(".pyc") and _is_file_or_link(path):
                count += 1
                yield path.relative_to(root).as_posix()
        if count > MOST_FILES:
            raise SettingError(
                f"files: the project in {root} has more than {MOST_FILES} files, which is too many to send them "
                "to other machines; move the script or study file into a folder or a git repository of its own"
                f"{_WAY_OUT}"
            )


def _matching(root: Path, pattern: str) -> Iterator[str]:
    """Yield the files that a pattern names. Raise SettingError if there are none."""
    hidden = any(part.startswith(".") for part in PurePosixPath(pattern).parts)
    environments: dict[PurePosixPath, bool] = {}
    empty = True
    for name in _paths_of(root, pattern):
        if _is_left_out(root, PurePosixPath(name), environments, hidden=hidden):
            continue
        path = root / name
        is_folder = path.is_dir() and not path.is_symlink()
        for file in _files_below(root, path) if is_folder else [name] if _is_file_or_link(path) else ():
            empty = False
            yield file
    if empty:
        raise SettingError(f"files: {pattern!r} names no file in {root}; correct it or leave it out")


def _paths_of(root: Path, pattern: str) -> Iterator[str]:
    """Yield the files and folders that a pattern names, relative to the root."""
    for path in root.glob(pattern):
        yield path.relative_to(root).as_posix()


def _with_parents(name: str) -> list[str]:
    """Return a path and the folders that contain it."""
    path = PurePosixPath(name)
    return [name, *(str(parent) for parent in path.parents)]


def _is_file_or_link(path: Path) -> bool:
    mode = path.lstat().st_mode
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)
