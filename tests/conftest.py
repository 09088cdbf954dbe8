"""What tests of several rooms need of the machine they run on."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, settings

# A process settles once whether Ray's clusters ask for a token; the tests connect to several, one after the other.
os.environ.setdefault("RAY_AUTH_MODE", "disabled")

# Hypothesis fails an example that takes over 200 ms, and a test whose examples are slow to draw. On a busy machine
# any example may be.
settings.register_profile(
    "any_machine",
    settings(),  # what Hypothesis takes by itself, which differs in CI
    deadline=None,
    suppress_health_check=[*settings().suppress_health_check, HealthCheck.too_slow],
)
settings.load_profile("any_machine")
settings.register_profile("quick", max_examples=20)  # for `make quick`


@pytest.fixture(autouse=True, scope="session")
def _own_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The tests read no configuration of whoever runs them, and neither do the processes that they start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.delenv("THRIFTUNE_STORE", raising=False)
        yield


def unable(why: str) -> NoReturn:
    """Something a test needs is missing. In CI that is a failure; elsewhere the test is skipped."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None and not os.environ.get("CI"),
    reason="torch is not installed; `make torch` adds it",
)
"""Skips a test where torch is missing. In CI, which installs torch, the test runs and fails."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 megabytes."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        unable(f"a file system cannot be mounted here: {mounted.stderr}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)  # lazy: none stays, whatever went wrong


def fill(disk: Path) -> Path:
    """Takes all the room that is left; returns what to remove to have it back."""
    ballast = disk / "ballast"
    for size in (1 << 16, 1 << 12, 1):
        try:
            with ballast.open("ab", buffering=0) as file:
                while file.write(bytes(size)) == size:
                    pass
        except OSError:
            continue
    return ballast
