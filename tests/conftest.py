"""Settings and helpers of tests that depend on the machine."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, settings

# A process reads only once whether Ray's clusters need a token, and tests connect to several clusters in turn.
os.environ.setdefault("RAY_AUTH_MODE", "disabled")

# Hypothesis fails an example that takes over 200 ms, and a test whose examples are slow to generate. On a busy
# machine, any example may be slow.
settings.register_profile(
    "any_machine",
    settings(),  # Hypothesis's defaults, which differ in CI
    deadline=None,
    suppress_health_check=[*settings().suppress_health_check, HealthCheck.too_slow],
)
settings.load_profile("any_machine")
settings.register_profile("quick", max_examples=20)  # for `make quick`

pytest_plugins = ["tests.support.object_servers"]


@pytest.fixture(autouse=True, scope="session")
def _ignore_user_configuration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide the user's configuration from the tests and from the processes that they start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.delenv("THRIFTUNE_STORE", raising=False)
        yield


def fail_or_skip(reason: str) -> NoReturn:
    """Fail the test in CI, and skip it elsewhere, because this machine lacks something that the test needs."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None and not os.environ.get("CI"),
    reason="torch is not installed; `make torch` adds it",
)
"""Skips a test if torch is missing. In CI, which installs torch, the test runs and fails instead."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return the folder of a mounted file system of 16 megabytes."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        fail_or_skip(f"a file system cannot be mounted here: {mounted.stderr}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)  # lazy: works while a process still uses it


def fill(disk: Path) -> Path:
    """Write a file that fills the disk, and return its path."""
    ballast = disk / "ballast"
    for size in (1 << 16, 1 << 12, 1):
        try:
            with ballast.open("ab", buffering=0) as file:
                while file.write(bytes(size)) == size:
                    pass
        except OSError:
            continue
    return ballast
