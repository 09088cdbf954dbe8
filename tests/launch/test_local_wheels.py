"""Tests that wheels of local packages are made, with and without a build."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.support.projects import editable, empty_site, install, source, write
from thriftune.engines import code_archive
from thriftune.errors import SettingError
from thriftune.launch.local_wheels import build_wheel


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return empty_site(tmp_path, monkeypatch)


def test_packs_an_installed_package(site: Path, tmp_path: Path) -> None:
    install(site, "first", {"url": "file:///gone", "dir_info": {}})
    wheel = build_wheel(distribution("first"), tmp_path)
    assert wheel.name == "first-1.5-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = [name.removeprefix("first-1.5.dist-info/") for name in archive.namelist()]
    assert names == ["first/__init__.py", "first/data.txt", "METADATA", "WHEEL", "RECORD"]
    first = wheel.read_bytes()
    assert build_wheel(distribution("first"), tmp_path).read_bytes() == first


def test_pip_installs_the_packed_wheel(site: Path, tmp_path: Path) -> None:
    install(site, "first", {"url": "file:///gone", "dir_info": {}})
    wheel = build_wheel(distribution("first"), tmp_path)
    target = tmp_path / "target"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    assert (target / "first/data.txt").read_text() == "x"


def test_says_which_file_of_an_installed_package_is_missing(site: Path, tmp_path: Path) -> None:
    install(site, "first", {"url": "file:///gone", "dir_info": {}})
    (site / "first/data.txt").unlink()
    with pytest.raises(
        SettingError, match=r"package first cannot be sent .*data\.txt cannot be read .*install it ag"
    ):
        build_wheel(distribution("first"), tmp_path)
    assert not list(tmp_path.glob("*.whl"))
    (site / "first-1.5.dist-info/WHEEL").unlink()
    with pytest.raises(SettingError, match="installed metadata are incomplete; install it again"):
        build_wheel(distribution("first"), tmp_path)


def test_builds_an_editable_package_once(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = source(tmp_path / "code", "second")
    install(site, "second", editable(folder))
    wheel = build_wheel(distribution("second"), tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("second/__init__.py") == b"value = 'second'\n"
    monkeypatch.setattr(sys, "executable", "/nowhere")  # the cache is used
    assert (
        build_wheel(distribution("second"), tmp_path) == wheel
    )  # although the build has added files to the folder


def test_builds_a_changed_package_again(site: Path, tmp_path: Path) -> None:
    folder = source(tmp_path / "code", "second")
    install(site, "second", editable(folder))
    build_wheel(distribution("second"), tmp_path)
    (folder / "src/second/__init__.py").write_text("value = 'changed'\n")
    with zipfile.ZipFile(build_wheel(distribution("second"), tmp_path)) as archive:
        assert archive.read("second/__init__.py") == b"value = 'changed'\n"


def test_shows_why_a_build_failed(site: Path, tmp_path: Path) -> None:
    folder = source(tmp_path / "code", "second", backend="no_such_backend")
    install(site, "second", editable(folder))
    with pytest.raises(
        SettingError, match=r"(?s)package second in .*code cannot be built.* ended with:\n.*no_such_ba"
    ):
        build_wheel(distribution("second"), tmp_path)
    assert [path for path in (tmp_path / "cache/thriftune/wheels").iterdir() if any(path.iterdir())] == []


def test_refuses_a_large_package(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "first", {"url": "file:///gone", "dir_info": {}})
    monkeypatch.setattr(code_archive, "MOST_BYTES", 10)
    with pytest.raises(
        SettingError, match=r"package first cannot .* wheel contains 5 files with .* at most 100 MB"
    ):
        build_wheel(distribution("first"), tmp_path)


def test_removes_wheels_that_were_not_used_for_long(site: Path, tmp_path: Path) -> None:
    install(site, "second", editable(source(tmp_path / "code", "second")))
    old = write(tmp_path / "cache/thriftune/wheels/old", "a.whl")
    for folder in (tmp_path / "cache/thriftune", old.parent):
        folder.chmod(0o700)
    os.utime(old, (0, 0))
    build_wheel(distribution("second"), tmp_path)
    assert not old.exists()
