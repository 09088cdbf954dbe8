"""Where are the finished runs? A file a method in out/search/results, a line of JSON a run."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Runs = dict[tuple[str, int, int], dict[str, Any]]
"""Finished runs by problem, seed and parallel."""


def file_of(folder: Path, method: str) -> Path:
    return folder / f"{method}.jsonl"


def read(file: Path) -> Runs:
    """Of several for the same problem, seed and parallel the last counts."""
    found: Runs = {}
    with contextlib.suppress(FileNotFoundError):
        for line in file.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # one that was being written when it was killed
                done = json.loads(line)
                found[done["problem"], done["seed"], done["parallel"]] = done
    return found


def append(file: Path, done: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as lines:
        lines.write(json.dumps(done) + "\n")


def forget(file: Path, problems: Sequence[str], seeds: Sequence[int], parallel: Sequence[int]) -> None:
    """Takes these runs out, so that they are made anew."""
    if not file.exists():
        return
    kept = [
        done
        for (problem, seed, at_once), done in read(file).items()
        if not (problem in problems and seed in seeds and at_once in parallel)
    ]
    partial = file.with_suffix(".partial")
    partial.write_text("".join(json.dumps(done) + "\n" for done in kept))
    partial.replace(file)


def numbers(written: str) -> list[int]:
    """0-9 or 1,4."""
    first, dash, last = written.partition("-")
    return list(range(int(first), int(last) + 1)) if dash else [int(number) for number in written.split(",")]
