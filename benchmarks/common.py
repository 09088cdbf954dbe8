"""Share what all benchmarks need: result rows, a description of the machine, the command line and the table."""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "out"

T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """One result of a benchmark."""

    what: str  # is measured
    figure: str  # the result, as text
    bar: str = ""  # what the figure should reach, as text; "" without a bar
    met: bool | None = None  # None without a bar, or for a run that is too small to judge
    data: dict[str, Any] = field(default_factory=dict)  # the raw numbers


Measure = Callable[[argparse.Namespace], list[Row]]

_SYNCED_WRITES = 200
"""Durable writes whose median is taken; they need less than a second on a slow disk."""

_FILE_COLUMNS = 150
"""Width of a table that is written to a file, which has no width of its own."""


def say(message: str) -> None:
    """Print progress to stderr; stdout has only the result."""
    print(message, file=sys.stderr, flush=True)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Make a temporary folder on the project's disk. /tmp may be in memory, where durable writes cost nothing."""
    home = OUT / "benchmarks"
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home) as folder:
        yield Path(folder)


def in_new_process(function: Callable[..., T], *arguments: object) -> T:
    """Call the function in a new process, and return its result."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(function, arguments)


@cache
def machine() -> dict[str, Any]:
    """Describe what the figures depend on: the machine, its load and the software."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "fdatasync_microseconds": round(_fdatasync_microseconds(), 1),
        "load_at_start": os.getloadavg()[0],
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _fdatasync_microseconds() -> float:
    """Return the median time of a durable write of 100 bytes on this disk."""
    times = []
    with scratch() as folder, (folder / "sync").open("wb", buffering=0) as file:
        for _ in range(_SYNCED_WRITES):
            started = time.perf_counter()
            file.write(b"x" * 100)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e6


def main(
    measure: Measure,
    arguments: Sequence[str] | None = None,
    further: Callable[[argparse.ArgumentParser], object] | None = None,
) -> int:
    """Run a benchmark as a command and print its rows. Return the exit status, 1 if a bar was missed.

    - `further`: adds the options that only this benchmark has.
    """
    parser = argparse.ArgumentParser(description=sys.modules[measure.__module__].__doc__)
    parser.add_argument("--json", action="store_true", help="print everything as JSON, with the raw figures")
    parser.add_argument(
        "--quick", action="store_true", help="use tiny sizes to check that the benchmark works; judge no figure"
    )
    parser.add_argument("--without-peers", action="store_true", help="measure thriftune alone")
    if further:
        further(parser)
    options = parser.parse_args(arguments)
    about = machine()
    rows = measure(options)
    command = " ".join(["python", "-m", _module(measure), *(sys.argv[1:] if arguments is None else arguments)])
    if options.json:
        results = [asdict(row) for row in rows]
        print(json.dumps({"command": command, "machine": about, "rows": results}, indent=2))
    else:
        show(rows, about, command)
    return int(any(row.met is False for row in rows))


def _module(measure: Measure) -> str:
    """Return the name under which `python -m` runs the benchmark's module."""
    spec = getattr(sys.modules[measure.__module__], "__spec__", None)
    return (spec.name if spec else measure.__module__).removesuffix(".__main__")


def show(rows: Sequence[Row], about: dict[str, Any], command: str) -> None:
    """Print the rows and the description of the machine as a table."""
    table = Table(title=command, caption=", ".join(f"{name} {value}" for name, value in about.items()))
    for column in ("what", "bar", "figure", "met"):
        table.add_column(column, overflow="fold")
    for row in rows:
        met = {True: "yes", False: "[bold red]no", None: ""}[row.met]
        table.add_row(row.what, row.bar, row.figure, met)
    console = Console()
    Console(width=None if console.is_terminal else _FILE_COLUMNS).print(table)
