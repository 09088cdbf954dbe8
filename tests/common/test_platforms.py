"""Tests of the error on systems that thriftune does not support."""

from __future__ import annotations

import subprocess
import sys

import pytest

ENDINGS = {
    "win32": "this is win32; use WSL 2",
    "darwin": "this is darwin; use a Linux container or virtual machine",
    "freebsd14": "this is freebsd14; use a machine with Linux",
}


def run(platform: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new Python process in which sys.platform is `platform`."""
    code = f"import click, sys\nsys.platform = {platform!r}\n{code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("platform", ENDINGS)
def test_other_platforms_are_refused_with_an_alternative(platform: str) -> None:
    message = f"thriftune runs only on Linux, and {ENDINGS[platform]}"
    process = run(platform, "import thriftune as tt\nprint(tt.__version__)\ntt.tune")
    assert process.returncode == 1
    assert process.stdout
    assert process.stderr.rstrip().endswith(f"ThriftuneError: {message}")
    process = run(platform, "from thriftune.cli import main\nsys.argv = ['thriftune', 'list']\nmain()")
    assert (process.returncode, process.stderr) == (1, f"error: {message}\n")


def test_linux_is_accepted() -> None:
    assert run("linux", "import thriftune as tt\ntt.Float").returncode == 0
