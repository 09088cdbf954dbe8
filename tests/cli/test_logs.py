"""`thriftune logs`: the output of trials, while they run and afterwards."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import thriftune as tt
from tests.cli import studies
from tests.cli.programs import RunCli, run, start, wait_until
from thriftune.store.opening import open_store
from thriftune.store.output_files import OutputWriter


@pytest.fixture
def digits(store_path: Path, tmp_path: Path) -> None:
    """Write a study with output: trial 0 completed with two workers, trial 2 failed twice."""
    with open_store(store_path) as store:
        studies.write(store, studies.spec(storage=str(tmp_path)), studies.log())
    for trial, attempt, rank, text in (
        (0, 1, 0, "zero\n"),
        (0, 1, 1, "zero's second worker\n"),
        (2, 1, 0, "first try\n"),
        (2, 2, 0, "\x1b[31mred\x1b[0m\n10%\r20%\rdone\n\x1b]0;title\x07last words \xe9\x9b"),
    ):
        OutputWriter(tmp_path / "digits" / "trials" / str(trial), attempt, rank).write(text.encode())


@pytest.mark.usefixtures("digits")
def test_logs_without_a_trial_lists_the_trials_with_output(run_cli: RunCli, store_path: Path) -> None:
    listed = run_cli("logs", "digits")
    assert listed.stdout.splitlines() == ["trial 2  failed  attempts 1, 2", "trial 0  completed  attempt 1"]
    assert listed.stderr == f"to see one: thriftune logs digits --trial 2 --store {store_path}\n"


@pytest.mark.usefixtures("digits")
def test_logs_shows_the_last_attempt_or_a_chosen_one(run_cli: RunCli) -> None:
    last = run_cli("logs", "digits", "--trial", "2")
    assert last.stdout.startswith("red\ndone\nlast words ")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", last.stdout)
    assert last.stderr == "attempt 2 of 2\n"
    assert run_cli("logs", "digits", "--trial", "2", "--attempt", "1").stdout == "first try\n"
    assert run_cli("logs", "digits", "--trial", "0").stdout == "zero\n"
    assert run_cli("logs", "digits", "--trial", "0").stderr == ""
    assert run_cli("logs", "digits", "--trial", "0", "--rank", "1").stdout == "zero's second worker\n"
    assert run_cli("logs", "digits", "--trial", "0", "--follow").stdout == "zero\n", "the trial has ended"


@pytest.mark.usefixtures("digits")
def test_missing_output_trials_and_attempts_are_reported(run_cli: RunCli, store_path: Path) -> None:
    nothing = run_cli("logs", "digits", "--trial", "1")
    assert (nothing.stdout, nothing.stderr) == ("", "no output of trial 1 is stored\n")
    nothing = run_cli("logs", "digits", "--trial", "0", "--attempt", "2", "--rank", "1", status=1)
    assert nothing.stderr == "error: trial 0 has no attempt 2; it has attempts 1 to 1\n"
    wrong = run_cli("logs", "digits", "--trial", "2", "--rank", "3", status=1).stderr
    assert wrong == "error: trial 2 has no worker with rank 3; it has one worker, with rank 0\n"
    assert "has no trial 9; its trials are 0 to 2" in run_cli("logs", "digits", "--trial", "9", status=1).stderr
    wrong = run_cli("logs", "digits", "--trial", "2", "--attempt", "3", status=1).stderr
    assert wrong == "error: trial 2 has no attempt 3; it has attempts 1 to 2\n"
    for option in (("--follow",), ("--attempt", "1"), ("--rank", "1")):
        assert "choose it with --trial N" in run_cli("logs", "digits", *option, status=2).stderr
    with open_store(store_path) as store:
        studies.write(store, studies.spec("silent"), studies.log())
    assert "no output of study 'silent' is stored" in run_cli("logs", "silent").stderr


@pytest.mark.usefixtures("digits")
def test_show_names_the_command_for_all_output(run_cli: RunCli, store_path: Path) -> None:
    line = f"thriftune logs digits --trial 2 --store {store_path}"
    assert line in run_cli("show", "digits", "--trial", "2").stdout
    assert "thriftune logs" not in run_cli("show", "digits", "--trial", "1").stdout


@pytest.mark.usefixtures("digits")
def test_deleting_a_study_removes_its_output(run_cli: RunCli, tmp_path: Path) -> None:
    assert (tmp_path / "digits" / "trials").exists()
    (tmp_path / "digits" / "owner").write_text("")  # as the study's driver does
    run_cli("delete", "digits", "--yes")
    assert not (tmp_path / "digits").exists()


# --- a running study ---------------------------------------------------------------------------------------


FILE = """
command = ["{python}", "-u", "work.py"]
minimize = "loss"
trials = {trials}
retries = 1
workers = 1
store = "studies.db"
system = "auto"
[space]
x = {{ type = "float", low = 0.0, high = 1.0 }}
[metrics]
loss = 'loss=(\\S+)'
"""

WORK = """
import os, time
from pathlib import Path

def wait_for(name):
    while not Path(name).exists():
        time.sleep(0.02)

attempt = os.environ["THRIFTUNE_ATTEMPT"]
print("started", attempt)
wait_for("go" + attempt)
print("half a line", end="")
if attempt == "1":
    raise SystemExit("enough")
print()
print("loss=1")
"""


@contextmanager
def running_study(folder: Path, script: str, trials: int = 1) -> Iterator[subprocess.Popen[str]]:
    """Run a study whose trials run the script, until the first attempt has written output."""
    (folder / "work.py").write_text(script)
    (folder / "study.toml").write_text(FILE.format(python=sys.executable, trials=trials))
    output = folder / "studies.db.files" / "study" / "trials" / "0" / "output" / "1.log"
    with start("run", "study.toml", cwd=folder) as study:
        wait_until(lambda: output.exists() and output.read_text().endswith("\n"))
        yield study


def test_logs_follows_a_trial_to_its_end(tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "studies.db"))
    with running_study(tmp_path, WORK) as study:
        assert run("logs", "study", "--trial", "0", *store, cwd=tmp_path)[0] == "started 1\n"
        with (
            start("logs", "study", "--trial", "0", "--follow", *store, cwd=tmp_path) as all_attempts,
            start(
                "logs", "study", "--trial", "0", "--attempt", "1", "--follow", *store, cwd=tmp_path
            ) as attempt_1,
        ):
            assert all_attempts.stdout is not None
            assert attempt_1.stdout is not None
            assert all_attempts.stdout.readline() == "started 1\n"
            assert attempt_1.stdout.readline() == "started 1\n"
            (tmp_path / "go1").touch()
            assert attempt_1.stdout.read() == "half a lineenough\n", "following one attempt ends with the attempt"
            assert all_attempts.stdout.readline() == "half a lineenough\n"
            assert all_attempts.stdout.readline() == "started 2\n"
            (tmp_path / "go2").touch()
            out, err = all_attempts.communicate(timeout=60)
            assert (out, err) == ("half a line\nloss=1\n", "attempt 2\n")
            assert (attempt_1.wait(), all_attempts.returncode) == (0, 0)
        study.communicate(timeout=60)
    (trial,) = tt.load("study", store=tmp_path / "studies.db").trials
    assert trial.log == "started 2\nhalf a line\nloss=1\n"
    assert trial.log_of(1) == "started 1\nhalf a lineenough\n"
    assert trial.attempts_with_log == [1, 2]


def test_following_ends_when_the_driver_is_killed(tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "studies.db"))
    with (
        running_study(tmp_path, WORK) as study,
        start("logs", "study", "--trial", "0", "--follow", *store, cwd=tmp_path) as following,
    ):
        assert following.stdout is not None
        assert following.stdout.readline() == "started 1\n"
        os.kill(study.pid, 9)
        study.communicate()
        assert following.wait(60) == 0
    again = run("logs", "study", "--trial", "0", "--follow", *store, cwd=tmp_path)
    assert again == ("started 1\n", "study 'study' is not running\n")


WORK_OF_TRIALS = """
import os, time
from pathlib import Path

trial = os.environ["THRIFTUNE_TRIAL"]
print("trial", trial)
while not Path("go" + trial).exists():
    time.sleep(0.02)
print("loss=1")
"""


def test_following_waits_for_a_trial_to_start_and_fails_if_it_never_does(tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "studies.db"))
    with running_study(tmp_path, WORK_OF_TRIALS, trials=2) as study:
        with (
            start("logs", "study", "--trial", "1", "--follow", *store, cwd=tmp_path) as following,
            start("logs", "study", "--trial", "1", "--attempt", "1", "--follow", *store, cwd=tmp_path) as attempt,
            start("logs", "study", "--trial", "2", "--follow", *store, cwd=tmp_path) as never,
        ):
            for each, number in ((following, 1), (attempt, 1), (never, 2)):
                assert each.stderr is not None
                assert each.stderr.readline() == f"waiting for trial {number}\n"
            (tmp_path / "go0").touch()
            (tmp_path / "go1").touch()
            assert following.communicate(timeout=60) == ("trial 1\nloss=1\n", "")
            assert attempt.communicate(timeout=60) == ("trial 1\nloss=1\n", "")
            assert never.communicate(timeout=60) == (
                "",
                "error: study 'study' stopped before trial 2 started; its trials are 0 and 1\n",
            )
            assert (following.returncode, attempt.returncode, never.returncode) == (0, 0, 1)
        study.communicate(timeout=60)
    over = run("logs", "study", "--trial", "2", "--follow", *store, cwd=tmp_path, status=1)
    assert "has no trial 2; its trials are 0 and 1" in over[1], (
        "a study that does not run has no trials to wait for"
    )
