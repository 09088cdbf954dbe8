"""What every test of the model runs with."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import pytest


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """On a busy machine, threads that share the work on a small matrix wait for each other a hundred times as long
    as it takes one of them to do it."""
    with import_module("threadpoolctl").threadpool_limits(1):  # untyped
        yield
