"""A copy of a model's folder that is complete or not made at all, and is compared with the original."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from thriftune.errors import CheckpointError, SettingError
from thriftune.training.checkpoint_files import measure, sync_folder


def copy_model(folder: Path, to: Path) -> Path:
    """Copy a model into the folder `to`, completely or not at all, and return the folder's full path.

    Raises SettingError if `to` exists and is not an empty folder, CheckpointError if the copy differs.
    """
    to = to.expanduser().resolve()
    if to.exists() and not (to.is_dir() and not any(to.iterdir())):
        raise SettingError(f"to: {to} exists already; name a new folder or an empty one")
    unfinished = to.with_name(f".{to.name}.unfinished-{os.urandom(6).hex()}")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(folder, unfinished, symlinks=True)
        if _checksums(unfinished, sync=True) != _checksums(folder):
            raise CheckpointError(f"{folder} changed while it was copied to {to}; copy it again")
        unfinished.rename(to)
        sync_folder(to.parent)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{error.filename} was deleted, because its trial has saved a newer checkpoint; copy again"
        ) from error
    except shutil.Error as error:  # copytree() lists the source, the copy and the reason
        raise CheckpointError(f"{folder} cannot be copied to {to}: {error.args[0][0][2]}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return to


def _checksums(folder: Path, *, sync: bool = False) -> dict[str, tuple[int, int]]:
    """Return the size and checksum of each file in the folder by its path; `sync` flushes them to disk."""
    checksums = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            checksums[str(path.relative_to(folder))] = measure(path, sync)
        elif sync and path.is_dir() and not path.is_symlink():
            sync_folder(path)
    if sync:
        sync_folder(folder)
    return checksums
