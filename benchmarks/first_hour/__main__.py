"""Compare the lines of code of a study with Optuna's, and measure how soon a fatal bug is shown.

The scripts in this folder do the same task with Optuna and with thriftune, each written as its documentation
recommends. They run twenty trials of a model that is scored each round and stopped early. Then they print the best
trial, the data frame and the importances. Comments, docstrings and blank lines do not count, and one formatter has
formatted all scripts. The benchmark also runs each script.

The LightGBM task needs lightgbm and optuna-integration, and is left out if they are missing.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from benchmarks.common import Row, main, say, scratch
from thriftune.study.ask_tell import load

FOLDER = Path(__file__).parent
TASKS = {"sklearn": "scikit-learn", "lightgbm": "LightGBM"}
TRACEBACK_BAR_SECONDS, TRIALS_BAR = 5.0, 3

BUG = """
import thriftune as tt

def train(trial):
    import a_missing_module
    trial.report(loss=trial["lr"])

tt.tune(train, {"lr": tt.Float(0, 1)}, minimize="loss", trials=40, name="bug", store="studies.db")
"""


def lines_of_code(source: str) -> int:
    """Return the number of lines with code, without docstrings."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.stmt) and not is_docstring:
            last_line = node.body[0].lineno - 1 if hasattr(node, "body") and node.body else node.end_lineno
            lines.update(range(node.lineno, (last_line or node.lineno) + 1))
    return len(lines)


def run(script: Path, folder: Path) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Run a script in the folder, and return its seconds and its ended process."""
    started = time.perf_counter()
    process = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "THRIFTUNE_HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    return time.perf_counter() - started, process


def code_rows(options: argparse.Namespace) -> list[Row]:
    """Return a row of lines of code for each task."""
    rows = []
    for task, name in TASKS.items():
        if task == "lightgbm" and (
            options.quick or not all(map(importlib.util.find_spec, ("lightgbm", "optuna_integration")))
        ):
            say(f"{name}: left out, as it needs lightgbm and optuna-integration and does not run with --quick")
            continue
        scripts = {peer: FOLDER / f"{task}_{peer}.py" for peer in ("thriftune", "optuna")}
        for peer, script in scripts.items():
            if peer == "thriftune" or not (options.without_peers or options.quick):
                with scratch() as folder:
                    say(f"{name}: running {script.name}")
                    _, process = run(script, folder)
                if process.returncode:
                    raise RuntimeError(f"{script} failed:\n{process.stderr}")
        ours, theirs = (lines_of_code(script.read_text()) for script in scripts.values())
        figure = f"{ours} lines; Optuna {theirs}"
        rows.append(
            Row(
                f"{name}, a pruned study with data frame and importance",
                figure,
                "at most Optuna's",
                None if options.quick else ours <= theirs,
            )
        )
    return rows


def bug_rows(options: argparse.Namespace) -> list[Row]:
    """Return the rows of the time and the trials until a fatal bug is shown."""
    times, trials = [], []
    for _ in range(1 if options.quick else 5):
        with scratch() as folder:
            script = folder / "bug.py"
            script.write_text(BUG)
            seconds, process = run(script, folder)
            if "ModuleNotFoundError: No module named 'a_missing_module'" not in process.stderr:
                raise RuntimeError(f"the bug was not shown:\n{process.stderr}")
            times.append(seconds)
            study = load("bug", folder / "studies.db")
            trials.append(sum(trial.failures > 0 for trial in study.trials))
    slowest, most = max(times), max(trials)
    judged = not options.quick
    within_trials = most <= TRIALS_BAR if judged else None
    return [
        Row(
            "from the start of a script with a fatal bug to its traceback",
            f"{median(times):.1f} s (slowest of {len(times)}: {slowest:.1f} s)",
            f"under {TRACEBACK_BAR_SECONDS:g} s",
            slowest < TRACEBACK_BAR_SECONDS if judged else None,
            {"seconds": times},
        ),
        Row(
            "trials that failed before the traceback",
            f"{most}",
            f"at most {TRIALS_BAR}",
            within_trials,
        ),
    ]


def measure(options: argparse.Namespace) -> list[Row]:
    return code_rows(options) + bug_rows(options)


if __name__ == "__main__":
    raise SystemExit(main(measure))
