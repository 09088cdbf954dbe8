"""Finds processes by a mark in their environment, which descendants inherit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_SECONDS = 60.0
"""How long to wait for changes that take milliseconds on an idle machine."""


def processes_with(mark: str) -> dict[int, str]:
    """Return command lines by process id, for processes with a mark in their environment or command line."""
    commands = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if mark.encode() in (entry / "environ").read_bytes() or mark in command:
                commands[int(entry.name)] = command
        except OSError:
            continue
    return commands


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def eventually(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS:g} s: {what}"
        time.sleep(0.02)


def wait_for_no_process(mark: str) -> None:
    """Wait until no process with the mark is left; fail the test if that takes too long."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while remaining := processes_with(mark):
        assert time.monotonic() < deadline, f"still running: {remaining}"
        time.sleep(0.05)
