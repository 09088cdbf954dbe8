"""Run thriftune commands, in this process or in a process of their own."""

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

from click.testing import CliRunner, Result

from thriftune.cli import cli

MAIN = "from thriftune.cli import main; main()"
PATIENCE_SECONDS = 60.0  # enough for one condition or program on a busy machine

RunCli = Callable[..., Result]
"""A function like invoke()."""

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
    with (trial.folder / "resumed_after").open("a") as file:
        file.write(f"{trial.restore(lambda folder: None)}\\n")
    for step in trial.steps():
        time.sleep(float(Path("pause").read_text()))
        trial.report(loss=trial["x"] + 1 / step, save=lambda folder: (folder / "x").write_text("x"))
"""


def write_slow_study(folder: Path, pause: float) -> None:
    """Write a study whose steps take `pause` seconds.

    set_pause() changes the duration while the study runs.
    """
    (folder / "study.toml").write_text(SLOW_FILE)
    (folder / "slow.py").write_text(SLOW)
    set_pause(folder, pause)


def set_pause(folder: Path, pause: float) -> None:
    """Let the steps of a slow study take this many seconds from now on."""
    (folder / "pause.new").write_text(str(pause))
    (folder / "pause.new").replace(folder / "pause")


def invoke(*args: object, status: int = 0, answer: str = "") -> Result:
    """Run a command in this process, check its exit status, and return its result.

    `answer` is its standard input. Raises the exceptions that the command does not handle.
    """
    result = CliRunner().invoke(cli, [str(arg) for arg in args], input=answer)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == status, result.output
    return result


def start(*args: str, cwd: Path) -> subprocess.Popen[str]:
    """Start a command in a process of its own, and return the process."""
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
    """Run a command, check its exit status, and return its standard output and standard error.

    `list` and `show` run in this process, which is faster. Other commands run in a process of their own.
    """
    if args[0] in ("list", "show"):
        env = {"THRIFTUNE_HOME": str(cwd / "home"), "COLUMNS": "200"}
        with contextlib.chdir(cwd):
            result = CliRunner(env=env).invoke(cli, args)
        assert result.exit_code == status, result.output
        return result.stdout, result.stderr
    with start(*args, cwd=cwd) as process:
        out, err = process.communicate(timeout=2 * PATIENCE_SECONDS)
    assert process.returncode == status, f"status {process.returncode}\n{out}\n{err}"
    assert "Traceback" not in err
    return out, err


def run_json(*args: str, cwd: Path) -> Any:
    """Run a command with --json, and return the parsed output."""
    return parse_json(run(*args, "--json", cwd=cwd)[0])


def parse_json(text: str) -> Any:
    """Parse strict JSON; refuse NaN and Infinity, which Python's parser accepts."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def wait_until(condition: Callable[[], Any]) -> None:
    """Wait until the condition is true, for at most PATIENCE_SECONDS."""
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < give_up_at, "the condition did not become true"
        time.sleep(0.05)
