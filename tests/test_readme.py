"""What the README and the tutorial show is run as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


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
