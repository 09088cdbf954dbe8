"""Compare the packages of a machine with those of the driver, and find those that must be installed there.

A package that the machine has is never replaced, and what it needs is not looked at: the machine's build of
PyTorch may need other packages than the driver's.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from thriftune.errors import SettingError

_MOST_SHOWN = 5
"""How many packages a sentence names."""

_INSTALL = "install it on the machines, such as in their image"


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the packages of this machine differ from the driver's.

    - `missing`: what must be installed here, as lines of a requirements file, by name. It is complete: it includes
      what these packages need.
    - `remark`: a sentence about packages with other versions; empty if there are none.
    """

    missing: Mapping[str, str]
    remark: str


def compare_packages(versions: Mapping[str, str], packages: Mapping[str, Mapping[str, Any]]) -> Comparison:
    """Compare the packages of this machine with those of the driver.

    Raises SettingError if a package is missing that cannot be installed.

    - `versions`: of the packages that the study's code imports, by name.
    - `packages`: these and all that they need, by name, as launch.package_needs.PinnedPackage has them. A missing
      package that is not among them is only remarked.
    """
    differing = {}
    missing: dict[str, str] = {}
    left = []
    for name, version in versions.items():
        here = _installed_version(name)
        if here is None and name in packages and not _has_modules(packages[name]["modules"]):
            left.append(name)
        elif here != version:
            differing[name] = f"{name} is {here or 'missing'} there and {version} here"
    while left:
        name = left.pop()
        if name in missing:
            continue
        missing[name] = _line(name, packages[name])
        for needed, allowed in _needs_here(packages[name]):
            here = _installed_version(needed)
            if here is not None:
                if needed not in differing and not _contains(allowed, here):
                    version = packages[needed]["version"] if needed in packages else "missing"
                    differing[needed] = f"{needed} is {here} there and {version} here"
            elif needed not in packages:
                raise SettingError(
                    f"{socket.gethostname()} lacks the package {needed}, which {name} needs there, but not on the "
                    f"machine that started the study; {_INSTALL}"
                )
            elif not _has_modules(packages[needed]["modules"]):
                left.append(needed)
    return Comparison(dict(sorted(missing.items())), _remark(list(differing.values())))


def shortened(names: Iterable[str], others: str = "others") -> str:
    """Return the first names, and how many there are besides."""
    names = list(names)
    rest = f", and {len(names) - _MOST_SHOWN} {others}" if len(names) > _MOST_SHOWN else ""
    return ", ".join(names[:_MOST_SHOWN]) + rest


def _remark(differing: list[str]) -> str:
    if not differing:
        return ""
    shown = shortened(differing, "others differ")
    return f"a machine has other packages than the one that started the study: {shown}"


def _line(name: str, package: Mapping[str, Any]) -> str:
    """Return the line of a requirements file for exactly this package."""
    if package["source"] == "":
        return f"{name}=={package['version']}"
    if package["source"] is None:
        raise SettingError(
            f"{socket.gethostname()} lacks the package {name} {package['version']}. It cannot be installed there: "
            f"it was installed from a file or a folder on the machine that started the study, and is too large to "
            f"be sent; {_INSTALL}"
        )
    return f"{name} @ {package['source']}"


def _needs_here(package: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Yield (name, allowed versions) of what a package needs on this machine."""
    from packaging.requirements import Requirement  # imported only if something is missing
    from packaging.utils import canonicalize_name

    for text in package["requires"]:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *package["extras"])):
            yield canonicalize_name(requirement.name), requirement.specifier


def _contains(allowed: Any, version: str) -> bool:
    """Return whether a version is allowed. Odd ones, which some builds have, are."""
    try:
        return bool(allowed.contains(version, prereleases=True))
    except ValueError:
        return True


def _installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _has_modules(modules: Iterable[str]) -> bool:
    """Return whether modules can be imported here without their package.

    They may belong to another package, such as a build for other processors that has another name. There must be
    at least one. A folder without code does not count.
    """
    modules = list(modules)
    for module in modules:
        spec = None
        with contextlib.suppress(ImportError, ValueError, AttributeError):  # not every finder is complete
            spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            return False
    return bool(modules)
