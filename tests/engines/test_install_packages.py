"""Tests that packages which a machine lacks are installed once, whole, and never replace what it has."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.package_index import add_wheel, package_index
from tests.support.projects import write
from thriftune.engines import install_packages as installing
from thriftune.engines import node_cache
from thriftune.engines.install_packages import install_packages
from thriftune.errors import SettingError

_INSTALL = """
import json, sys
from thriftune.engines.install_packages import install_packages
print(install_packages(json.loads(sys.argv[1])).folder, flush=True)
"""

SDIST = """
import pathlib, time
pathlib.Path({started!r}).touch()
while not pathlib.Path({go!r}).exists():
    time.sleep(0.05)
from setuptools import setup
setup(name="slow", version="1.5", py_modules=["slow"])
"""


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(node_cache, "_used_locks", {})
    return package_index(tmp_path / "index", monkeypatch)


def folders(tmp_path: Path) -> list[Path]:
    """Return what is in the cache besides locks."""
    cache = tmp_path / "cache/thriftune/packages"
    return [path for path in cache.iterdir() if path.suffix not in (".lock", ".used")]


def value(folder: str, module: str) -> str:
    """Return the value of a module, as a process imports it that has the folder at the end of its path."""
    code = f"import sys; sys.path.append(sys.argv[1]); import {module}; print({module}.value)"
    process = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    return process.stdout.strip()


def start(lines: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", _INSTALL, json.dumps(lines)], stdout=subprocess.PIPE, text=True)


def test_installs_exactly_the_listed_packages_once(index: Path, tmp_path: Path) -> None:
    for version in ("1.4", "1.5", "1.6"):
        add_wheel(index, "first", version, ("second",))
    add_wheel(index, "second")
    folder, remark = install_packages({"first": "first==1.5"})
    assert sorted(path.name for path in Path(folder).iterdir()) == ["first", "first-1.5.dist-info"]
    assert value(folder, "first") == "1.5"
    assert (Path(folder).parent / "requirements.txt").read_text() == "first==1.5\n"
    shutil.rmtree(index)
    assert install_packages({"first": "first==1.5"}).folder == folder  # without the index
    assert len(folders(tmp_path)) == 1
    assert remark == "" or remark.startswith("installed on ")


def test_each_list_has_a_folder_of_its_own(index: Path) -> None:
    add_wheel(index, "first")
    add_wheel(index, "second")
    one = install_packages({"first": "first==1.5"}).folder
    both = install_packages({"first": "first==1.5", "second": "second==1.5"}).folder
    assert one != both
    assert (value(both, "first"), value(both, "second")) == ("1.5", "1.5")


def test_tells_what_was_installed_after_some_seconds(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installing, "_QUICK_SECONDS", -1.0)
    for number in range(7):
        add_wheel(index, f"package{number}")
    lines = {f"package{number}": f"package{number}==1.5" for number in range(7)}
    remark = install_packages(lines).remark
    assert remark.startswith("installed on ")
    assert " s: package0==1.5, package1==1.5, " in remark
    assert remark.endswith("package4==1.5, and 2 others")
    monkeypatch.setattr(installing, "_QUICK_SECONDS", 0.0)
    assert install_packages(lines).remark == ""  # another process has installed it


@pytest.mark.parametrize("tag", ["", "py3-none-win_amd64"])
def test_says_what_cannot_be_installed(index: Path, tmp_path: Path, tag: str) -> None:
    if tag:
        add_wheel(index, "first", tag=tag)
    with pytest.raises(SettingError) as caught:
        install_packages({"first": "first==1.5"})
    message = str(caught.value)
    assert f"{os.uname().nodename} lacks packages that the code of the study needs" in message
    assert "cannot be installed there: first==1.5. Install them on the machines" in message
    assert "No matching distribution found for first==1.5" in message.partition("ended with:\n")[2]
    assert folders(tmp_path) == []
    add_wheel(index, "first")
    assert install_packages({"first": "first==1.5"}).folder


def test_configuration_that_contradicts_a_folder_is_ignored(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_wheel(index, "first")
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PIP_REQUIRE_VIRTUALENV", "1")
    assert value(install_packages({"first": "first==1.5"}).folder, "first") == "1.5"


def test_uses_the_pip_that_python_brings(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ensurepip")
    add_wheel(index, "first")
    monkeypatch.setattr(installing, "_has_pip", lambda: False)
    monkeypatch.setattr(installing, "_uv", lambda: None)
    folder = install_packages({"first": "first==1.5"}).folder
    assert value(folder, "first") == "1.5"
    assert sorted(path.name for path in Path(folder).parent.iterdir()) == ["requirements.txt", "site"]


def test_modules_of_the_working_folder_do_not_matter(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_wheel(index, "first")
    monkeypatch.chdir(write(tmp_path / "here", "pip.py", "types.py", "logging.py"))
    assert install_packages({"first": "first==1.5"}).folder


def test_works_without_a_home(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_wheel(index, "first")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    assert value(install_packages({"first": "first==1.5"}).folder, "first") == "1.5"


def test_ends_an_installer_that_takes_too_long(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installing, "_LIMIT_SECONDS", 0.3)
    monkeypatch.setattr(installing, "_uv", lambda: None)
    monkeypatch.setattr(installing, "_has_pip", lambda: True)
    slow_package(index, tmp_path)
    with pytest.raises(SettingError, match=r"slow==1\.5(.|\n)*\nended after 0 minutes"):
        install_packages({"slow": "slow==1.5"})
    assert folders(tmp_path) == []


@pytest.mark.parametrize(("pip", "uv", "used"), [("", "", "uv"), ("x", "", None), ("x", "y", "uv")])
def test_uv_is_used_unless_only_pip_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pip: str, uv: str, used: str | None
) -> None:
    program = write(tmp_path, "uv") / "uv"
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(installing, "_PIP_FILES", (str(tmp_path / "pip.conf"),))
    for name in (*installing._PIP_INDEX, *installing._UV_INDEX):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", pip)
    monkeypatch.setenv("UV_DEFAULT_INDEX", uv)
    assert installing._uv() == (str(program) if used else None)
    monkeypatch.setattr(installing, "_has_pip", lambda: False)
    assert installing._uv() == str(program)
    monkeypatch.undo()


@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not installed")
def test_installs_with_uv(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(index))
    add_wheel(index, "first", requires=("second",))
    assert installing._uv() is not None
    folder = install_packages({"first": "first==1.5"}).folder
    assert not (Path(folder) / "second").exists()
    assert value(folder, "first") == "1.5"
    with pytest.raises(SettingError, match=r"absent==1\.5.*ended with:\n(.|\n)*absent"):
        install_packages({"absent": "absent==1.5"})


def test_several_processes_install_at_the_same_time(index: Path, tmp_path: Path) -> None:
    add_wheel(index, "first")
    processes = [start({"first": "first==1.5"}) for _ in range(4)]
    found = {process.communicate(timeout=120)[0].strip() for process in processes}
    assert len(found) == 1
    assert value(found.pop(), "first") == "1.5"
    assert len(folders(tmp_path)) == 1


def slow_package(index: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Add a package whose build waits. Return the files that exist when it waits, and that let it go on."""
    started, go = tmp_path / "started", tmp_path / "go"
    source = write(tmp_path / "slow-1.5", "slow.py")
    (source / "slow.py").write_text("value = 'slow'\n")
    (source / "setup.py").write_text(SDIST.format(started=str(started), go=str(go)))
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: slow\nVersion: 1.5\n")
    shutil.make_archive(str(index / "slow-1.5"), "gztar", tmp_path, "slow-1.5")
    return started, go


def test_a_kill_in_the_middle_leaves_nothing_that_is_used(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # pip turns isolation off for a value that means "no"
    started, go = slow_package(index, tmp_path)
    killed = start({"slow": "slow==1.5"})
    waiting = None
    try:
        while not started.exists():
            assert killed.poll() is None
            time.sleep(0.05)
        waiting = start({"slow": "slow==1.5"})
        killed.send_signal(signal.SIGKILL)
        go.touch()
        folder = waiting.communicate(timeout=120)[0].strip()
        assert value(folder, "slow") == "slow"
    finally:
        for process in filter(None, (killed, waiting)):
            process.kill()
            process.communicate()
    assert [str(path / "site") for path in folders(tmp_path)] == [folder]
