"""What a script says on standard error, and how it names what came of its study."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import studies
from thriftune.show.ending import nothing_left_line, short_end_line
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
    """Run the script; return the lines of its standard error."""
    script = SCRIPT.replace("FAILS", str(fails)).replace("MORE", more)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return done.stderr.splitlines()


BEST = r"best loss 0\.\d+ \(trial \d\)"


def test_a_script_ends_with_a_line_that_says_what_came_of_it(tmp_path: Path) -> None:
    assert re.fullmatch(rf".*3 trials done.*; {BEST}.*", script_stderr(tmp_path)[-1])
    (again,) = script_stderr(tmp_path)
    assert re.match(rf"s: nothing left to do \(all 3 trials done\); {BEST}\. To run more, ", again)


def test_a_script_without_progress_says_nothing(tmp_path: Path) -> None:
    assert script_stderr(tmp_path, more="progress=False") == []
    assert script_stderr(tmp_path, more="progress=False") == []


def test_a_script_whose_trials_fail_says_that_there_is_no_value(tmp_path: Path) -> None:
    *_, last = script_stderr(tmp_path, fails=True, more="on_failure='go_on'")
    assert last.startswith("s: 3 trials done in ")
    assert last.endswith(" s; all 3 trials failed")


def test_lines_of_a_finished_study() -> None:
    spec = studies.spec()
    history = studies.fold(studies.log(), spec)
    assert short_end_line(spec, history, 110.0).startswith("digits: 3 trials done in ")
    assert short_end_line(spec, history, 110.0).endswith(" s, 1 failed; best loss 0.666667 (trial 1)")
    why = history.finish_reason
    line = nothing_left_line(spec, history)
    assert line.startswith(
        f"digits: nothing left to do ({why}), 1 failed; best loss 0.666667 (trial 1). To run more"
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
def test_a_function_with_much_data_is_remarked_upon_once(source: str, name: str, tmp_path: Path) -> None:
    for again in (False, True):
        done = subprocess.run(
            [sys.executable, "-c", LARGE.replace("SOURCE", source)],
            cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        remarks = [line for line in done.stderr.splitlines() if line.startswith("train: ")]
        if again or not name:
            assert remarks == []
        else:
            assert remarks == [
                f"train: the function uses 25 MB of objects, mostly {name} (24 MB), which are stored with the "
                "study and loaded by each worker; load large data from a file inside the function instead"
            ]
