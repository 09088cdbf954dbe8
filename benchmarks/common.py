"""What do all benchmarks share? The rows they give, the machine they ran on, and how both are shown."""

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
    """One figure. `met` is None where there is no bar, or where the run was too small to tell."""

    what: str
    figure: str
    bar: str = ""
    met: bool | None = None
    data: dict[str, Any] = field(default_factory=dict)  # the raw figures behind it


Measure = Callable[[argparse.Namespace], list[Row]]


def say(message: str) -> None:
    """Progress, apart from the result."""
    print(message, file=sys.stderr, flush=True)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder on the disk that holds the project: /tmp may be memory, where durability costs nothing."""
    home = OUT / "benchmarks"
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home) as folder:
        yield Path(folder)


def fresh(function: Callable[..., T], *arguments: object) -> T:
    """The function's answer, from a new process that has done nothing else before."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(function, arguments)


@cache
def machine() -> dict[str, Any]:
    """What the figures depend on."""
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
    """What one durable write of 100 bytes costs at least on this disk, median."""
    times = []
    with scratch() as folder, (folder / "sync").open("wb", buffering=0) as file:
        for _ in range(200):
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
    """Measures and shows; 1 if a bar was missed. `further`: adds options that only this benchmark has."""
    parser = argparse.ArgumentParser(description=sys.modules[measure.__module__].__doc__)
    parser.add_argument("--json", action="store_true", help="print everything as JSON, raw figures included")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works; judges nothing")
    parser.add_argument("--without-peers", action="store_true", help="measure thriftune alone")
    if further:
        further(parser)
    options = parser.parse_args(arguments)
    about = machine()
    rows = measure(options)
    command = " ".join(["python", "-m", _module(measure), *(sys.argv[1:] if arguments is None else arguments)])
    if options.json:
        told = [asdict(row) for row in rows]
        print(json.dumps({"command": command, "machine": about, "rows": told}, indent=2))
    else:
        show(rows, about, command)
    return int(any(row.met is False for row in rows))


def _module(measure: Measure) -> str:
    """The module's name as it was given to python -m, also where it is the main one."""
    spec = getattr(sys.modules[measure.__module__], "__spec__", None)
    return (spec.name if spec else measure.__module__).removesuffix(".__main__")


def show(rows: Sequence[Row], about: dict[str, Any], command: str) -> None:
    table = Table(title=command, caption=", ".join(f"{name} {value}" for name, value in about.items()))
    for column in ("what", "bar", "figure", "met"):
        table.add_column(column, overflow="fold")
    for row in rows:
        met = {True: "yes", False: "[bold red]no", None: ""}[row.met]
        table.add_row(row.what, row.bar, row.figure, met)
    console = Console()
    # A file has no width; lines broken for a terminal of 80 columns would be hard to read in it.
    Console(width=None if console.is_terminal else 150).print(table)
