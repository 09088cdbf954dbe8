"""Lines that a script prints to standard error when its study ends, and the warning about large functions."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import studies
from thriftune.show.ending import end_line, nothing_left_line
from thriftune.state import events as ev

SCRIPT = """
import thriftune as tt

def train(trial):
    if FAILS:
        raise ValueError("deliberate")
    return trial["x"]

tt.tune(train, {"x": tt.Float(0, 1)}, minimize="loss", trials=3, name="s", store="s.db", retries=0, MORE)
"""


def script_stderr(folder: Path, *, fails: bool = False, more: str = "") -> list[str]:
    """Run the script, and return the lines of its standard error."""
    script = SCRIPT.replace("FAILS", str(fails)).replace("MORE", more)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return done.stderr.splitlines()


BEST_VALUE = r"best loss 0\.\d+ \(trial \d\)"


def test_a_script_ends_with_a_line_about_its_result(tmp_path: Path) -> None:
    assert re.fullmatch(rf".*3 trials done.*; {BEST_VALUE}.*", script_stderr(tmp_path)[-1])
    (again,) = script_stderr(tmp_path)
    assert re.match(rf"s: nothing left to do \(all 3 trials done\); {BEST_VALUE}\. To run more, ", again)


def test_a_script_without_progress_prints_nothing(tmp_path: Path) -> None:
    assert script_stderr(tmp_path, more="progress=False") == []
    assert script_stderr(tmp_path, more="progress=False") == []


def test_the_last_line_tells_that_all_trials_failed(tmp_path: Path) -> None:
    *_, last = script_stderr(tmp_path, fails=True, more="on_failure='go_on'")
    assert last.startswith("study s: all 3 trials done; 3 failed; ")


def test_last_lines_of_a_finished_and_of_an_empty_study() -> None:
    spec = studies.spec()
    history = studies.fold(studies.log(), spec)
    line = end_line(spec, history, 110.0)
    assert line.startswith("study digits: all 3 trials done; 2 completed, 1 failed; best loss 0.666667 (trial 1) ")
    reason = history.finish_reason
    line = nothing_left_line(spec, history)
    assert line.startswith(
        f"digits: nothing left to do ({reason}), 1 failed; best loss 0.666667 (trial 1). To run more"
    )
    assert line.endswith("; to run 1 failed trial again, retry_failed=True (--retry-failed)")
    empty = studies.fold([ev.DriverStarted(100.0, 1, "here")], spec)
    assert nothing_left_line(spec, empty).startswith("digits: nothing left to do; no value yet. To run more, ")
    empty.apply(ev.Finish(101.0, "deadline reached"))
    line = nothing_left_line(spec, empty)
    assert line.startswith("digits: nothing left to do (deadline reached); no trial has a value. To run more, ")


LARGE = """
import numpy
import thriftune as tt

images = numpy.zeros(3_000_000)
labels = numpy.zeros(100_000)

def load():
    return images

def train(trial):
    return float(SOURCE[0]) + float(labels[0]) + trial["x"]

tt.tune(train, {"x": tt.Float(0, 1)}, minimize="loss", trials=1, name="s", store="s.db", workers=1)
"""


@pytest.mark.parametrize(("source", "name"), [("images", "images"), ("load()", "load"), ("labels", "")])
def test_a_function_with_large_data_is_warned_about_once(source: str, name: str, tmp_path: Path) -> None:
    for is_second_run in (False, True):
        done = subprocess.run(
            [sys.executable, "-c", LARGE.replace("SOURCE", source)],
            cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        warnings = [line for line in done.stderr.splitlines() if line.startswith("train: ")]
        if is_second_run or not name:
            assert warnings == []
        else:
            assert warnings == [
                f"train: the function uses 25 MB of objects, mostly {name} (24 MB), which are stored with the "
                "study and loaded by each worker; load large data from a file inside the function instead"
            ]
