"""Find the folder of this user's cache, for files that are shared by the processes of one machine."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from thriftune.errors import SettingError

FOLDER_VARIABLE = "THRIFTUNE_CACHE"


def cache_folder() -> Path:
    """Return the folder of everything that thriftune caches on this machine for this user.

    $THRIFTUNE_CACHE names it. Otherwise it is "thriftune" below $XDG_CACHE_HOME or ~/.cache.
    """
    if given := os.environ.get(FOLDER_VARIABLE):
        return Path(given).expanduser().absolute()
    home = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification requires that relative paths are ignored.
    return (Path(home) if Path(home).is_absolute() else Path("~/.cache").expanduser()) / "thriftune"


def user_cache(name: str) -> Path:
    """Create and return a folder of the cache that only this user can write.

    If the cache cannot be written, the folder is in the one for temporary files. Raises SettingError if the folder
    belongs to someone else, as code is run from it.
    """
    try:
        return _private(cache_folder() / name)
    except OSError:  # no home folder, or a full or read-only one
        return _private(Path(tempfile.gettempdir(), f"thriftune-cache-{os.geteuid()}") / name)


def _private(folder: Path) -> Path:
    """Create a folder and its parent for this user alone. Raises OSError if it cannot be created."""
    folder.parent.parent.mkdir(parents=True, exist_ok=True)
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700, exist_ok=True)
        status = each.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise SettingError(
                f"{each} is not a folder that only you can write, and thriftune runs code from it; remove it, or "
                f"set the environment variable {FOLDER_VARIABLE} to another folder"
            )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{folder} cannot be written")
    return folder
