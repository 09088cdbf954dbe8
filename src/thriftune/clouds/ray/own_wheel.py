"""Makes a wheel of the thriftune that is installed here, for machines that shall have the same.

It needs neither a build tool nor a package index, and works for an editable install of a clone, too: the modules
come from where they are imported, and what describes the package from its metadata.
"""

from __future__ import annotations

import base64
import hashlib
import os
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import thriftune
from thriftune.errors import ThriftuneError

_WHEEL = "Wheel-Version: 1.0\nGenerator: thriftune\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The date of every file in it: wheels of the same files are then the same, byte by byte."""


def wheel_name() -> str:
    """Return the name that a wheel of this thriftune has."""
    return f"thriftune-{thriftune.__version__}-py3-none-any.whl"


def write_wheel(folder: Path) -> Path:
    """Write the wheel into the folder, whole or not at all, and return its path. One of that name is replaced."""
    path = folder / wheel_name()
    unfinished = path.with_suffix(".unfinished")
    info = f"thriftune-{thriftune.__version__}.dist-info"
    record = []
    try:
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as wheel:
            for name, content in [*_modules(), *_metadata(_installed(), info)]:
                wheel.writestr(zipfile.ZipInfo(name, _EARLIEST), content, zipfile.ZIP_DEFLATED)
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
                record.append(f"{name},sha256={digest},{len(content)}\n")
            record.append(f"{info}/RECORD,,\n")
            wheel.writestr(zipfile.ZipInfo(f"{info}/RECORD", _EARLIEST), "".join(record), zipfile.ZIP_DEFLATED)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def _installed() -> Distribution:
    """Return what is known of the package; raise ThriftuneError if the modules that run are not of it."""
    try:
        found = distribution("thriftune")
    except PackageNotFoundError:
        raise ThriftuneError(
            "no wheel of thriftune can be made, since it is not installed here; in its clone: pip install ."
        ) from None
    if found.version != thriftune.__version__:
        raise ThriftuneError(
            f"no wheel of thriftune can be made: {found.version} is installed here, but {thriftune.__version__} "
            f"runs, from {_home()}; in its clone: pip install ."
        )
    return found


def _home() -> Path:
    return Path(thriftune.__file__).parent


def _modules() -> Iterator[tuple[str, bytes]]:
    """Yield the files of the package by their paths in the wheel, without what Python has compiled."""
    for folder, folders, files in os.walk(_home()):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        for name in sorted(files):
            if not name.endswith(".pyc") and not name.startswith("."):
                path = Path(folder, name)
                yield f"thriftune/{path.relative_to(_home()).as_posix()}", path.read_bytes()


def _metadata(package: Distribution, info: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files that describe the package: its metadata, commands and licences."""
    yield f"{info}/WHEEL", _WHEEL.encode()
    for name in ("METADATA", "entry_points.txt"):
        text = package.read_text(name)
        if text is None:
            raise ThriftuneError(f"no wheel of thriftune can be made: {name} of the installed one is missing")
        yield f"{info}/{name}", text.encode()
    for file in sorted(package.files or ()):
        if file.parent.parent.name == info and file.parent.name == "licenses":
            yield f"{info}/licenses/{file.name}", Path(str(package.locate_file(file))).read_bytes()
