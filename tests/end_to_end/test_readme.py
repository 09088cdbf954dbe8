"""What the README and the tutorial show is run as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import thriftune as tt
from tests import ROOT
from thriftune.cli import cli


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


def run(code: str, folder: Path) -> str:
    (folder / "example.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_of_the_readme_runs_and_runs_again(tmp_path: Path) -> None:
    (example,) = blocks("README.md")
    lines = [line for line in example.splitlines() if line.strip()]
    assert len(lines) <= 15
    first = run(example, tmp_path)
    assert "'lr'" in first
    assert run(example, tmp_path) == first, "the second run returns what the first one found"


@pytest.mark.parametrize(
    "page",
    [
        "tutorial",
        "checkpoints",
        "search",
        "looking",
        "objectives",
        "stopping",
        "warm-start",
        "optuna",
        "market",
        "planning",
        "bill",
        "cluster",
    ],
)
def test_the_blocks_of_a_page_run_one_after_the_other(page: str, tmp_path: Path) -> None:
    for block in blocks(f"docs/{page}.md"):
        run(block, tmp_path)


STUDY = """
command = [{python!r}, "example.py", "{{x}}"]
minimize = "loss"
trials = 1
stopping = "none"
[space]
x = {{ type = "float", low = 1, high = 2 }}
"""


def test_a_command_that_reports_runs_by_hand_and_as_a_trial(tmp_path: Path) -> None:
    (block,) = blocks("docs/study-file.md")
    (tmp_path / "example.py").write_text(block)
    by_hand = subprocess.run(
        [sys.executable, "example.py", "3"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=600
    )
    assert by_hand.stdout.splitlines()[-1] == "step 3: loss 1.000"
    (tmp_path / "study.toml").write_text(STUDY.format(python=sys.executable))
    store = tmp_path / "s.db"
    done = CliRunner().invoke(cli, ["run", str(tmp_path / "study.toml"), "--store", str(store), "--quiet"])
    assert done.exit_code == 0, done.output
    (trial,) = tt.load("study", store).trials
    assert [report.step for report in trial.reports] == [1, 2, 3]
    assert trial.value == trial.config["x"] / 3
