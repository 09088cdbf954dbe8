"""thriftune as a program of its own, as people run it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from thriftune.cli import cli

MAIN = "from thriftune.cli import main; main()"
PATIENCE_SECONDS = 60.0

SLOW_FILE = """
function = "slow.py:train"
minimize = "loss"
trials = 4
max_steps = 20
workers = 2
seed = 0
store = "studies.db"
[space]
x = { type = "float", low = 0.0, high = 1.0 }
"""

SLOW = """
import time
from pathlib import Path

def train(trial):
    state = trial.folder / "began"
    with state.open("a") as file:
        file.write(f"{trial.restore(lambda folder: None)}\\n")
    for step in trial.steps():
        time.sleep(float(Path("pause").read_text()))
        trial.report(loss=trial["x"] + 1 / step, save=lambda folder: (folder / "x").write_text("x"))
"""


def slow_study(folder: Path, pause: float) -> None:
    """A study whose steps take `pause` seconds, which a test may change meanwhile by writing the file again."""
    (folder / "study.toml").write_text(SLOW_FILE)
    (folder / "slow.py").write_text(SLOW)
    set_pause(folder, pause)


def set_pause(folder: Path, pause: float) -> None:
    (folder / "pause.new").write_text(str(pause))
    (folder / "pause.new").replace(folder / "pause")


def start(*args: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, *args],
        cwd=cwd,
        env={**os.environ, "THRIFTUNE_HOME": str(cwd / "home"), "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*args: str, cwd: Path, status: int = 0) -> tuple[str, str]:
    """Its stdout and stderr. Commands that only look run in this process, which saves the imports."""
    if args[0] in ("list", "show"):
        env = {"THRIFTUNE_HOME": str(cwd / "home"), "COLUMNS": "200"}
        with contextlib.chdir(cwd):
            looked = CliRunner(env=env).invoke(cli, args)
        assert looked.exit_code == status, looked.output
        return looked.stdout, looked.stderr
    with start(*args, cwd=cwd) as process:
        out, err = process.communicate(timeout=2 * PATIENCE_SECONDS)
    assert process.returncode == status, f"status {process.returncode}\n{out}\n{err}"
    assert "Traceback" not in err
    return out, err


def run_json(*args: str, cwd: Path) -> Any:
    return strict(run(*args, "--json", cwd=cwd)[0])


def strict(text: str) -> Any:
    """JSON without the words that it does not have."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def until(condition: Callable[[], Any]) -> Any:
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < give_up_at, "it did not come to pass"
        time.sleep(0.05)
    return found
