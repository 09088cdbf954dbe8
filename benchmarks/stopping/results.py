"""Where are the finished races? A file a method in out/stopping/results, a line of JSON a run."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

from benchmarks.search.results import append, numbers
from benchmarks.search.tables import ROOT

__all__ = ["FOLDER", "Case", "Runs", "append", "cases", "file_of", "forget", "numbers", "read"]

FOLDER = ROOT / "out" / "stopping" / "results"

Case = tuple[str, int, int]
"""Table, seed and workers."""
Runs = dict[Case, dict[str, Any]]
"""Finished runs."""


def cases(tables: Sequence[str], seeds: Sequence[int], workers: Sequence[int]) -> list[Case]:
    return [(table, seed, count) for seed in seeds for count in workers for table in tables]


def file_of(folder: Path, method: str) -> Path:
    """Of plain characters, so that it can be carried anywhere."""
    return folder / (re.sub(r"[^\w.-]+", "_", method) + ".jsonl")


def read(file: Path) -> Runs:
    """Of several for the same case the last counts."""
    found: Runs = {}
    with contextlib.suppress(FileNotFoundError):
        for line in file.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # one that was being written when it was killed
                done = json.loads(line)
                found[done["table"], done["seed"], done["workers"]] = done
    return found


def forget(file: Path, these: Container[Case]) -> None:
    """Takes these runs out, so that they are made anew."""
    if not file.exists():
        return
    kept = [done for case, done in read(file).items() if case not in these]
    partial = file.with_suffix(".partial")
    partial.write_text("".join(json.dumps(done) + "\n" for done in kept))
    partial.replace(file)
