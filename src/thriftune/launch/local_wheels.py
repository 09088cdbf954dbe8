"""Make wheels of local packages, which no package index has.

An editable package is built by its own build tool. Any other is packed from its installed files, which needs no
tool.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path

from thriftune.common.user_cache import user_cache
from thriftune.common.wheel_files import write_wheel_file
from thriftune.engines.code_archive import MOST_BYTES, ArchiveError, unpack_wheel
from thriftune.errors import SettingError
from thriftune.launch.packages import editable_folder
from thriftune.launch.project_files import find_project

_ERROR_LINES = 15
"""How many of the last lines of a failed build an error shows."""

_UNUSED_SECONDS = 14 * 86_400.0
"""A built wheel that was not used for this long is removed from the cache."""

_BUILT = ("build", "dist")
"""The names of folders into which a build may write. They count as unchanged."""

_NOT_PACKED = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
"""Metadata that an installer writes, and that a wheel does not contain."""


def build_wheel(package: Distribution, folder: Path) -> Path:
    """Write the wheel of a local package into a folder, and return its path.

    An editable package is not built again if none of its files has changed. Raises SettingError if it cannot be
    built, or if it is too large.
    """
    source = editable_folder(package)
    wheel = _packed(package, folder) if source is None else _built(package, source)
    try:
        unpack_wheel(wheel.read_bytes())
    except ArchiveError as error:
        raise SettingError(
            f"the local package {package.name} cannot be sent to other machines, because its wheel {error}; "
            f"it may have at most {MOST_BYTES / 1e6:.0f} MB. Or install it there, and here without pip's option -e"
        ) from None
    return wheel


def _packed(package: Distribution, folder: Path) -> Path:
    """Write the wheel of an installed package from its files."""
    info = next((file.parent.name for file in package.files or () if file.name == "METADATA"), None)
    tag = re.search(r"^Tag: (\S+)$", package.read_text("WHEEL") or "", re.MULTILINE)
    if info is None or tag is None:
        raise SettingError(
            f"the local package {package.name} cannot be sent to other machines, because its installed metadata "
            "are incomplete; install it again"
        )
    path = folder / f"{info.removesuffix('.dist-info')}-{tag[1]}.whl"
    write_wheel_file(path, info, _installed_files(package))
    return path


def _installed_files(package: Distribution) -> Iterator[tuple[str, bytes]]:
    """Yield (path in the wheel, content) of the files of an installed package, without programs."""
    for file in sorted(package.files or ()):
        is_metadata = file.parent.name.endswith(".dist-info")
        if ".." in file.parts or file.suffix == ".pyc" or (is_metadata and file.name in _NOT_PACKED):
            continue
        try:
            yield file.as_posix(), Path(str(package.locate_file(file))).read_bytes()
        except OSError as error:
            raise SettingError(
                f"the local package {package.name} cannot be sent to other machines: {error.filename} cannot be "
                f"read ({error.strerror}); install it again"
            ) from None


def _built(package: Distribution, source: Path) -> Path:
    """Return the wheel of an editable package, which is built unless the cache has it.

    `source`: the folder of the package.
    """
    if not source.is_dir():
        raise SettingError(
            f"the local package {package.name} cannot be sent to other machines, because the folder from which it "
            f"was installed is gone: {source}; install it again"
        )
    folder = user_cache("wheels") / _stamp(source)
    wheels = list(folder.glob("*.whl"))
    if wheels:
        os.utime(folder)
        return wheels[0]
    _remove_unused(folder.parent)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="unfinished-") as unfinished:
        command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-input", "--disable-pip-version-check"]
        process = subprocess.run(
            [*command, "--wheel-dir", unfinished, str(source)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        wheels = list(Path(unfinished).glob("*.whl"))
        if process.returncode != 0 or len(wheels) != 1:
            lines = "\n".join(process.stdout.splitlines()[-_ERROR_LINES:])
            raise SettingError(
                f"the local package {package.name} in {source} cannot be built, so it cannot be sent to other "
                f"machines; correct it, or install it there, and here without pip's option -e. The build ended "
                f"with:\n{lines}"
            )
        folder.mkdir(exist_ok=True)
        return wheels[0].replace(folder / wheels[0].name)


def _remove_unused(cache: Path) -> None:
    """Remove wheels that were not used for a long time, and what killed builds have left."""
    for folder in cache.iterdir():
        with contextlib.suppress(OSError):
            if folder.stat().st_mtime < time.time() - _UNUSED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def _stamp(source: Path) -> str:
    """Return a name that changes with the files of a package, and with the Python that builds it."""
    project = find_project(source)
    parts = [str(source), sys.version, sys.platform]
    for name in project.files:
        path = project.root / name
        if not path.is_relative_to(source):
            continue
        within = path.relative_to(source).parts
        if not any(part in _BUILT or part.endswith(".egg-info") for part in within):
            status = path.lstat()
            parts.append(f"{name} {status.st_size} {status.st_mtime_ns} {status.st_mode}")
    return hashlib.sha256("\n".join(parts).encode(errors="surrogateescape")).hexdigest()
