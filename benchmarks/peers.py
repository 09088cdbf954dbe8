"""Where do the peers live? Each in a virtual environment of its own, in out/peers or $THRIFTUNE_PEERS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.common import OUT, say

# Torch by itself and first: a build that is not pinned may bring gigabytes for graphics cards.
_TORCH = ("torch==2.13.0",)

PINS = {
    "optuna": "optuna==5.0.0",
    "ray": "ray[tune]==2.60.0",
    "optuna-gp": "optuna==5.0.0",
    "smac": "smac==2.4.1",
    "syne-tune": "syne-tune==0.13.0",
    "ax": "ax-platform==1.3.1",
    "hebo": "HEBO==0.3.6",
    "onnxruntime": "onnxruntime==1.31.1",
}
# What has to be there before, step by step. The pinned one comes last, so that where it is, everything is.
BEFORE: dict[str, tuple[tuple[str, ...], ...]] = {
    "optuna-gp": (_TORCH, ("scipy",)),
    "syne-tune": (
        ("numpy<2", "scipy", "pandas", "autograd", "dill", "sortedcontainers", "tqdm"),
        ("pyyaml", "typing-extensions", "statsmodels"),
    ),
    "ax": (_TORCH,),
    "hebo": (
        _TORCH,
        ("numpy<2", "scipy", "pandas", "scikit-learn", "gpytorch", "pymoo", "catboost", "disjoint-set"),
    ),
}
# Their own demands cannot be met any more; what they need of them is in BEFORE.
WITHOUT_DEPENDENCIES = {"syne-tune", "hebo"}


def python(name: str) -> Path:
    """The peer's interpreter; its environment is made first if it is not there in the pinned version."""
    folder = Path(os.environ.get("THRIFTUNE_PEERS") or OUT / "peers").absolute() / name
    interpreter = folder / "bin" / "python"
    package, _, wanted = PINS[name].partition("==")
    if _version(interpreter, package.partition("[")[0]) != wanted:
        say(f"installing {PINS[name]} into {folder}, once; a large peer takes some minutes")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        install = [str(interpreter), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        for step in BEFORE.get(name, ()):
            subprocess.run([*install, *step], check=True, stdout=sys.stderr)
        bare = ["--no-deps"] if name in WITHOUT_DEPENDENCIES else []
        subprocess.run([*install, *bare, PINS[name]], check=True, stdout=sys.stderr)
    return interpreter


def _version(interpreter: Path, name: str) -> str | None:
    if not interpreter.exists():
        return None
    ask = f"import importlib.metadata; print(importlib.metadata.version({name!r}))"
    found = subprocess.run([interpreter, "-c", ask], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None
