"""Measure the size of an environment with only thriftune, and the time to import thriftune.

With --quick, only the import is measured, in the current environment.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from benchmarks.common import ROOT, Row, main, say, scratch

SIZE_BAR_MB = 200.0
IMPORT_BAR_SECONDS = 0.5

UNWANTED = ("torch", "ray", "tensorflow", "jax", "fastapi", "starlette", "uvicorn", "flask", "django", "aiohttp")

# `import thriftune` loads the module of a public name when the name is first used. So both are measured: the
# import alone, and with the use of all public names.
BARE = "import thriftune"
EVERYTHING = "import thriftune; [getattr(thriftune, name) for name in thriftune.__all__]"


def make_environment(folder: Path) -> Path:
    """Make a virtual environment with only thriftune, and return its interpreter."""
    say("making an environment with only thriftune")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--constraint", f"{ROOT}/constraints.txt", str(ROOT)], check=True, stdout=sys.stderr)
    return python


def sizes(folder: Path) -> tuple[int, int]:
    """Return the bytes of all files in a folder: without bytecode files, and with them."""
    shipped = bytecode = 0
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            if path.suffix == ".pyc":
                bytecode += path.stat().st_size
            else:
                shipped += path.stat().st_size
    return shipped, shipped + bytecode


def import_seconds(python: Path, code: str, times: int) -> list[float]:
    """Return how long new processes took to run the code, with the start of Python."""
    durations = []
    subprocess.run([python, "-c", code], check=True)  # writes the bytecode files
    for _ in range(times):
        started = time.perf_counter()
        subprocess.run([python, "-c", code], check=True)
        durations.append(time.perf_counter() - started)
    return durations


def unwanted(python: Path) -> list[str]:
    """Return the packages of UNWANTED that are installed, or imported by the public names."""
    code = f"""{EVERYTHING}
import importlib.util, json, sys
names = {UNWANTED!r}
print(json.dumps([n for n in names if n in sys.modules or importlib.util.find_spec(n)]))"""
    run = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return [str(name) for name in json.loads(run.stdout)]


def measure(options: argparse.Namespace) -> list[Row]:
    """Return the rows of sizes, import times and unwanted packages."""
    if options.quick:
        return _imports(Path(sys.executable), times=2, judge=False)
    with scratch() as folder:
        python = make_environment(folder / "venv")
        shipped, with_bytecode = sizes(next((folder / "venv" / "lib").glob("python*/site-packages")))
        packages = unwanted(python)
        return [
            Row(
                "site-packages with only thriftune and pip",
                f"{shipped / 1e6:.0f} MB as shipped ({with_bytecode / 1e6:.0f} MB with bytecode)",
                bar=f"under {SIZE_BAR_MB:g} MB",
                met=shipped / 1e6 < SIZE_BAR_MB,
                data={"shipped_bytes": shipped, "with_bytecode_bytes": with_bytecode},
            ),
            *_imports(python, times=10, judge=True),
            Row(
                "torch, ray, web frameworks installed or imported",
                ", ".join(packages) or "none",
                bar="none",
                met=not packages,
                data={"looked_for": UNWANTED},
            ),
        ]


def _imports(python: Path, times: int, judge: bool) -> list[Row]:
    rows = []
    for what, code in (("import thriftune", BARE), ("import thriftune and use every public name", EVERYTHING)):
        say(f"{what}: {times} times")
        durations = import_seconds(python, code, times)
        rows.append(
            Row(
                f"{what}, with the start of Python",
                f"{median(durations):.3f} s ({min(durations):.3f} to {max(durations):.3f})",
                bar=f"under {IMPORT_BAR_SECONDS:g} s",
                met=median(durations) < IMPORT_BAR_SECONDS if judge else None,
                data={"seconds": durations},
            )
        )
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure))
