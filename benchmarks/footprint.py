"""How light is it? The size of a fresh environment with nothing but thriftune, and the time to import it.

With --quick no environment is made: only the import is timed, in this one.
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

# Importing thriftune loads nothing until a name is used, so both are timed: the bare import, and all public names.
BARE = "import thriftune"
EVERYTHING = "import thriftune; [getattr(thriftune, name) for name in thriftune.__all__]"


def make_environment(folder: Path) -> Path:
    """Returns its interpreter."""
    say("making a fresh environment with only thriftune in it")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--constraint", f"{ROOT}/constraints.txt", str(ROOT)], check=True, stdout=sys.stderr)
    return python


def sizes(folder: Path) -> tuple[int, int]:
    """Bytes of all files in it, as shipped and with the bytecode that Python adds."""
    shipped = bytecode = 0
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            if path.suffix == ".pyc":
                bytecode += path.stat().st_size
            else:
                shipped += path.stat().st_size
    return shipped, shipped + bytecode


def import_seconds(python: Path, code: str, times: int) -> list[float]:
    """Of whole fresh processes, the start of Python included."""
    took = []
    subprocess.run([python, "-c", code], check=True)  # so that the bytecode is there
    for _ in range(times):
        started = time.perf_counter()
        subprocess.run([python, "-c", code], check=True)
        took.append(time.perf_counter() - started)
    return took


def unwanted(python: Path) -> list[str]:
    """Which of the things that must not be there are installed, or imported by the public names."""
    look = f"""{EVERYTHING}
import importlib.util, json, sys
names = {UNWANTED!r}
print(json.dumps([n for n in names if n in sys.modules or importlib.util.find_spec(n)]))"""
    run = subprocess.run([python, "-c", look], check=True, capture_output=True, text=True)
    return [str(name) for name in json.loads(run.stdout)]


def measure(options: argparse.Namespace) -> list[Row]:
    if options.quick:
        return _imports(Path(sys.executable), times=2, judge=False)
    with scratch() as folder:
        python = make_environment(folder / "venv")
        shipped, with_bytecode = sizes(next((folder / "venv" / "lib").glob("python*/site-packages")))
        found = unwanted(python)
        return [
            Row(
                "site-packages with nothing but thriftune, pip included",
                f"{shipped / 1e6:.0f} MB as shipped ({with_bytecode / 1e6:.0f} MB with bytecode)",
                bar=f"under {SIZE_BAR_MB:g} MB",
                met=shipped / 1e6 < SIZE_BAR_MB,
                data={"shipped_bytes": shipped, "with_bytecode_bytes": with_bytecode},
            ),
            *_imports(python, times=10, judge=True),
            Row(
                "torch, ray, web frameworks installed or imported",
                ", ".join(found) or "none",
                bar="none",
                met=not found,
                data={"looked_for": UNWANTED},
            ),
        ]


def _imports(python: Path, times: int, judge: bool) -> list[Row]:
    rows = []
    for what, code in (("import thriftune", BARE), ("import thriftune and use every public name", EVERYTHING)):
        say(f"{what}: {times} times")
        took = import_seconds(python, code, times)
        rows.append(
            Row(
                f"{what}, start of Python included",
                f"{median(took):.3f} s ({min(took):.3f} to {max(took):.3f})",
                bar=f"under {IMPORT_BAR_SECONDS:g} s",
                met=median(took) < IMPORT_BAR_SECONDS if judge else None,
                data={"seconds": took},
            )
        )
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure))
