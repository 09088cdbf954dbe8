"""What all tests of how trials use their machine need of their own process."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def nobody_says_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks set them where they are imported, and whoever has said how many there shall be is obeyed."""
    for name in [name for name in os.environ if name.endswith("_NUM_THREADS")]:
        monkeypatch.delenv(name)
