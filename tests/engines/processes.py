"""Which processes are there? Found by a mark in their environment, which descendants inherit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_SECONDS = 60.0
"""For what takes milliseconds on a machine that is not busy."""


def marked(mark: str) -> dict[int, str]:
    """The processes with "NAME=value" among their variables, or in their command line: pid and command line."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if mark.encode() in (entry / "environ").read_bytes() or mark in command:
                found[int(entry.name)] = command
        except OSError:
            continue
    return found


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def eventually(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS:g} s: {what}"
        time.sleep(0.02)


def all_gone(mark: str) -> None:
    """Waits until nothing with the mark is left; what is still there after that fails the test."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left := marked(mark):
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.05)
