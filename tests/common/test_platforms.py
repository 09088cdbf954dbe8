"""What a user is told on a system on which thriftune cannot work."""

from __future__ import annotations

import subprocess
import sys

import pytest

MEANS = {
    "win32": "this is win32; use WSL 2",
    "darwin": "this is darwin; use a Linux container or virtual machine",
    "freebsd14": "this is freebsd14; use a machine with Linux",
}


def run(platform: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run the code in a Python that takes itself for one of that platform."""
    code = f"import click, sys\nsys.platform = {platform!r}\n{code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("platform", MEANS)
def test_another_platform_is_refused_with_the_way_out(platform: str) -> None:
    says = f"thriftune runs on Linux only so far, and {MEANS[platform]}"
    done = run(platform, "import thriftune as tt\nprint(tt.__version__)\ntt.tune")
    assert done.returncode == 1
    assert done.stdout
    assert done.stderr.rstrip().endswith(f"ThriftuneError: {says}")
    done = run(platform, "from thriftune.cli import main\nsys.argv = ['thriftune', 'list']\nmain()")
    assert (done.returncode, done.stderr) == (1, f"error: {says}\n")


def test_linux_is_not_refused() -> None:
    assert run("linux", "import thriftune as tt\ntt.Float").returncode == 0
