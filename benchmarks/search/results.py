"""The files of finished search runs: one for each method in out/search/results, one line of JSON for each run."""

from __future__ import annotations

from pathlib import Path

from benchmarks.run_files import Keys

KEYS: Keys = ("problem", "seed", "parallel")


def file_of(folder: Path, method: str) -> Path:
    return folder / f"{method}.jsonl"
