"""How does a model get to another place? It is copied whole or not at all, and compared with the original."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from thriftune.errors import CheckpointError, SettingError
from thriftune.training.checkpoints import measure, sync_folder


def copy_model(folder: Path, to: Path) -> Path:
    """Copy a model into the folder `to`, whole or not at all, and return where it is then.

    Raises SettingError if `to` is there and not an empty folder, CheckpointError if the copy is not the same.
    """
    to = to.expanduser().resolve()
    if to.exists() and not (to.is_dir() and not any(to.iterdir())):
        raise SettingError(f"to: {to} is there already; name a folder that is empty or not there yet")
    unfinished = to.with_name(f".{to.name}.unfinished-{os.urandom(6).hex()}")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(folder, unfinished, symlinks=True)
        if _measured(unfinished, sync=True) != _measured(folder):
            raise CheckpointError(f"{folder}: it has changed while it was copied to {to}; copy it again")
        unfinished.rename(to)
        sync_folder(to.parent)
    except FileNotFoundError as error:
        raise CheckpointError(f"{error.filename}: it is gone, as its trial has saved since; copy again") from error
    except shutil.Error as error:  # of copytree: a list of source, copy and reason
        raise CheckpointError(f"{folder} cannot be copied to {to}: {error.args[0][0][2]}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return to


def _measured(folder: Path, *, sync: bool = False) -> dict[str, tuple[int, int]]:
    """Return size and checksum of each file in the folder, by its name; `sync`: all are on disk then."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            found[str(path.relative_to(folder))] = measure(path, sync)
        elif sync and path.is_dir() and not path.is_symlink():
            sync_folder(path)
    if sync:
        sync_folder(folder)
    return found
