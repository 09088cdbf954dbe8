"""Store the results of benchmark runs on disk, and do the missing runs of a method.

`search` and `stopping` share this module. Their workers import it in a peer's environment, so it needs only the
standard library.
"""

from __future__ import annotations

import ast
import contextlib
import json
import sys
import traceback
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Case = tuple[str, int, int]
"""A problem or table, a seed, and the number of trials at a time."""

Keys = tuple[str, str, str]
"""The JSON keys of a case's three parts."""

Runs = dict[Case, dict[str, Any]]
"""The result of each finished run."""


@dataclass(frozen=True)
class Entry:
    """A method that takes part in a benchmark."""

    name: str
    adapter: str  # the file peer_<adapter>.py adapts it to the benchmark's protocol
    peer: str | None = None  # the name of its environment in benchmarks/peers.py; None for this environment
    options: dict[str, Any] = field(default_factory=dict)
    gaussian: bool = False  # it fits a Gaussian process, so its speed is compared with ours
    slow: bool = False  # a run takes minutes, so the method runs only if it is named


def cases_of(names: Sequence[str], seeds: Sequence[int], counts: Sequence[int]) -> list[Case]:
    """Return all cases, with the seeds in the outermost loop: a partial result is balanced over the names."""
    return [(name, seed, count) for seed in seeds for count in counts for name in names]


def read(file: Path, keys: Keys) -> Runs:
    """Return the finished runs in a file of JSON lines; the last run of a case counts."""
    runs: Runs = {}
    with contextlib.suppress(FileNotFoundError):
        for line in file.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # a line whose writer was killed
                run = json.loads(line)
                runs[run[keys[0]], run[keys[1]], run[keys[2]]] = run
    return runs


def append(file: Path, run: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as lines:
        lines.write(json.dumps(run) + "\n")


def remove(file: Path, keys: Keys, cases: Container[Case]) -> None:
    """Remove the runs of these cases, so that they are done again."""
    if not file.exists():
        return
    remaining = [run for case, run in read(file, keys).items() if case not in cases]
    partial = file.with_suffix(".partial")
    partial.write_text("".join(json.dumps(run) + "\n" for run in remaining))
    partial.replace(file)


def run_share(
    method: str,
    cases: Iterable[Case],
    file: Path,
    keys: Keys,
    run: Callable[[Case], dict[str, Any]],
    summary: Callable[[dict[str, Any]], str],
) -> None:
    """Do the runs that are not in the file yet, and append each one; called in a worker.

    A run that raises is recorded in a file of errors and does not end the others. `summary` describes a finished
    run.
    """
    finished = read(file, keys)
    for case in cases:
        if case in finished:
            continue
        label = f"{case[0]}, {keys[1]} {case[1]}, {keys[2]} {case[2]}"
        try:
            result = run(case)
        except Exception:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.with_suffix(".errors.txt").open("a") as errors:
                errors.write(f"--- {label}\n{traceback.format_exc()}")
            print(f"{method} failed: {label}", file=sys.stderr, flush=True)
            continue
        append(file, result)
        print(f"{method}: {label}: {summary(result)}", file=sys.stderr, flush=True)


def limit_torch_to_one_thread() -> None:
    """Limit torch, if a method has imported it; environment variables limit the other libraries."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


def parse_numbers(text: str) -> list[int]:
    """Parse "0-9" or "1,4" to a list of numbers."""
    first, dash, last = text.partition("-")
    return list(range(int(first), int(last) + 1)) if dash else [int(number) for number in text.split(",")]


def parse_share(text: str) -> tuple[int, int]:
    """Parse "i/n" to (i, n)."""
    index, count = map(int, text.split("/"))
    return index, count


def parse_options(text: str) -> dict[str, Any]:
    """Parse "key=value,key=value"; a value is a number, True, False, None or else a word."""
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return {key: _parse_value(value) for key, _, value in pairs}


def _parse_value(text: str) -> Any:
    with contextlib.suppress(ValueError, SyntaxError):
        return ast.literal_eval(text)
    return text
