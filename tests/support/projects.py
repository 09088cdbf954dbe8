"""Create projects, git repositories and installed packages for tests. Nothing of it needs a network."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest


def write(folder: Path, *names: str) -> Path:
    """Create files with their names as content; return the folder."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


def git(folder: Path, *arguments: str) -> None:
    settings = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *settings, "-C", str(folder), *arguments], check=True, capture_output=True)


def empty_site(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Add an empty site-packages folder to sys.path, and return it. Builds of packages need no network then.

    The user's cache is in `folder`, too.
    """
    site = folder / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # pip turns isolation off for a value that means "no"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return site


def source(folder: Path, name: str, requires: str = "", backend: str = "setuptools.build_meta") -> Path:
    """Write the source of a package with one module."""
    write(folder, f"src/{name}/__init__.py")
    (folder / f"src/{name}/__init__.py").write_text(f"value = {name!r}\n")
    (folder / "pyproject.toml").write_text(
        f'[build-system]\nrequires = []\nbuild-backend = "{backend}"\n'
        f'[project]\nname = "{name}"\nversion = "1.5"\ndependencies = [{requires}]\n'
    )
    return folder


def install(site: Path, name: str, origin: dict[str, object] | None, requires: tuple[str, ...] = ()) -> None:
    """Write an installed package as pip does. It is editable if `origin` says so."""
    editable = bool(origin and origin.get("dir_info"))
    info = site / f"{name}-1.5.dist-info"
    files = {
        f"{info.name}/METADATA": "\n".join(
            [f"Name: {name}", "Version: 1.5", *map("Requires-Dist: {}".format, requires)]
        )
    }
    files[f"{info.name}/WHEEL"] = "Wheel-Version: 1.0\nTag: py3-none-any\n"
    files |= {f"{info.name}/INSTALLER": "pip", f"{info.name}/RECORD": ""}
    if origin is not None:
        files[f"{info.name}/direct_url.json"] = json.dumps(origin)
    if not editable:
        files |= {f"{name}/__init__.py": f"value = {name!r}\n", f"{name}/data.txt": "x"}
    for path, text in files.items():
        write(site, path)
        (site / path).write_text(text)
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in [*files, "../../bin/run", f"{name}/a.pyc"]))


def editable(folder: Path) -> dict[str, object]:
    return {"url": folder.as_uri(), "dir_info": {"editable": True}}
