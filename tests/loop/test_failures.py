"""Tests of failures: equal ones stop a study, permanent ones are not retried, others are retried with backoff."""

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


def test_three_equal_failures_stop_a_study() -> None:
    table = failing()
    assert table.fail(0, error=ZERO) == ["create 4", "place 4/1"]
    assert table.fail(1, error=ZERO) == ["create 5", "place 5/1"]
    decisions = table.fail(2, error=ZERO)
    assert decisions[0] == "stop, as 0, 1, 2 failed alike"
    assert decisions[1:] == [f"{request} {trial}/1" for trial in (3, 4, 5) for request in ("move", "kill")]
    assert table.history.failed_alike == (0, 1, 2)
    for trial in (3, 4, 5):
        assert table.killed(trial) == []
    assert table.history.finish_reason is None
    assert table.conductor.halted
    assert not table.history.running
    assert [table.trial(trial).failures for trial in range(6)] == [1, 1, 1, 0, 0, 0]


def test_with_on_failure_go_on_equal_failures_do_not_stop_a_study() -> None:
    table = failing(on_failure="go_on", retries=0)
    for trial in range(8):
        assert "stop" not in " ".join(table.fail(trial, error=ZERO))
    assert table.fail(8, error=ZERO) == ["give up 8", "finish: all 9 trials done"]


def test_failures_after_a_report_of_another_trial_do_not_stop_a_study() -> None:
    table = failing()
    table.report(3, 1, 0.5)
    for trial in (0, 1, 2, 4, 5):
        table.fail(trial, error=ZERO)
    assert not table.history.failed_alike


def test_failures_of_trials_that_have_reported_do_not_stop_a_study() -> None:
    table = failing()
    for trial in (0, 1, 2):
        table.report(trial, 1, 0.5)
        table.fail(trial, error=ZERO)
    assert not table.history.failed_alike


def test_three_trials_without_the_metric_stop_a_study() -> None:
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
def test_different_errors_and_memory_errors_do_not_stop_a_study(errors: list[str]) -> None:
    table = failing()
    for trial, error in enumerate(errors):
        table.fail(trial, error=error)
    assert not table.history.failed_alike


def test_workers_that_run_out_of_memory_do_not_stop_a_study() -> None:
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
def test_errors_that_differ_only_in_quoted_values_are_equal(errors: list[str]) -> None:
    table = failing()
    for trial, error in enumerate(errors):
        table.fail(trial, error=error)
    assert table.history.failed_alike == (0, 1, 2)


def test_failures_of_commands_are_compared_by_the_last_line_of_output() -> None:
    table = failing()
    for trial in (0, 1):
        table.fail(trial, "exited", "exited with status 1", f"epoch 1\nno file data-{trial}.csv\n")
    table.fail(2, "exited", "exited with status 1", "usage: train.py [-h]")
    assert not table.history.failed_alike
    table = failing()
    for trial in (0, 1, 2):
        table.fail(trial, "exited", "exited with status 1", f"epoch 1\nno file data-{trial}.csv\n")
    assert table.history.failed_alike == (0, 1, 2)


def test_failures_told_by_the_user_do_not_stop_a_study() -> None:
    table = Table(slots=0, trials=9, target=Target("outside"), on_failure="stop", retries=0)
    for trial in range(4):
        table(ev.TrialRequested(table.now))
        table(ev.Failed(table.now, trial, 1, "told", "no luck"))
    assert not table.history.failed_alike


def test_a_study_whose_last_three_trials_fail_equally_stops_and_does_not_finish() -> None:
    table = failing(trials=3, retries=0)
    for trial in (0, 1, 2):
        table.fail(trial, error=ZERO)
    assert table.history.finish_reason is None
    assert table.conductor.halted


# --- retries by the user ----------------------------------------------------------------------------------


def test_the_failed_trials_of_a_stopped_study_are_retried() -> None:
    table = failing(trials=4, retries=0)
    for trial in (0, 1, 2):
        table.fail(trial, error=ZERO)
    table.killed(3)
    table.stop()
    table.kill_driver()
    failed = to_retry(table.history.trials)
    assert failed == [0, 1, 2]
    assert table(*(ev.Retry(table.now, trial) for trial in failed)) == ["retry 0", "retry 1", "retry 2"]
    assert table.dropped(*(ev.Retry(table.now, trial) for trial in failed))
    assert table.history.counts[State.FAILED] == 0
    assert not table.nothing_left()
    assert table.start(slots=4) == ["place 3/2", "place 0/2", "place 1/2", "place 2/2"]
    assert not table.history.failed_alike
    for trial in range(3):
        table.report(trial, 1, 0.5)
        table.end(trial)
    table.report(3, 1, 0.5)
    assert table.end(3) == ["finish: all 4 trials done"]


def test_a_completed_trial_is_not_retried() -> None:
    table = Table(trials=1)
    table.report(0, 1, 0.5)
    table.end(0)
    assert to_retry(table.history.trials) == []
    assert table.dropped(ev.Retry(table.now, 0))


def test_retry_resets_the_failures_of_a_waiting_trial() -> None:
    table = Table(trials=1, retries=1)
    table.fail(0)
    table.stop()
    table.kill_driver()
    assert table(ev.Retry(table.now, 0)) == ["retry 0"]
    assert table.start() == ["place 0/2"]
    assert table.fail(0) + table.retry() == ["place 0/3"]


# --- retries by the conductor -----------------------------------------------------------------------------


def test_the_wait_before_a_retry_doubles_up_to_a_maximum() -> None:
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


def test_a_lost_trial_is_placed_again_without_a_wait() -> None:
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
def test_a_permanent_error_is_not_retried(kind: str, error: str, output: str) -> None:
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


def test_the_exception_line_is_found_in_tracebacks_and_in_output() -> None:
    raised = TrialRecord(0, {}, 0.0, error_kind="raised", error=traceback("ValueError: a\nb\nc"), output="noise")
    assert exception_line(raised) == "ValueError: a"
    printed = TrialRecord(0, {}, 0.0, error_kind="exited", error="exited with status 1", output=f"x\n{ZERO}\n")
    assert exception_line(printed) == "ZeroDivisionError: division by zero"
    silent = TrialRecord(0, {}, 0.0, error_kind="exited", error="exited with status 1")
    assert exception_line(silent) == "exited with status 1"


def test_stop_after_failures_and_retry_are_read_as_they_were_written() -> None:
    for entry in (ev.StopAfterFailures(1.0, [0, 1, 2]), ev.Retry(1.0, 4)):
        assert Codec.event(Codec.kind(entry), Codec.body(entry)) == entry
    with pytest.raises(ValueError, match="its trials is"):
        Codec.event("StopFailing", '{"at":1.0,"trials":["a"]}')


# --- real studies -----------------------------------------------------------------------------------------

BROKEN = """
import thriftune as tt

def train(trial):
    import a_missing_module
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


def test_a_script_with_a_bug_stops_with_the_traceback_and_continues_when_it_is_fixed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(BROKEN)
    failed = run(tmp_path, "script.py")
    assert failed.returncode == 1
    assert "study 's' has stopped: its first 3 trials have all failed with the same error" in failed.stderr
    assert 'script.py", line 5, in train\n    import a_missing_module\n' in failed.stderr
    assert "ModuleNotFoundError: No module named 'a_missing_module'\n" in failed.stderr
    assert "Fix the cause and run the script again. The failed trials then run again." in failed.stderr
    assert "driver.py" not in failed.stderr
    study = tt.load("s", store=tmp_path / "s.db")
    # Other trials may have started before the study stopped.
    assert {trial.attempts for trial in study.trials if trial.state is State.FAILED} == {1}
    assert len(study.trials) <= 5
    again = run(tmp_path, "script.py")
    assert again.returncode == 1
    assert "has stopped: its first 3 trials" in again.stderr
    script.write_text(script.read_text().replace("import a_missing_module", "pass"))
    fixed = run(tmp_path, "script.py")
    assert fixed.stdout.startswith("20 "), fixed.stderr
    assert all(trial.state is State.COMPLETED for trial in tt.load("s", store=tmp_path / "s.db").trials)


def test_retry_failed_runs_failed_trials_again(tmp_path: Path) -> None:
    fixed = tmp_path / "fixed"

    def train(trial: tt.Trial) -> float:
        if trial.id in (1, 3) and not fixed.exists():
            raise ValueError("not yet")
        return float(trial["lr"])

    def tune(**settings: Any) -> tt.Result:
        return tt.tune(
            train, {"lr": tt.Float(0, 1)}, minimize="loss", trials=5, retries=0, name="s", store=tmp_path / "s.db",
            progress=False, workers=1, **settings,
        )  # fmt: skip

    assert [trial.state for trial in tune().trials].count(State.FAILED) == 2
    fixed.touch()
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
[space]
lr = { type = "float", low = 0.0, high = 1.0 }
"""


def test_a_command_that_fails_shows_its_output_and_is_resumed_when_it_is_fixed(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(COMMAND)
    (tmp_path / "train.py").write_text("print('reading the data')\nimport a_missing_module\n")
    failed = run(tmp_path, "-m", "thriftune", "run", "study.toml", "--store", "s.db")
    assert failed.returncode == 1
    assert "error: study 'c' has stopped: its first 3 trials have all failed with the same error" in failed.stderr
    assert "reading the data\nTraceback" in failed.stderr
    assert "No module named 'a_missing_module'" in failed.stderr
    assert "Fix the cause and run the study file again. If you did not change the study file, " in failed.stderr
    assert "`thriftune resume c --store " in failed.stderr
    (tmp_path / "train.py").write_text("print('loss=0.5')\n")
    resumed = run(tmp_path, "-m", "thriftune", "resume", "c", "--store", "s.db")
    assert resumed.returncode == 0, resumed.stderr
    assert "6 completed" in resumed.stdout


def test_a_missing_command_is_tried_once_per_trial(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(COMMAND.replace('"python"', '"pyhton-with-a-typo"'))
    failed = run(tmp_path, "-m", "thriftune", "run", "study.toml", "--store", "s.db")
    assert failed.returncode == 1
    assert "the command 'pyhton-with-a-typo' cannot be started: [Errno 2]" in failed.stderr
    assert {trial.attempts for trial in tt.load("c", store=tmp_path / "s.db").trials if trial.failures} == {1}


def test_configurations_that_need_too_much_memory_do_not_stop_a_study(tmp_path: Path) -> None:
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


def test_a_retried_trial_gets_its_full_max_trial_time() -> None:
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


def test_a_retried_trial_keeps_its_reports() -> None:
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


def test_retry_failed_does_nothing_when_a_limit_is_reached(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> float:
        if trial.id and not (tmp_path / "fixed").exists():
            raise ValueError("not yet")
        return 0.1

    settings: dict[str, Any] = {"minimize": "loss", "trials": 4, "retries": 0, "name": "s", "workers": 1}
    settings |= {"store": tmp_path / "s.db", "progress": False}
    tt.tune(train, {"lr": tt.Float(0, 1)}, **settings)
    (tmp_path / "fixed").touch()
    limits: list[dict[str, Any]] = [{"target": 0.5}, {"deadline": 1e-6}]
    for limit in limits:
        result = tt.tune(train, {"lr": tt.Float(0, 1)}, retry_failed=True, **settings, **limit)
        assert [trial.state for trial in result.trials].count(State.FAILED) == 3
    result = tt.tune(train, {"lr": tt.Float(0, 1)}, retry_failed=True, **settings)
    assert [trial.state for trial in result.trials].count(State.COMPLETED) == 4


def test_show_prints_why_a_study_has_stopped(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> float:
        raise RuntimeError("boom")

    with pytest.raises(tt.StudyFailed):
        tt.tune(
            train, {"lr": tt.Float(0, 1)}, minimize="loss", trials=6, workers=1, name="s", store=tmp_path / "s.db"
        )
    shown = run(tmp_path, "-m", "thriftune", "show", "s", "--store", "s.db").stdout
    assert "stopped because trials 0, 1 and 2 all failed in the same way" in " ".join(shown.split())
