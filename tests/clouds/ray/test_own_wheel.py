"""Tests that pip installs the wheel of this thriftune, and that the installed package equals this one."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import thriftune
from thriftune.clouds.ray.own_wheel import wheel_name, write_wheel
from thriftune.errors import ThriftuneError


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_wheel(tmp_path_factory.mktemp("wheel"))


def test_contains_the_whole_package(wheel: Path) -> None:
    assert wheel.name == wheel_name() == f"thriftune-{thriftune.__version__}-py3-none-any.whl"
    assert [path.name for path in wheel.parent.iterdir()] == [wheel.name]
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        assert opened.testzip() is None
        metadata = opened.read(f"thriftune-{thriftune.__version__}.dist-info/METADATA").decode()
    home = Path(thriftune.__file__).parent
    modules = {f"thriftune/{path.relative_to(home).as_posix()}" for path in home.rglob("*.py")}
    assert modules | {"thriftune/py.typed", "thriftune/market/catalog.csv"} <= set(names)
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert f"Version: {thriftune.__version__}\n" in metadata


def test_pip_installs_the_wheel_and_the_result_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    pytest.importorskip("pip")
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    python = str(home / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    subprocess.run([*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel)], check=True, timeout=300)
    build_again = (
        "import thriftune, sys, pathlib\n"
        "from thriftune.clouds.ray.own_wheel import write_wheel\n"
        "assert thriftune.__file__.startswith(sys.prefix), thriftune.__file__\n"
        "write_wheel(pathlib.Path(sys.argv[1]))\n"
        "print(thriftune.__version__)\n"
    )
    process = subprocess.run(
        [python, "-I", "-c", build_again, str(tmp_path)], capture_output=True, text=True, timeout=300, check=True
    )
    assert process.stdout.strip() == thriftune.__version__
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()
    assert (home / "bin" / "thriftune").exists()


def test_a_failed_build_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thriftune.clouds.ray.own_wheel.__version__", "9.9")
    with pytest.raises(
        ThriftuneError, match=r"is installed here, but version 9\.9 runs, from .*; in its clone, run: pip install"
    ):
        write_wheel(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        write_wheel(tmp_path / "no folder")


def test_explains_that_a_clone_is_not_installed(tmp_path: Path) -> None:
    home = Path(thriftune.__file__).parent.parent
    code = (
        f"import sys; sys.path.insert(0, {str(home)!r})\nfrom thriftune.clouds.ray.own_wheel import write_wheel\n"
    )
    code += "from pathlib import Path\nwrite_wheel(Path('.'))"
    process = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "because it is not installed here; in its clone, run: pip install ." in process.stderr
