"""Fixtures for all tests of the model."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import pytest


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """Limit BLAS to one thread. On a busy machine, several threads wait for each other, at 100 times the cost."""
    with import_module("threadpoolctl").threadpool_limits(1):  # untyped
        yield
