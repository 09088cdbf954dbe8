"""Find the installed packages that a study's code imports.

Packages of an index must be installed on other machines; their versions are compared there. Local packages, which
were installed from a folder or a repository, are sent as wheels (local_wheels.py).
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    distribution,
    distributions,
    packages_distributions,
)
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from thriftune.engines.code_archive import MOST_BYTES, Entry
from thriftune.engines.pickled import SCRIPTS
from thriftune.errors import SettingError
from thriftune.launch.fingerprint import is_users

_OWN = "thriftune"

_IMPORT = re.compile(rb"^[ \t]*(?:import[ \t]+([^\n#;]+)|from[ \t]+([\w.]+)[ \t]+import\b)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Packages:
    """The packages that a study needs on other machines.

    - `versions`: of packages that must be installed there, by name: those of an index, and those too large to
      send.
    - `local`: packages that are sent as wheels.
    """

    versions: Mapping[str, str]
    local: Sequence[Distribution]


def needed_packages(modules: Iterable[str], root: Path, search_path: Sequence[str]) -> Packages:
    """Return the installed packages that modules with these names belong to.

    What local packages need is included. Local ones that can be imported from the project's archive are left out,
    and so is thriftune itself.

    - `root`: the folder of the project.
    - `search_path`: the folders of sys.path that are in the project.
    """
    sent_with_project = {root / path for path in search_path}
    versions: dict[str, str] = {}
    local: dict[str, Distribution] = {}
    left = sorted(_packages_of(modules))
    seen = set(left)
    while left:
        name = left.pop()
        package = _installed(name)
        if package is None or name == _OWN:
            continue
        folder = editable_folder(package)
        if _origin(package) is None or (folder is None and _size(package) > MOST_BYTES):
            versions[name] = package.version
            continue
        if folder is None or not sent_with_project & {folder, folder / "src"}:
            local[name] = package
        always = [text for text in package.requires or () if not re.search(r";.*\bextra\b", text)]
        required = {_normal(re.split(r"[^\w.-]", text, maxsplit=1)[0]) for text in always}
        left += sorted(required - seen)
        seen |= required
    return Packages(dict(sorted(versions.items())), [local[name] for name in sorted(local)])


def imported_modules(entries: Mapping[str, Entry]) -> set[str]:
    """Return the first parts of the names of all modules that the Python files of a project import."""
    modules = set()
    for name, entry in entries.items():
        if name.endswith(".py"):
            for several, one in _IMPORT.findall(entry.content):
                for each in (one or several).split(b","):
                    top = each.split(b" as ")[0].strip().partition(b".")[0]
                    modules.add(top.decode(errors="replace"))
    return modules


def loaded_modules() -> set[str]:
    """Return the first parts of the names of all modules that this process has imported."""
    return {name.partition(".")[0] for name in list(sys.modules)}


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
    origin = _origin(package)
    return _folder_of(origin) if origin is not None and _is_editable(origin) else None


def _packages_of(modules: Iterable[str]) -> set[str]:
    """Return the names of the packages that modules with these names belong to.

    The metadata of many editable packages do not tell their modules. Their folders do.
    """
    found = packages_distributions()
    editable = {_folder_of(origin): name for name, origin in _editable_packages()}
    names: set[str] = set()
    for module in modules:
        if module in found:
            names.update(map(_normal, found[module]))
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
        origin = _origin(package)
        if origin is not None and _is_editable(origin) and _normal(package.name) != _OWN:
            yield _normal(package.name), origin


def _normal(name: str) -> str:
    """Return the normal form of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _origin(package: Distribution) -> Mapping[str, Any] | None:
    """Return from where a local package was installed; None for a package of an index."""
    text = package.read_text("direct_url.json")
    if text is None:
        return None
    try:
        origin: Mapping[str, Any] = json.loads(text)
        urlsplit(origin["url"])
    except (ValueError, KeyError, TypeError):
        raise SettingError(
            f"the metadata of the installed package {package.name} are damaged (direct_url.json); install it again"
        ) from None
    return origin


def _size(package: Distribution) -> int:
    """Return the size of the installed files of a package in bytes."""
    return sum(file.size or 0 for file in package.files or ())


def _is_editable(origin: Mapping[str, Any]) -> bool:
    return bool(origin.get("dir_info", {}).get("editable"))


def _folder_of(origin: Mapping[str, Any]) -> Path:
    """Return the folder from which a package was installed."""
    return Path(unquote(urlsplit(origin["url"]).path)).resolve()
