"""How much code does a study take, beside Optuna's, and how soon does a fatal bug show?

The same task stands in this folder as users of Optuna write it, by its documentation, and as ours do: a model that
is scored each round and pruned, twenty trials, the best, the data frame and the importances. Lines of code are
counted without comments, docstrings and blank lines; one formatter has formatted both. Each script is run, too.

LightGBM's task needs lightgbm and optuna-integration, and is left out where they are missing.
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
    import a_module_that_nobody_has
    trial.report(loss=trial["lr"])

tt.tune(train, {"lr": tt.Float(0, 1)}, minimize="loss", trials=40, name="bug", store="studies.db")
"""


def lines_of_code(source: str) -> int:
    """Return how many lines hold code, without docstrings."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.stmt) and not is_text:
            ends = node.body[0].lineno - 1 if hasattr(node, "body") and node.body else node.end_lineno
            lines.update(range(node.lineno, (ends or node.lineno) + 1))
    return len(lines)


def run(script: Path, folder: Path) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Return how long a script took, and what became of it."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "THRIFTUNE_HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    return time.perf_counter() - started, done


def code_rows(options: argparse.Namespace) -> list[Row]:
    rows = []
    for task, name in TASKS.items():
        if task == "lightgbm" and (
            options.quick or not all(map(importlib.util.find_spec, ("lightgbm", "optuna_integration")))
        ):
            say(f"{name}: left out; it needs lightgbm and optuna-integration, and is not run with --quick")
            continue
        scripts = {peer: FOLDER / f"{task}_{peer}.py" for peer in ("thriftune", "optuna")}
        for peer, script in scripts.items():
            if peer == "thriftune" or not (options.without_peers or options.quick):
                with scratch() as folder:
                    say(f"{name}: running {script.name}")
                    _, done = run(script, folder)
                if done.returncode:
                    raise RuntimeError(f"{script} has failed:\n{done.stderr}")
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
    times, trials = [], []
    for _ in range(1 if options.quick else 5):
        with scratch() as folder:
            script = folder / "bug.py"
            script.write_text(BUG)
            seconds, done = run(script, folder)
            if "ModuleNotFoundError: No module named 'a_module_that_nobody_has'" not in done.stderr:
                raise RuntimeError(f"the bug was not shown:\n{done.stderr}")
            times.append(seconds)
            study = load("bug", folder / "studies.db")
            trials.append(sum(trial.failures > 0 for trial in study.trials))
    slowest, most = max(times), max(trials)
    judged = not options.quick
    few = most <= TRIALS_BAR if judged else None
    return [
        Row(
            "from the start of a script with a fatal bug to its traceback",
            f"{median(times):.1f} s (slowest of {len(times)}: {slowest:.1f} s)",
            f"under {TRACEBACK_BAR_SECONDS:g} s",
            slowest < TRACEBACK_BAR_SECONDS if judged else None,
            {"seconds": times},
        ),
        Row(
            "trials that failed by then",
            f"{most}",
            f"at most {TRIALS_BAR}",
            few,
        ),
    ]


def measure(options: argparse.Namespace) -> list[Row]:
    return code_rows(options) + bug_rows(options)


if __name__ == "__main__":
    raise SystemExit(main(measure))
