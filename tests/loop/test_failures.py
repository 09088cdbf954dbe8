"""Failures that are all alike stop a study; others are retried, later each time, unless it is of no use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import thriftune as tt
from tests.support.tables import Table
from thriftune.loop.failures import MAX_BACKOFF_SECONDS, exception_line, is_permanent, retry_seconds, to_retry
from thriftune.state import events as ev
from thriftune.state.events import Codec
from thriftune.state.spec import Target
from thriftune.state.trial_record import State, TrialRecord

TRAIN = Target("pickled")


def traceback(error: str, line: int = 3) -> str:
    return f'Traceback (most recent call last):\n  File "train.py", line {line}, in train\n    go()\n{error}'


NO_MODULE = traceback("ModuleNotFoundError: No module named 'lightgbm'")
ZERO = traceback("ZeroDivisionError: division by zero")


def failing(**settings: Any) -> Table:
    return Table(slots=4, **{"trials": 9, "target": TRAIN, "on_failure": "stop", **settings})


# --- when a study stops -----------------------------------------------------------------------------------


def test_three_failures_alike_stop_a_study() -> None:
    table = failing()
    assert table.fail(0, error=ZERO) == ["create 4", "place 4/1"]
    assert table.fail(1, error=ZERO) == ["create 5", "place 5/1"]
    decisions = table.fail(2, error=ZERO)
    assert decisions[0] == "stop, as 0, 1, 2 failed alike"
    assert decisions[1:] == [f"{what} {trial}/1" for trial in (3, 4, 5) for what in ("move", "kill")]
    assert table.history.failed_alike == (0, 1, 2)
    for trial in (3, 4, 5):
        assert table.killed(trial) == []
    assert table.history.finish_reason is None
    assert table.conductor.halted
    assert not table.history.running
    assert [table.trial(trial).failures for trial in range(6)] == [1, 1, 1, 0, 0, 0]


def test_a_study_that_goes_on_whatever_fails() -> None:
    table = failing(on_failure="go_on", retries=0)
    for trial in range(8):
        assert "stop" not in " ".join(table.fail(trial, error=ZERO))
    assert table.fail(8, error=ZERO) == ["give up 8", "finish: all 9 trials done"]


def test_once_a_trial_has_reported_failures_do_not_stop_a_study() -> None:
    table = failing()
    table.report(3, 1, 0.5)
    for trial in (0, 1, 2, 4, 5):
        table.fail(trial, error=ZERO)
    assert not table.history.failed_alike


def test_failures_after_a_report_are_of_their_own() -> None:
    table = failing()
    for trial in (0, 1, 2):
        table.report(trial, 1, 0.5)
        table.fail(trial, error=ZERO)
    assert not table.history.failed_alike


def test_a_metric_of_another_name_stops_a_study() -> None:
    table = failing()
    for trial in (0, 1, 2):
        table.report(trial, 1, accuracy=0.5)
        table.end(trial)
    assert table.history.failed_alike == (0, 1, 2)


@pytest.mark.parametrize(
    "errors",
    [
        [ZERO, traceback("ZeroDivisionError: division by zero", line=9), ZERO],
        [ZERO, traceback("KeyError: 'x'"), ZERO],
        [traceback("MemoryError")] * 3,
        [traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")] * 3,
    ],
)
def test_other_errors_and_want_of_memory_do_not_stop_a_study(errors: list[str]) -> None:
    table = failing()
    for trial, error in enumerate(errors):
        table.fail(trial, error=error)
    assert not table.history.failed_alike


def test_a_worker_killed_for_want_of_memory_is_its_configurations_doing() -> None:
    table = failing()
    for trial in (0, 1, 2):
        table.fail(trial, "memory", "ran out of memory")
    assert not table.history.failed_alike


@pytest.mark.parametrize(
    "errors",
    [
        [traceback(f"ValueError: {value} is too large") for value in ("0.1", "0.223", "1e-3")],
        [traceback(f"FileNotFoundError: [Errno 2] No such file: {name!r}") for name in ("a", "b", "c")],
        ["killed by signal 11", "killed by signal 11", "killed by signal 11"],
    ],
)
def test_errors_are_alike_whatever_values_they_quote(errors: list[str]) -> None:
    table = failing()
    for trial, error in enumerate(errors):
        table.fail(trial, error=error)
    assert table.history.failed_alike == (0, 1, 2)


def test_commands_fail_alike_by_what_they_print() -> None:
    table = failing()
    for trial in (0, 1):
        table.fail(trial, "exited", "exited with status 1", f"epoch 1\nno file data-{trial}.csv\n")
    table.fail(2, "exited", "exited with status 1", "usage: train.py [-h]")
    assert not table.history.failed_alike
    table = failing()
    for trial in (0, 1, 2):
        table.fail(trial, "exited", "exited with status 1", f"epoch 1\nno file data-{trial}.csv\n")
    assert table.history.failed_alike == (0, 1, 2)


def test_a_trial_told_to_have_failed_stops_no_study_of_its_users() -> None:
    table = Table(slots=0, trials=9, target=Target("outside"), on_failure="stop", retries=0)
    for trial in range(4):
        table(ev.TrialRequested(table.now))
        table(ev.Failed(table.now, trial, 1, "told", "no luck"))
    assert not table.history.failed_alike


def test_a_study_of_three_trials_that_all_fail_alike_can_go_on() -> None:
    table = failing(trials=3, retries=0)
    for trial in (0, 1, 2):
        table.fail(trial, error=ZERO)
    assert table.history.finish_reason is None
    assert table.conductor.halted


# --- what runs again --------------------------------------------------------------------------------------


def test_the_failed_trials_of_a_stopped_study_run_again() -> None:
    table = failing(trials=4, retries=0)
    for trial in (0, 1, 2):
        table.fail(trial, error=ZERO)
    table.killed(3)
    table.stop()
    table.kill_driver()
    again = to_retry(table.history.trials)
    assert again == [0, 1, 2]
    assert table(*(ev.Retry(table.now, trial) for trial in again)) == ["retry 0", "retry 1", "retry 2"]
    assert table.dropped(*(ev.Retry(table.now, trial) for trial in again))
    assert table.history.counts[State.FAILED] == 0
    assert not table.nothing_left()
    assert table.start(slots=4) == ["place 3/2", "place 0/2", "place 1/2", "place 2/2"]
    assert not table.history.failed_alike
    for trial in range(3):
        table.report(trial, 1, 0.5)
        table.end(trial)
    table.report(3, 1, 0.5)
    assert table.end(3) == ["finish: all 4 trials done"]


def test_a_trial_that_has_ended_well_is_not_retried() -> None:
    table = Table(trials=1)
    table.report(0, 1, 0.5)
    table.end(0)
    assert to_retry(table.history.trials) == []
    assert table.dropped(ev.Retry(table.now, 0))


def test_a_trial_that_waits_for_its_retry_may_be_given_all_its_attempts() -> None:
    table = Table(trials=1, retries=1)
    table.fail(0)
    table.stop()
    table.kill_driver()
    assert table(ev.Retry(table.now, 0)) == ["retry 0"]
    assert table.start() == ["place 0/2"]
    assert table.fail(0) + table.retry() == ["place 0/3"]


# --- when a trial is tried again --------------------------------------------------------------------------


def test_each_retry_comes_later_than_the_one_before() -> None:
    assert [retry_seconds(failures) for failures in (1, 2, 3)] == [1.0, 2.0, 4.0]
    assert retry_seconds(10_000) == MAX_BACKOFF_SECONDS


def test_the_driver_wakes_for_a_retry() -> None:
    table = Table(trials=1, retries=2)
    assert table.fail(0) == []
    assert table.conductor.wake_at(table.now) == table.now + 1.0
    assert table.later(0.5) == []
    assert table.later(0.5) == ["place 0/2"]
    assert table.fail(0) == []
    assert table.conductor.wake_at(table.now) == table.now + 2.0


def test_a_lost_worker_is_no_reason_to_wait() -> None:
    table = Table(trials=1, retries=2)
    table.fail(0)
    table.retry()
    assert table.lose(0) == ["place 0/3"]


PERMANENT = [
    ("raised", NO_MODULE, ""),
    ("raised", traceback("ImportError: cannot import name 'x'"), ""),
    ("raised", traceback("NameError: name 'np' is not defined"), ""),
    ("raised", 'Traceback (most recent call last):\n  File "a.py", line 1\n    if\n  ^\nSyntaxError: bad', ""),
    ("raised", "the command 'trian' cannot be started: [Errno 2] No such file or directory: 'trian'", ""),
    ("exited", "exited with status 1", f"starting\n{NO_MODULE}\n"),
]


@pytest.mark.parametrize(("kind", "error", "output"), PERMANENT)
def test_an_error_that_would_come_again_is_not_retried(kind: str, error: str, output: str) -> None:
    table = Table(trials=2, retries=5)
    assert table.fail(0, kind, error, output) == ["give up 0", "create 1", "place 1/1"]


@pytest.mark.parametrize(
    ("kind", "error", "output"),
    [
        ("raised", ZERO, ""),
        ("raised", traceback("OSError: [Errno 5] Input/output error"), ""),
        ("raised", traceback("mylib.ImportErrors: many"), ""),
        ("exited", "exited with status 1", "NameError"),
        ("signal", "killed by signal 11", ""),
    ],
)
def test_other_errors_are_retried(kind: str, error: str, output: str) -> None:
    trial = TrialRecord(0, {}, 0.0, failures=1, error_kind=kind, error=error, output=output)
    assert not is_permanent(trial)


def test_the_exception_is_found_behind_notes_and_output() -> None:
    raised = TrialRecord(0, {}, 0.0, error_kind="raised", error=traceback("ValueError: a\nb\nc"), output="noise")
    assert exception_line(raised) == "ValueError: a"
    printed = TrialRecord(0, {}, 0.0, error_kind="exited", error="exited with status 1", output=f"x\n{ZERO}\n")
    assert exception_line(printed) == "ZeroDivisionError: division by zero"
    silent = TrialRecord(0, {}, 0.0, error_kind="exited", error="exited with status 1")
    assert exception_line(silent) == "exited with status 1"


def test_the_new_entries_are_read_as_they_were_written() -> None:
    for entry in (ev.StopAfterFailures(1.0, [0, 1, 2]), ev.Retry(1.0, 4)):
        assert Codec.event(Codec.kind(entry), Codec.body(entry)) == entry
    with pytest.raises(ValueError, match="its trials is"):
        Codec.event("StopFailing", '{"at":1.0,"trials":["a"]}')


# --- as a newcomer meets it -------------------------------------------------------------------------------

BROKEN = """
import thriftune as tt

def train(trial):
    import a_module_that_nobody_has
    trial.report(loss=trial["lr"])

if __name__ == "__main__":
    space = {"lr": tt.Float(0, 1)}
    result = tt.tune(train, space, minimize="loss", trials=20, workers=2, name="s", store="s.db")
    print(len(result.trials), result.best.value)
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_script_with_a_bug_says_so_and_goes_on_when_it_is_mended(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(BROKEN)
    failed = run(tmp_path, "script.py")
    assert failed.returncode == 1
    assert "study 's' has stopped: its first 3 trials have all failed alike" in failed.stderr
    assert 'script.py", line 5, in train\n    import a_module_that_nobody_has\n' in failed.stderr
    assert "ModuleNotFoundError: No module named 'a_module_that_nobody_has'\n" in failed.stderr
    assert "run the script again: the failed trials run again" in failed.stderr
    assert "driver.py" not in failed.stderr
    study = tt.load("s", store=tmp_path / "s.db")
    # One more may have begun and failed before it was ended.
    assert {trial.attempts for trial in study.trials if trial.state is State.FAILED} == {1}
    assert len(study.trials) <= 5
    again = run(tmp_path, "script.py")
    assert again.returncode == 1
    assert "has stopped: its first 3 trials" in again.stderr
    script.write_text(script.read_text().replace("import a_module_that_nobody_has", "pass"))
    mended = run(tmp_path, "script.py")
    assert mended.stdout.startswith("20 "), mended.stderr
    assert all(trial.state is State.COMPLETED for trial in tt.load("s", store=tmp_path / "s.db").trials)


def test_failed_trials_run_again_if_asked_for(tmp_path: Path) -> None:
    switch = tmp_path / "mended"

    def train(trial: tt.Trial) -> float:
        if trial.id in (1, 3) and not switch.exists():
            raise ValueError("not yet")
        return float(trial["lr"])

    def tune(**settings: Any) -> tt.Result:
        return tt.tune(
            train, {"lr": tt.Float(0, 1)}, minimize="loss", trials=5, retries=0, name="s", store=tmp_path / "s.db",
            progress=False, workers=1, **settings,
        )  # fmt: skip

    assert [trial.state for trial in tune().trials].count(State.FAILED) == 2
    switch.touch()
    assert [trial.state for trial in tune().trials].count(State.FAILED) == 2
    result = tune(retry_failed=True)
    assert [trial.state for trial in result.trials] == [State.COMPLETED] * 5
    assert [trial.attempts for trial in result.trials] == [1, 2, 1, 2, 1]
    assert [trial.failures for trial in result.trials] == [0, 1, 0, 1, 0]


COMMAND = """
name = "c"
command = ["python", "train.py", "--lr", "{lr}"]
minimize = "loss"
trials = 6
workers = 2
[metrics]
loss = 'loss=(\\S+)'
[space.lr]
type = "float"
low = 0.0
high = 1.0
"""


def test_a_command_that_fails_shows_its_output_and_is_resumed_when_mended(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(COMMAND)
    (tmp_path / "train.py").write_text("print('reading the data')\nimport a_module_that_nobody_has\n")
    failed = run(tmp_path, "-m", "thriftune", "run", "study.toml", "--store", "s.db")
    assert failed.returncode == 1
    assert "error: study 'c' has stopped: its first 3 trials have all failed alike" in failed.stderr
    assert "reading the data\nTraceback" in failed.stderr
    assert "No module named 'a_module_that_nobody_has'" in failed.stderr
    assert "run the study file again (if it is unchanged: thriftune resume c --store" in failed.stderr
    (tmp_path / "train.py").write_text("print('loss=0.5')\n")
    resumed = run(tmp_path, "-m", "thriftune", "resume", "c", "--store", "s.db")
    assert resumed.returncode == 0, resumed.stderr
    assert "6 completed" in resumed.stdout


def test_a_command_that_is_not_there_is_tried_once_a_trial(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(COMMAND.replace('"python"', '"pyhton-with-a-typo"'))
    failed = run(tmp_path, "-m", "thriftune", "run", "study.toml", "--store", "s.db")
    assert failed.returncode == 1
    assert "the command 'pyhton-with-a-typo' cannot be started: [Errno 2]" in failed.stderr
    assert {trial.attempts for trial in tt.load("c", store=tmp_path / "s.db").trials if trial.failures} == {1}


def test_large_configurations_that_fail_do_not_stop_a_study(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> float:
        if trial["width"] > 10:
            raise MemoryError(f"{trial['width']} is too wide")
        return float(trial["width"])

    result = tt.tune(
        train, {"width": tt.Int(1, 40)}, minimize="loss", trials=12, retries=0, name="s", store=tmp_path / "s.db",
        enqueue=[{"width": width} for width in (38, 39, 40, 37)], progress=False, workers=2,
    )  # fmt: skip
    assert len(result.trials) == 12
    assert result.finished == "all 12 trials done"


def test_a_trial_that_is_retried_has_all_its_time() -> None:
    table = Table(trials=1, retries=0, max_trial_seconds=50.0)
    table.later(50.0)
    table.later(5.0)
    assert table.killed(0) == ["give up 0", "finish: all 1 trials done"]
    table.stop()
    table.kill_driver()
    assert table(ev.Retry(table.now, 0)) == ["retry 0"]
    assert table.start() == ["place 0/2"]
    assert table.later(49.0) == []
    assert table.later(1.0) == ["stop 0/2"]


def test_a_retried_trial_has_all_its_reports() -> None:
    table = Table(trials=1, retries=0)
    table.report(0, 1, accuracy=0.1, saved=True)
    table.report(0, 2, 0.4)
    table.lose(0)
    table.report(0, 1, accuracy=0.2)
    assert table.end(0) == ["give up 0", "finish: all 1 trials done"]  # the lost attempt's loss does not count
    table.stop()
    table.kill_driver()
    table(ev.Retry(table.now, 0))
    assert table.trial(0).metrics == {"accuracy": 0.2, "loss": 0.4}
    assert table.start() == ["place 0/3 from 1"]


def test_failed_trials_are_not_retried_where_nothing_would_run(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> float:
        if trial.id and not (tmp_path / "mended").exists():
            raise ValueError("not yet")
        return 0.1

    settings: dict[str, Any] = {"minimize": "loss", "trials": 4, "retries": 0, "name": "s", "workers": 1}
    settings |= {"store": tmp_path / "s.db", "progress": False}
    tt.tune(train, {"lr": tt.Float(0, 1)}, **settings)
    (tmp_path / "mended").touch()
    limits: list[dict[str, Any]] = [{"target": 0.5}, {"deadline": 1e-6}]
    for limit in limits:
        result = tt.tune(train, {"lr": tt.Float(0, 1)}, retry_failed=True, **settings, **limit)
        assert [trial.state for trial in result.trials].count(State.FAILED) == 3
    result = tt.tune(train, {"lr": tt.Float(0, 1)}, retry_failed=True, **settings)
    assert [trial.state for trial in result.trials].count(State.COMPLETED) == 4


def test_show_says_why_a_study_has_stopped(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> float:
        raise RuntimeError("boom")

    with pytest.raises(tt.StudyFailed):
        tt.tune(
            train, {"lr": tt.Float(0, 1)}, minimize="loss", trials=6, workers=1, name="s", store=tmp_path / "s.db"
        )
    shown = run(tmp_path, "-m", "thriftune", "show", "s", "--store", "s.db").stdout
    assert "stopped because trials 0, 1 and 2 all failed in the same way" in " ".join(shown.split())
