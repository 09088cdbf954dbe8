"""Build a wheel of the installed thriftune, for the nodes of a cluster.

This needs neither a build tool nor a package index. It also works for an editable install of a clone: the
modules are read from the folder from which Python imports them, and the metadata from the installed
distribution.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from thriftune.common.wheel_files import write_wheel_file
from thriftune.errors import ThriftuneError
from thriftune.version import __version__

_PACKAGE_FOLDER = Path(__file__).parents[2]
"""The folder of the package `thriftune` from which this module was imported."""

_WHEEL = "Wheel-Version: 1.0\nGenerator: thriftune\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def wheel_name() -> str:
    """Return the file name of a wheel of this thriftune."""
    return f"thriftune-{__version__}-py3-none-any.whl"


def write_wheel(folder: Path) -> Path:
    """Write the wheel into a folder and return its path.

    An existing wheel of the same name is replaced. If this fails, no incomplete file of that name exists.
    """
    path = folder / wheel_name()
    info = f"thriftune-{__version__}.dist-info"
    write_wheel_file(path, info, _contents(info))
    return path


def _contents(info: str) -> Iterator[tuple[str, bytes]]:
    """Yield (path in the wheel, content) of each file. `info`: the folder of the metadata."""
    yield from _modules()
    yield from _metadata(_installed(), info)


def _installed() -> Distribution:
    """Return the installed distribution of thriftune.

    Raises ThriftuneError if its version differs from that of the running code.
    """
    try:
        package = distribution("thriftune")
    except PackageNotFoundError:
        raise ThriftuneError(
            "no wheel of thriftune can be made, because it is not installed here; in its clone, run: pip install ."
        ) from None
    if package.version != __version__:
        raise ThriftuneError(
            f"no wheel of thriftune can be made: version {package.version} is installed here, but version "
            f"{__version__} runs, from {_PACKAGE_FOLDER}; in its clone, run: pip install ."
        )
    return package


def _modules() -> Iterator[tuple[str, bytes]]:
    """Yield (path in the wheel, content) of each file of the package.

    Compiled files are left out.
    """
    for folder, folders, files in os.walk(_PACKAGE_FOLDER):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        for name in sorted(files):
            if not name.endswith(".pyc") and not name.startswith("."):
                path = Path(folder, name)
                yield f"thriftune/{path.relative_to(_PACKAGE_FOLDER).as_posix()}", path.read_bytes()


def _metadata(package: Distribution, info: str) -> Iterator[tuple[str, bytes]]:
    """Yield (path in the wheel, content) of each metadata file and licence."""
    yield f"{info}/WHEEL", _WHEEL.encode()
    for name in ("METADATA", "entry_points.txt"):
        text = package.read_text(name)
        if text is None:
            raise ThriftuneError(
                f"no wheel of thriftune can be made: the installed package has no {name}; install it again"
            )
        yield f"{info}/{name}", text.encode()
    for file in sorted(package.files or ()):
        if file.parent.parent.name == info and file.parent.name == "licenses":
            yield f"{info}/licenses/{file.name}", Path(str(package.locate_file(file))).read_bytes()
