"""`thriftune profile`: measures the steps of trials in real processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from click.testing import Result

from tests import ROOT
from tests.cli.programs import PATIENCE_SECONDS, invoke, run, run_json, start, wait_until
from tests.engines.processes import processes_with, wait_for_no_process
from thriftune.planning.profile import Profile

FILE = """
function = "train.py:train"
minimize = "loss"
trials = 4
max_steps = 6
seed = 0
[space]
size = { type = "int", low = 40, high = 50 }
"""

TRAIN = """
import numpy as np

def train(trial):
    matrix = np.full((trial["size"], trial["size"]), 0.01)
    for step in trial.steps():
        for _ in range(50):
            matrix = np.tanh(matrix @ matrix)
        trial.report(loss=float(matrix.sum()), save=lambda folder: np.save(folder / "matrix", matrix))
"""

SLOW = """
import time

def train(trial):
    for step in trial.steps():
        open("started", "w").close()
        time.sleep(0.05)
        trial.report(loss=1 / step)
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Write a study file with its training function, and return its path."""
    (tmp_path / "study.toml").write_text(FILE)
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path / "study.toml"


def run_cli(*args: object, status: int = 0) -> Result:
    return invoke("profile", *args, status=status)


def test_a_profile_is_measured_shown_and_written_next_to_the_study_file(study: Path) -> None:
    out, err = run("profile", "study.toml", "--workers", "1", cwd=study.parent)
    assert "1 worker, trial 1 of 2 ... " in err
    assert "1 worker, trial 2 of 2 ... " in err
    header, row, *_ = (line.split() for line in out.splitlines())
    assert " ".join(header) == "workers steps measured seconds a step speed-up over 1 worker"
    assert (row[:2], row[-1]) == (["1", "10"], "1.00")
    assert "configuration  size=4" in out
    assert "every step saves its state" in out
    assert "thriftune plan study.toml --profile study.profile.json" in out
    profile = Profile.read(study.parent / "study.profile.json")
    assert list(profile.seconds_per_step) == [1]
    assert profile.checkpoint == 0.0
    expected = {"study.toml", "study.profile.json", "train.py", "__pycache__"}
    assert {path.name for path in study.parent.iterdir()} <= expected, "the measured trials leave no study"


def test_json_has_the_profile_and_the_measurements(study: Path) -> None:
    parsed = run_json("profile", "study.toml", "--workers", "1", "--repeats", "3", cwd=study.parent)
    assert parsed["file"] == "study.profile.json"
    assert Profile.from_json(parsed["profile"]) == Profile.read(study.parent / "study.profile.json")
    (row,) = parsed["measurements"]
    assert (row["workers"], row["steps"], row["times_as_fast"]) == (1, 15, 1.0)
    assert [trial["steps"] for trial in row["trials"]] == [5, 5, 5]
    assert row["seconds_per_step"] == sorted(trial["seconds_per_step"] for trial in row["trials"])[1]
    assert list(parsed["config"]) == ["size"]
    assert "every step saves" in parsed["remarks"][-1]


def test_only_an_older_profile_is_overwritten(study: Path, tmp_path: Path) -> None:
    output = tmp_path / "mine.json"
    Profile({1: 123.0}).write(output)
    run_cli(study, "--workers", "1", "--repeats", "1", "--output", output)
    assert Profile.read(output).seconds_per_step[1] < 123.0
    assert not (tmp_path / "study.profile.json").exists()
    error = run_cli(study, "--output", study, status=1).stderr
    assert error.startswith(f"error: --output: {study}: is not JSON")
    assert error.endswith("it is not a profile, so it is not overwritten; choose another file\n")
    assert study.read_text() == FILE
    assert (
        "does not exist; create it first"
        in run_cli(study, "--output", tmp_path / "nowhere" / "a.json", status=1).stderr
    )


def test_the_error_of_a_failing_function_is_shown_and_no_profile_written(study: Path) -> None:
    (study.parent / "train.py").write_text("def train(trial):\n    raise ValueError('no data')")
    failed = run_cli(study, status=1)
    assert "error: the training function failed: ValueError: no data\n" in failed.stderr
    assert "line 2, in train" in failed.stderr
    assert failed.stdout == ""
    assert not (study.parent / "study.profile.json").exists()


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (("--workers", "1,two"), 2, "'1,two' must be whole numbers separated by commas"),
        (("--workers", "1,4096"), 1, "workers: 4096: there is room for"),
        (("--workers", "4,2"), 1, "workers: "),
        (("--seconds", "-1"), 1, "seconds: -1.0 must be a number above 0"),
        (("--repeats", "0"), 1, "repeats: 0 is too small"),
    ],
)
def test_mistakes_are_reported(study: Path, args: tuple[str, ...], status: int, message: str) -> None:
    assert message in run_cli(study, *args, status=status).stderr


def test_mistakes_in_the_study_file_are_reported(study: Path) -> None:
    study.write_text(FILE.replace("trials", "trails"))
    assert "trails: unknown; did you mean trials?" in run_cli(study, status=1).stderr


SCRIPT = """
import time
import thriftune as tt

space = {"x": tt.Float(0.0, 1.0)}

def slow(trial):
    for step in trial.steps():
        time.sleep(0.01 if trial["x"] < 2 else 60)
        trial.report(error=1 / step)

if __name__ == "__main__":
    raise SystemExit("this block must not run")
"""


def test_a_python_file_is_profiled_without_a_study_file(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    args = ("--function", "slow", "--minimize", "error", "--max-steps", "6", "--workers", "1", "--repeats", "1")
    out, err = run("profile", "train.py", *args, cwd=tmp_path)
    assert "1 worker, trial 1 of 1 ... " in err
    assert "thriftune plan STUDY.toml --profile train.profile.json" in out
    assert list(Profile.read(tmp_path / "train.profile.json").seconds_per_step) == [1]
    error = run_cli(tmp_path / "train.py", status=1).stderr
    assert "has no function train; name another one with --function NAME" in error


def test_a_time_limit_shortens_the_measurement(study: Path) -> None:
    _, err = run("profile", "study.toml", "--workers", "1", "--limit", "35s", cwd=study.parent)
    assert "about 20 s" not in err, "at most half of the time that remains"
    assert "for each number of workers: 1" in err
    assert Profile.read(study.parent / "study.profile.json").queue == 0.0
    for value, message in (("0s", "--limit: 0s must be above zero"), ("soon", "limit: 'soon'")):
        assert message in run_cli(study, "--limit", value, status=1).stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_profile_leaves_no_processes_and_files(
    study: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    folder = study.parent
    study.write_text(FILE.replace("max_steps = 6", "max_steps = 100000"))
    (folder / "train.py").write_text(SLOW)
    (folder / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(folder / "temporary"))
    monkeypatch.setenv("TEST_MARK", str(folder))
    with start("profile", "study.toml", "--workers", "1", "--seconds", "600", cwd=folder) as process:
        try:
            wait_until((folder / "started").exists)
            assert len(processes_with(f"TEST_MARK={folder}")) > 1
            assert list((folder / "temporary").iterdir())
            os.kill(process.pid, number)
            out, err = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
    assert (process.returncode, out) == (130, "")
    assert err.endswith("interrupted\n")
    wait_for_no_process(f"TEST_MARK={folder}")
    assert list((folder / "temporary").iterdir()) == []
    assert not (folder / "study.profile.json").exists()


def test_the_example_study_file_has_the_space_of_its_script() -> None:
    from examples.digits import SPACE
    from thriftune.settings.study_file import read_study_file
    from thriftune.space.space import Space

    file = ROOT / "examples" / "digits.toml"
    assert read_study_file(file).spec.space.difference(Space(SPACE)) == []
