"""Tests of numbers and amounts as people read them."""

from __future__ import annotations

import pytest

from thriftune.common.formatting import format_bytes


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1_000, "1 kB"),
        (1_536, "1.54 kB"),
        (999_600, "1 MB"),
        (3 * 10**9, "3 GB"),
        (12_340 * 10**9, "12.3 TB"),
    ],
)
def test_bytes(count: int, text: str) -> None:
    assert format_bytes(count) == text
