"""Writes a folder with small wheels, from which pip installs without a network."""

from __future__ import annotations

from pathlib import Path

import pytest

from thriftune.common.wheel_files import write_wheel_file


def package_index(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create an empty folder of wheels, which is the only index for pip from now on. uv is not used."""
    folder.mkdir()
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_NO_INDEX", "UV_FIND_LINKS", "UV_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def add_wheel(
    index: Path, name: str, version: str = "1.5", requires: tuple[str, ...] = (), tag: str = "py3-none-any"
) -> None:
    """Write the wheel of a package with one module, whose `value` is its version."""
    info = f"{name}-{version}.dist-info"
    fields = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    metadata = "\n".join([*fields, *map("Requires-Dist: {}".format, requires)])
    files = [
        (f"{name}/__init__.py", f"value = {version!r}\n".encode()),
        (f"{info}/METADATA", f"{metadata}\n".encode()),
        (f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: {tag}\n".encode()),
    ]
    write_wheel_file(index / f"{name}-{version}-{tag}.whl", info, files)
