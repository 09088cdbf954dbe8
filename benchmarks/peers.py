"""Where do the peers live? Each in a virtual environment of its own, in out/peers or $THRIFTUNE_PEERS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.common import OUT, say

PINS = {"optuna": "optuna==5.0.0", "ray": "ray[tune]==2.60.0"}


def python(name: str) -> Path:
    """The peer's interpreter; its environment is made first if it is not there in the pinned version."""
    folder = Path(os.environ.get("THRIFTUNE_PEERS") or OUT / "peers").absolute() / name
    interpreter = folder / "bin" / "python"
    wanted = PINS[name].partition("==")[2]
    if _version(interpreter, name) != wanted:
        say(f"installing {PINS[name]} into {folder}, once; a large peer takes some minutes")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        install = [str(interpreter), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", PINS[name]]
        subprocess.run(install, check=True, stdout=sys.stderr)
    return interpreter


def _version(interpreter: Path, name: str) -> str | None:
    if not interpreter.exists():
        return None
    ask = f"import importlib.metadata; print(importlib.metadata.version({name!r}))"
    found = subprocess.run([interpreter, "-c", ask], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None
