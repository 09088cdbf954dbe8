"""The example of `make demo`: what it ends with is there."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

import thriftune as tt
from tests import ROOT


def test_the_demo_ends_with_the_tuned_model_its_cost_and_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    settings = ["--store", "out/studies.db", "--trials", "3", "--max-steps", "2", "--plot", "pictures/digits.png"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "digits.py"), *settings],
        cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    best = tt.load("digits", tmp_path / "out" / "studies.db").best
    assert best.value is not None
    first, *_ = done.stdout.splitlines()
    assert re.fullmatch(
        rf"best model +validation loss {best.value:.4f}, accuracy \d+\.\d% \(trial {best.id}\)", first
    )
    printed = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in done.stdout.splitlines() if line[0] != " ")
    network = pickle.loads((Path(printed["saved in"]) / "net.pickle").read_bytes())
    assert network.hidden_layer_sizes == (best.config["width"],)
    assert "if rented (AWS " in printed["cost"]
    assert (tmp_path / printed["picture"]).read_bytes().startswith(b"\x89PNG")
    assert printed["look closer"] == "thriftune show digits --store out/studies.db"


def test_the_makefile_runs_what_is_there() -> None:
    """Only the words of its commands are looked at: some of them take minutes."""
    done = subprocess.run(
        ["make", "--dry-run", "demo", "tour"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    commands = [line for line in done.stdout.splitlines() if line.startswith(".venv/bin/")]
    files = {word for line in commands for word in line.split() if word.startswith("examples/")}
    assert {"examples/digits.py", "examples/plan/study.toml", "examples/spot/study.toml"} == files
    assert all((ROOT / file).exists() for file in files)
