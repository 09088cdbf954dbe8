"""Find the installed packages that a study needs on other machines.

Packages of an index are installed on machines that lack them, in the versions of this machine
(engines/install_packages.py). Local packages, which were installed from a folder or a repository, are sent as
wheels (local_wheels.py).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, packages_distributions
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from thriftune.engines.code_archive import MOST_BYTES
from thriftune.errors import SettingError
from thriftune.launch.packages import (
    OWN,
    editable_folder,
    installed,
    installed_bytes,
    normal_name,
    origin_of,
    packages_of,
)

_ALREADY_THERE = ("ray", "obstore")
"""Packages without which a machine cannot even fetch the code."""


@dataclass(frozen=True, slots=True)
class PinnedPackage:
    """A package as it is installed on this machine.

    - `source`: the URL from which it was installed; "": an index; None: a file or a folder that other machines do
      not have, and it is too large to be sent.
    - `extras`: those that other packages request.
    - `requires`: what it needs, as in its metadata, without what is sent as a wheel.
    - `modules`: the first parts of the names of its modules.
    """

    version: str
    source: str | None
    extras: Sequence[str]
    requires: Sequence[str]
    modules: Sequence[str]


@dataclass(frozen=True, slots=True)
class Packages:
    """The packages that a study needs on other machines.

    - `versions`: of packages that the project and local packages import, by name: those of an index, and those too
      large to send.
    - `local`: packages that are sent as wheels.
    - `pinned`: the packages in `versions` and all that they need, by name, without local ones.
    """

    versions: Mapping[str, str]
    local: Sequence[Distribution]
    pinned: Mapping[str, PinnedPackage]


def needed_packages(modules: Iterable[str], root: Path, search_path: Sequence[str]) -> Packages:
    """Return the installed packages that modules with these names belong to, and what they need.

    Local ones that can be imported from the project's archive are left out, and so is thriftune itself. Raises
    SettingError for a package whose metadata are damaged.

    - `root`: the folder of the project.
    - `search_path`: the folders of sys.path that are in the project.
    """
    sent_with_project = {root / path for path in search_path}
    found: dict[str, Distribution] = {}
    extras: dict[str, frozenset[str]] = {}  # by package, those that were looked at
    local: set[str] = set()
    direct = packages_of(modules)
    left = [(name, frozenset[str]()) for name in sorted(direct)]
    while left:
        name, requested = left.pop()
        package = found.get(name) or installed(name)
        if package is None or name == OWN or (name in found and requested <= extras[name]):
            continue
        found[name] = package
        extras[name] = requested | extras.get(name, frozenset())
        if _is_sent(package):
            local.add(name)
        for needed in _needs(package, extras[name]):
            left.append((needed.name, needed.extras))
            if name in local and needed.here:
                direct.add(needed.name)
    found_modules = _modules_of_packages()
    pinned = {
        name: PinnedPackage(
            version=_version(package),
            source=_source(package),
            extras=sorted(extras[name]),
            requires=[each.text for each in _needs(package, extras[name]) if each.name not in local],
            modules=sorted(found_modules.get(name, ())),
        )
        for name, package in sorted(found.items())
        if name not in local and name not in _ALREADY_THERE
    }
    versions = {name: _version(found[name]) for name in sorted(direct & found.keys() - local)}
    sent = [found[name] for name in sorted(local) if not _is_in(sent_with_project, found[name])]
    return Packages(versions, sent, pinned)


class _Need(NamedTuple):
    """A package that another one needs."""

    name: str
    extras: frozenset[str]
    text: str  # as in the metadata
    here: bool  # on this machine, and not only on others


def _needs(package: Distribution, extras: Iterable[str]) -> list[_Need]:
    """Return what a package needs on this machine, or may need on others, with these extras.

    What is missing on this machine is left out, because the package works without it here.
    """
    from packaging.requirements import InvalidRequirement, Requirement  # comes with the extra "storage"

    needs = []
    for text in package.requires or ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:  # of an old package; what it means is not known
            continue
        marker, name = requirement.marker, normal_name(requirement.name)
        here = marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))
        if name in (OWN, *_ALREADY_THERE) or (not here and "extra" in str(marker)):
            continue
        if not here or installed(name) is not None:
            needs.append(_Need(name, frozenset(requirement.extras), text, here))
    return needs


def _is_sent(package: Distribution) -> bool:
    """Return whether a package is sent: as a wheel, or as a part of the project."""
    if origin_of(package) is None:
        return False
    return editable_folder(package) is not None or installed_bytes(package) <= MOST_BYTES


def _is_in(folders: Collection[Path], package: Distribution) -> bool:
    """Return whether an editable package is imported from one of these folders."""
    folder = editable_folder(package)
    return folder is not None and (folder in folders or folder / "src" in folders)


def _version(package: Distribution) -> str:
    version: str | None = package.version
    if not version or not re.fullmatch(r"[\w.+!-]+", version):
        raise SettingError(
            f"the metadata of the installed package {package.name} do not tell its version, so that it cannot be "
            "installed on other machines; install it again"
        )
    return version


def _source(package: Distribution) -> str | None:
    """Return from where other machines can install a package; see PinnedPackage."""
    origin = origin_of(package)
    if origin is None:
        return ""
    url: str = origin["url"]
    if "archive_info" not in origin or urlsplit(url).scheme not in ("http", "https"):
        return None
    digest = (origin["archive_info"].get("hashes") or {}).get("sha256")
    return f"{url}#sha256={digest}" if digest else url


def _modules_of_packages() -> dict[str, set[str]]:
    """Return the first parts of the names of all modules of each installed package."""
    modules: dict[str, set[str]] = {}
    for module, packages in packages_distributions().items():
        for package in packages:
            if module.isidentifier():
                modules.setdefault(normal_name(package), set()).add(module)
    return modules
