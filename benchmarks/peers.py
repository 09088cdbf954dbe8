"""Install each peer in a virtual environment, in out/peers or $THRIFTUNE_PEERS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.common import OUT, say

# Torch is installed first and alone, because a build that is not pinned may download gigabytes for graphics cards.
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
    "s3fs": "s3fs==2026.9.0",  # apart from boto3: in one environment, pip takes an ancient s3fs
    "boto3": "boto3==1.44.5",
}
# Packages to install before the peer, in steps. The peer comes last: if it is installed, everything is.
PREREQUISITES: dict[str, tuple[tuple[str, ...], ...]] = {
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
# The versions that these require are no longer available; PREREQUISITES has the packages that they need.
WITHOUT_DEPENDENCIES = {"syne-tune", "hebo"}


def python(name: str) -> Path:
    """Return the interpreter of a peer's environment. Make the environment unless it has the pinned version."""
    folder = Path(os.environ.get("THRIFTUNE_PEERS") or OUT / "peers").absolute() / name
    interpreter = folder / "bin" / "python"
    package, _, pinned_version = PINS[name].partition("==")
    if _version(interpreter, package.partition("[")[0]) != pinned_version:
        say(f"installing {PINS[name]} into {folder}; this is done once, and a large peer takes some minutes")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        install = [str(interpreter), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        for step in PREREQUISITES.get(name, ()):
            subprocess.run([*install, *step], check=True, stdout=sys.stderr)
        no_dependencies = ["--no-deps"] if name in WITHOUT_DEPENDENCIES else []
        subprocess.run([*install, *no_dependencies, PINS[name]], check=True, stdout=sys.stderr)
    return interpreter


def _version(interpreter: Path, name: str) -> str | None:
    if not interpreter.exists():
        return None
    code = f"import importlib.metadata; print(importlib.metadata.version({name!r}))"
    process = subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=False)
    return process.stdout.strip() or None
