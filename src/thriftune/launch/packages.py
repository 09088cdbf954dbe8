"""Find the modules that a study's code imports, and the installed packages that they belong to."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    distribution,
    distributions,
    packages_distributions,
)
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from thriftune.engines.code_archive import Entry
from thriftune.engines.pickled import SCRIPTS
from thriftune.errors import SettingError
from thriftune.launch.fingerprint import is_users

OWN = "thriftune"
"""The normal name of the package that this module belongs to."""

_IMPORT = re.compile(rb"^[ \t]*(?:import[ \t]+([^\n#;]+)|from[ \t]+([\w.]+)[ \t]+import\b)", re.MULTILINE)


_DEVELOPERS_FOLDERS = {"test", "tests", "doc", "docs"}
_DEVELOPERS_FILE = re.compile(r"(test_.*|.*_test|conftest|setup|noxfile)\.py")
"""The names of folders and files with code that trials do not run."""


def imported_modules(entries: Mapping[str, Entry], folder: str = "") -> set[str]:
    """Return the first parts of the names of all modules that the Python files of a project import.

    Tests and the like are left out, as trials do not need what they import.

    - `folder`: in which trials run, relative to the project. If it is a folder of tests, they are included.
    """
    everything = _for_developers(f"{folder}/x.py")
    modules = set[str]()
    for name, entry in entries.items():
        if name.endswith(".py") and (everything or not _for_developers(name)):
            modules |= _imported_by(entry.content)
    return modules


def notebook_modules() -> set[str]:
    """Return the first parts of the names of all modules that the cells of this notebook import.

    In another interactive session, these are all modules that this process has imported.
    """
    cells = getattr(sys.modules["__main__"], "In", None)
    if isinstance(cells, list):
        return _imported_by("\n".join(map(str, cells)).encode(errors="replace"))
    return {name.partition(".")[0] for name in list(sys.modules)}


def _imported_by(code: bytes) -> set[str]:
    return {
        each.split(b" as ")[0].strip().partition(b".")[0].decode(errors="replace")
        for several, one in _IMPORT.findall(code)
        for each in (one or several).split(b",")
    }


def _for_developers(name: str) -> bool:
    """Return whether a file is a test or configures a tool, by its path in the project."""
    path = PurePosixPath(name)
    return bool(_DEVELOPERS_FOLDERS & set(path.parts[:-1])) or _DEVELOPERS_FILE.fullmatch(path.name) is not None


def modules_left_behind(root: Path, files: Iterable[str]) -> dict[str, Path]:
    """Return the files of modules that this process has imported, and that other machines will not have.

    These are the user's own modules that are neither in the project's archive nor in a package.

    - `root`, `files`: the folder of the project, and the files in it that are sent.
    """
    sent = {root / name for name in files}
    packaged = [_folder_of(origin) for _, origin in _editable_packages()]
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if "." in name or name in SCRIPTS or file is None or not is_users(name):
            continue
        path = Path(file).resolve()
        if path not in sent and not any(path.is_relative_to(folder) for folder in packaged):
            found[name] = path
    return found


def editable_folder(package: Distribution) -> Path | None:
    """Return the folder from which an editable package is imported; None for others."""
    origin = origin_of(package)
    return _folder_of(origin) if origin is not None and _is_editable(origin) else None


def packages_of(modules: Iterable[str]) -> set[str]:
    """Return the names of the packages that modules with these names belong to.

    The metadata of many editable packages do not tell their modules. Their folders do.
    """
    found = packages_distributions()
    editable = {_folder_of(origin): name for name, origin in _editable_packages()}
    names: set[str] = set()
    for module in modules:
        if module in found:
            names.update(map(normal_name, found[module]))
        elif (path := _place_of(module)) is not None:
            names |= {editable[folder] for folder in path.parents if folder in editable}
    return names


def _place_of(module: str) -> Path | None:
    """Return the path of a module or of its package, without importing it; None if it has none."""
    with contextlib.suppress(ImportError, ValueError, AttributeError):  # not every finder and module is complete
        if module.isidentifier() and (spec := importlib.util.find_spec(module)) is not None:
            for path in (spec.origin if spec.has_location else None, *(spec.submodule_search_locations or ())):
                if path is not None:
                    return Path(path).resolve()
    return None


def _editable_packages() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the name and origin of each editable package but thriftune."""
    for package in distributions():
        origin = origin_of(package)
        if origin is not None and _is_editable(origin) and normal_name(package.name) != OWN:
            yield normal_name(package.name), origin


def normal_name(name: str) -> str:
    """Return the normal form of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def origin_of(package: Distribution) -> Mapping[str, Any] | None:
    """Return from where a local package was installed; None for a package of an index."""
    text = package.read_text("direct_url.json")
    if text is None or (package.read_text("INSTALLER") or "").strip() == "conda":  # it tells where conda built it
        return None
    try:
        origin: Mapping[str, Any] = json.loads(text)
        urlsplit(origin["url"])
    except (ValueError, KeyError, TypeError):
        raise SettingError(
            f"the metadata of the installed package {package.name} are damaged (direct_url.json); install it again"
        ) from None
    return origin


def installed_bytes(package: Distribution) -> int:
    """Return the size of the installed files of a package in bytes."""
    return sum(file.size or 0 for file in package.files or ())


def _is_editable(origin: Mapping[str, Any]) -> bool:
    return bool(origin.get("dir_info", {}).get("editable"))


def _folder_of(origin: Mapping[str, Any]) -> Path:
    """Return the folder from which a package was installed."""
    return Path(unquote(urlsplit(origin["url"]).path)).resolve()
