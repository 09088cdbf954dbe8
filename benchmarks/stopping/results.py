"""The files of finished stopping runs: one for each method, with one line of JSON for each run."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.run_files import Keys
from benchmarks.search.tables import ROOT

FOLDER = ROOT / "out" / "stopping" / "results"

KEYS: Keys = ("table", "seed", "workers")


def file_of(folder: Path, method: str) -> Path:
    """Return the file of a method, whose name has only characters that every file system allows."""
    return folder / (re.sub(r"[^\w.-]+", "_", method) + ".jsonl")
