"""What all tests of how trials use their machine need of their own process."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_thread_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset the variables: imported benchmarks set them, and numbers that a user has set would be kept."""
    for name in [name for name in os.environ if name.endswith("_NUM_THREADS")]:
        monkeypatch.delenv(name)
