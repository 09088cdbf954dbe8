"""`thriftune run`, `resume`, `stop` and `report`, in real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import (
    MAIN,
    PATIENCE_SECONDS,
    parse_json,
    run,
    run_json,
    set_pause,
    start,
    wait_until,
    write_slow_study,
)
from thriftune.errors import StudyNotFound
from thriftune.store.opening import open_store
from thriftune.study.ask_tell import load

STORE = ("--store", "studies.db")


def trials(folder: Path) -> Any:
    """Return the trials of the study."""
    return load("study", folder / "studies.db").trials


def trials_if_any(folder: Path) -> Any:
    """Return the trials of the study, or none if it is not stored yet."""
    try:
        return trials(folder)
    except StudyNotFound:
        return ()


def check_trials(folder: Path) -> None:
    """Check that all trials completed, and that no report was lost or repeated.

    Each attempt after the first must have resumed from a checkpoint.
    """
    for trial in trials(folder):
        assert trial.state == "COMPLETED"
        assert [report.step for report in trial.reports] == list(range(1, 21))
        trial_folder = folder / "studies.db.files" / "study" / "trials" / str(trial.id)
        resumed_after = (trial_folder / "resumed_after").read_text().split()  # a step for each attempt
        assert len(resumed_after) == trial.attempts
        assert all(int(step) > 0 for step in resumed_after[1:])


@contextmanager
def running(folder: Path, *args: str) -> Iterator[subprocess.Popen[str]]:
    """Run a study, give its process once two trials have a checkpoint, and kill it at the end."""
    write_slow_study(folder, pause=0.05)
    process = start("run", "study.toml", *args, cwd=folder)
    try:
        wait_until(lambda: sum(bool(trial.resume_step) for trial in trials_if_any(folder)) >= 2)
        set_pause(folder, 0.5)  # keeps the study from ending during the test, also on a slow machine
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_finished_study_is_run_again_with_more_trials(tmp_path: Path) -> None:
    write_slow_study(tmp_path, pause=0)
    out, err = run("run", str(tmp_path / "study.toml"), cwd=Path("/"))
    assert f"more    thriftune show study --store {tmp_path / 'studies.db'}\n" in err
    assert "study study: all 4 trials done" in out
    assert "4 completed" in out
    assert "if rented (AWS " in out
    assert "thriftune show" not in run("run", "study.toml", "--json", cwd=tmp_path)[1]
    again = run_json("run", "study.toml", cwd=tmp_path)
    assert again["counts"] == {"COMPLETED": 4}
    assert again["state"] == "finished"
    more = run_json("run", "study.toml", "--trials", "6", "--workers", "1", "--quiet", cwd=tmp_path)
    assert more["counts"] == {"COMPLETED": 6}
    assert run("run", "study.toml", "--trials", "6", "--quiet", cwd=tmp_path) == ("", "")
    check_trials(tmp_path)


CONDITIONAL = """
command = ["python3", "train.py", "--opt", "{opt}", "--momentum", "{momentum}",
  "--decay={decay}", "--beta", "{beta|0.5}"]
minimize = "loss"
trials = 4
searcher = "grid"
store = "studies.db"
[space.opt]
type = "choice"
choices = ["adam", "sgd"]
[space.momentum]
type = "choice"
choices = [0.1, 0.9]
when = { opt = "sgd" }
[space.decay]
type = "choice"
choices = [0.2]
when = { opt = "sgd" }
[space.beta]
type = "choice"
choices = [0.3, 0.4]
when = { opt = "adam" }
[metrics]
loss = 'loss=(.*)'
"""

CONDITIONAL_TRAINING = """
import argparse
parser = argparse.ArgumentParser()
for name, default in (("--momentum", 2), ("--decay", 2), ("--beta", 0)):
    parser.add_argument(name, type=float, default=default)
parser.add_argument("--opt")
args = parser.parse_args()
print(f"loss={(args.opt == 'sgd') + args.momentum + args.decay + args.beta}")
"""


def test_an_inactive_parameter_is_left_out_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(CONDITIONAL)
    (tmp_path / "train.py").write_text(CONDITIONAL_TRAINING)
    run("run", "study.toml", "--quiet", cwd=tmp_path)
    assert [(trial.config["opt"], trial.state, trial.value) for trial in trials(tmp_path)] == [
        ("adam", "COMPLETED", 4.3),
        ("adam", "COMPLETED", 4.4),
        ("sgd", "COMPLETED", pytest.approx(1.8)),
        ("sgd", "COMPLETED", pytest.approx(2.6)),
    ]


def test_options_override_the_study_file(tmp_path: Path) -> None:
    write_slow_study(tmp_path, pause=0)
    run(
        "run",
        "study.toml",
        "--name",
        "other",
        "--trials",
        "1",
        "--deadline",
        "5m",
        "--store",
        "b.db",
        cwd=tmp_path,
    )
    study = load("other", tmp_path / "b.db")
    assert (study.spec.trials, study.spec.deadline_seconds) == (1, 300.0)
    assert not (tmp_path / "studies.db").exists()
    assert [row["name"] for row in parse_json(run("--store", "b.db", "list", "--json", cwd=tmp_path)[0])] == [
        "other"
    ]


def test_a_changed_seed_is_ignored_with_a_message(tmp_path: Path) -> None:
    write_slow_study(tmp_path, pause=0)
    run("run", "study.toml", cwd=tmp_path)
    text = (tmp_path / "study.toml").read_text().replace("seed = 0", "seed = 9")
    (tmp_path / "study.toml").write_text(text)
    assert "began with 0 and goes on with it, not with 9" in run("run", "study.toml", cwd=tmp_path)[1]


def test_warm_start_from_the_study_file_and_from_options(tmp_path: Path) -> None:
    write_slow_study(tmp_path, pause=0)
    run("run", "study.toml", "--name", "old", cwd=tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "warm.toml").write_text('warm_start = ["old"]\n' + (tmp_path / "study.toml").read_text())
    _, err = run("run", "../warm.toml", "--name", "by-file", cwd=tmp_path / "elsewhere")
    assert "warm start from 'old': 4 of 4 trials taken" in err
    options = ("--warm-start", "by-file", "--warm-start", "../studies.db:old", "--name", "by-option")
    shown = run_json("run", "../warm.toml", *options, cwd=tmp_path / "elsewhere")
    assert shown["warm_start"] == [{"study": "by-file", "trials": 4}, {"study": "old", "trials": 4}]
    assert run_json("resume", "by-option", *STORE, cwd=tmp_path)["warm_start"] == shown["warm_start"]
    assert "warm start  by-file (4 trials), old (4 trials)" in run("show", "by-option", *STORE, cwd=tmp_path)[0]
    wrong = ("run", "study.toml", "--name", "new", "--warm-start", "odl")
    assert "error: warm_start: there is no study 'odl'" in run(*wrong, cwd=tmp_path, status=1)[1]
    assert len(run_json("list", *STORE, cwd=tmp_path)) == 3


@pytest.mark.parametrize("again", [("resume", "study", *STORE), ("run", "study.toml")])
def test_a_killed_study_is_resumed(tmp_path: Path, again: tuple[str, ...]) -> None:
    with running(tmp_path) as process:
        process.kill()
        process.wait()
        (row,) = run_json("list", *STORE, cwd=tmp_path)
        assert (row["state"], row["pid"]) == ("stopped", None)
        assert row["counts"].get("RUNNING", 0) == 0
        shown, _ = run("show", "study", *STORE, cwd=tmp_path)
        assert f"process {process.pid}" in shown
        assert "has ended; to resume: thriftune resume study" in shown
        assert "waits for the study to be resumed" in shown
        set_pause(tmp_path, 0)
        run(*again, cwd=tmp_path)
        check_trials(tmp_path)
        assert "all 4 trials done" in run(*again, cwd=tmp_path)[0]
        check_trials(tmp_path)


def test_list_show_and_stop_work_from_another_process(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        (row,) = run_json("list", *STORE, cwd=tmp_path)
        assert (row["state"], row["pid"]) == ("running", process.pid)
        assert f"running ({process.pid})" in run("list", *STORE, cwd=tmp_path)[0]
        assert f"running by process {process.pid}" in run("show", "study", *STORE, cwd=tmp_path)[0]
        assert (
            f"is being run by process {process.pid}" in run("resume", "study", *STORE, cwd=tmp_path, status=1)[1]
        )
        refusal = run("delete", "study", "--yes", *STORE, cwd=tmp_path, status=1)[1]
        assert f"run by process {process.pid}" in refusal
        assert "thriftune stop study" in refusal
        assert "has stopped; to resume: thriftune resume study" in run("stop", "study", *STORE, cwd=tmp_path)[0]
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 130
        assert "stopped by thriftune stop" in err
        assert "thriftune resume study --store" in err
    assert "is not running" in run("stop", "study", *STORE, cwd=tmp_path)[0]
    assert "stopped by thriftune stop; to resume" in run("show", "study", *STORE, cwd=tmp_path)[0]
    set_pause(tmp_path, 0)
    run("resume", "study", *STORE, cwd=tmp_path)
    check_trials(tmp_path)


def test_stop_without_waiting(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        assert (
            f"requested that process {process.pid}" in run("stop", "study", "--no-wait", *STORE, cwd=tmp_path)[0]
        )
        process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 130


def test_ctrl_c_once_stops_cleanly(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 130
        assert out == ""
        assert "Ctrl-C again to stop now" in err
        assert "stopped by Ctrl-C" in err
        assert "Traceback" not in err
    set_pause(tmp_path, 0)
    # The study runs in its own folder, also if it is resumed from another one.
    (tmp_path / "elsewhere").mkdir()
    run("resume", "study", "--store", str(tmp_path / "studies.db"), cwd=tmp_path / "elsewhere")
    check_trials(tmp_path)


def test_ctrl_c_twice_stops_now(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        set_pause(tmp_path, 600)  # no step ends from now on
        wait_until(lambda: _has_no_new_reports(tmp_path))
        process.send_signal(signal.SIGINT)
        wait_until(lambda: load("study", tmp_path / "studies.db").history.stop_requested_by)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 130
        assert "stopped now; what trials reported and saved is safe" in err
        assert "thriftune resume study --store" in err
        assert "Traceback" not in err
    assert "stopped at once (Ctrl-C)" in run("show", "study", *STORE, cwd=tmp_path)[0]
    set_pause(tmp_path, 0)
    run("resume", "study", *STORE, cwd=tmp_path)
    check_trials(tmp_path)


def _has_no_new_reports(folder: Path) -> bool:
    """Tell whether the log does not grow for half a second."""
    with open_store(folder / "studies.db") as store:
        before = store.length("study")
        time.sleep(0.5)
        return store.length("study") == before


# --- commands ---------------------------------------------------------------------------------------------

COMMAND_FILE = """
minimize = "loss"
trials = 2
max_steps = 3
workers = 1
retries = 0
store = "studies.db"
command = {command}
{more}
[space]
x = {{ type = "float", low = 0.0, high = 1.0 }}
"""


def write_command_study(
    folder: Path, script: str, more: str = "", *, command: str = "", args: str = ', "{x}"'
) -> None:
    """Write a study that runs `command`, by default a Python script with these arguments.

    `more` is added to the top level of the study file.
    """
    (folder / "work.py").write_text(script)
    command = command or f'["{sys.executable}", "work.py"{args}]'
    (folder / "study.toml").write_text(COMMAND_FILE.format(command=command, more=more))


def test_metrics_by_regular_expression(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "for step in (5, 10): print(f'step={step} acc={step / 10} loss={float(sys.argv[1]) / step:.9f}')\n"
    )
    patterns = "metrics = { loss = 'loss=(\\S+)', acc = 'acc=(\\S+)', step = 'step=(\\d+)' }"
    write_command_study(tmp_path, script, patterns)
    text = (tmp_path / "study.toml").read_text().replace("max_steps = 3\n", "")
    (tmp_path / "study.toml").write_text(text)
    run("run", "study.toml", cwd=tmp_path)
    for trial in trials(tmp_path):
        assert [report.step for report in trial.reports] == [5, 10]
        assert [report.metrics["acc"] for report in trial.reports] == [0.5, 1.0]
        assert trial.value == pytest.approx(trial["x"] / 10)


def test_several_objectives_and_a_constraint_by_regular_expression(tmp_path: Path) -> None:
    script = (
        "import sys\nx = float(sys.argv[1])\nprint(f'loss={x:.9f}')\nprint(f'ms={10 - x:.9f}')\nprint('size=5')\n"
    )
    patterns = "metrics = { loss = 'loss=(\\S+)', ms = 'ms=(\\S+)', size = 'size=(\\S+)' }"
    write_command_study(tmp_path, script, 'maximize = []\nconstraints = ["size <= 9"]\n' + patterns)
    file = tmp_path / "study.toml"
    file.write_text(file.read_text().replace('minimize = "loss"', 'minimize = ["loss", "ms"]'))
    out, _ = run("run", "study.toml", cwd=tmp_path)
    low, high = sorted(trials(tmp_path), key=lambda trial: trial["x"])
    lines = out.splitlines()
    assert lines[2].startswith(f"front   loss {low['x']:.6g}, ms {10 - low['x']:.6g} (trial {low.id}) x=")
    assert lines[3].startswith(f"        loss {high['x']:.6g}, ms {10 - high['x']:.6g} (trial {high.id}) x=")
    assert [trial["trial"] for trial in run_json("run", "study.toml", cwd=tmp_path)["front"]] == [low.id, high.id]


def test_an_error_is_printed_if_no_trial_meets_the_constraint(tmp_path: Path) -> None:
    patterns = "metrics = { loss = 'loss=(\\S+)', ms = 'ms=(\\S+)' }"
    write_command_study(tmp_path, "print('ms=3 loss=1')\n", 'constraints = "ms <= 2"\n' + patterns)
    out, err = run("run", "study.toml", cwd=tmp_path, status=1)
    sentence = "none of 2 trials meets ms <= 2; the nearest is trial 0 with 3"
    assert f"best    {sentence}\n" in out
    assert f"error: {sentence}\n" in err


def test_metrics_by_thriftune_report(tmp_path: Path) -> None:
    shell = (
        f"r() {{ '{sys.executable}' -c '{MAIN}' report \\\"$@\\\" || echo status $?; }}; "
        "r loss=2 acc=0.5; r loss=-1 --step 3"
    )
    write_command_study(tmp_path, "", command=f'["sh", "-c", "{shell}"]')
    run("run", "study.toml", cwd=tmp_path)
    for trial in trials(tmp_path):
        assert [(report.step, dict(report.metrics)) for report in trial.reports] == [
            (1, {"loss": 2.0, "acc": 0.5}),
            (3, {"loss": -1.0}),
        ]


def test_thriftune_report_exits_with_status_3_when_the_trial_must_end(tmp_path: Path) -> None:
    script = f"""
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
report = [sys.executable, "-c", {MAIN!r}, "report", "loss=1"]
for step in range(10_000):
    ended = subprocess.run(report, capture_output=True, text=True)
    assert ended.stdout == ""
    if ended.returncode == 3:
        open("end_message", "a").write(ended.stderr)
        sys.exit(0)
    assert (ended.returncode, ended.stderr) == (0, "")
"""
    write_command_study(tmp_path, script)
    text = (tmp_path / "study.toml").read_text().replace("max_steps = 3\n", "")
    (tmp_path / "study.toml").write_text(text)
    with start("run", "study.toml", cwd=tmp_path) as process:
        wait_until(lambda: any(trial.reports for trial in trials_if_any(tmp_path)))
        run("stop", "study", *STORE, cwd=tmp_path)
        process.communicate(timeout=PATIENCE_SECONDS)
    assert (tmp_path / "end_message").read_text() == "this trial must end now\n"


def test_a_python_command_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    script = """
import os, sys, thriftune
trial = thriftune.current_trial()
before = trial.restore(lambda folder: None)
for step in trial.steps():
    thriftune.report(loss=float(sys.argv[1]) / step, save=lambda folder: (folder / "x").write_text("x"))
    if step == 2 and trial.attempt == 1:
        sys.exit("enough")
assert before == (2 if trial.attempt == 2 else 0)
"""
    write_command_study(tmp_path, script)
    text = (tmp_path / "study.toml").read_text().replace("retries = 0", "retries = 1")
    (tmp_path / "study.toml").write_text(text)
    run("run", "study.toml", cwd=tmp_path)
    for trial in trials(tmp_path):
        assert (trial.state, trial.attempts, trial.failures) == ("COMPLETED", 2, 1)
        assert [report.attempt for report in trial.reports] == [1, 1, 2]


def test_trials_that_fail_after_their_reports_leave_no_best_trial(tmp_path: Path) -> None:
    write_command_study(
        tmp_path,
        "print('loss=1.0', flush=True); raise SystemExit('no data')",
        "metrics = { loss = 'loss=(\\S+)' }",
    )
    out, err = run("run", "study.toml", cwd=tmp_path, status=1)
    assert all(len(trial.reports) == 1 for trial in trials(tmp_path))
    assert "\nbest    none: all 2 trials failed, the first with: " in out
    assert err.splitlines()[-1].startswith("error: no best trial: all 2 trials failed, the first with: ")


def test_a_failed_command_is_shown_with_its_output(tmp_path: Path) -> None:
    write_command_study(tmp_path, "print('so far so good'); raise SystemExit('no [bold]data')")
    out, err = run("run", "study.toml", cwd=tmp_path, status=1)
    assert "2 failed" in out
    assert "\nbest    none: all 2 trials failed, the first with: " in out
    show_command = f"thriftune show study --trial 0 --store {tmp_path}/studies.db"
    first, *_, last = err.splitlines()
    assert first.startswith("trial 0 failed: ")
    assert first.endswith(f" ({show_command} tells more)")
    assert last.startswith("error: no best trial: all 2 trials failed, the first with: ")
    assert last.endswith(f"; see it with: {show_command}")
    for again in (("run", "study.toml"), ("resume", "study", *STORE)):
        out, err = run(*again, "--json", cwd=tmp_path, status=1)
        assert parse_json(out)["counts"] == {"FAILED": 2}
        assert "\nerror: no best trial: all 2 trials failed" in err
    shown, _ = run("show", "study", "--trial", "1", *STORE, cwd=tmp_path)
    assert "so far so good\nno [bold]data" in shown
    assert run("best", "study", *STORE, cwd=tmp_path, status=1)[1].startswith(
        "error: all 2 trials failed, the first with: "
    )


def test_the_last_lines_of_a_failed_command_are_printed_at_once(tmp_path: Path) -> None:
    write_command_study(tmp_path, "print('\\n'.join(map(str, range(20))), flush=True)\nimport no_such_module")
    with start("run", "study.toml", cwd=tmp_path) as process:
        err = process.communicate(timeout=2 * PATIENCE_SECONDS)[1]
    lines = err.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("trial 0 failed: "))
    assert lines[first].startswith("trial 0 failed: the process exited with status 1 (thriftune show study")
    shown = lines[first + 1 : first + 6]
    assert shown[0] == "    19"
    assert shown[1] == "    Traceback (most recent call last):"
    assert shown[3].strip() == "import no_such_module"
    assert shown[4] == "    ModuleNotFoundError: No module named 'no_such_module'"


def test_a_pattern_that_never_matches_is_shown_with_the_output(tmp_path: Path) -> None:
    write_command_study(tmp_path, "print('epoch 1, val_loss 0.25')", "metrics = { loss = 'loss=(\\S+)' }")
    _, err = run("run", "study.toml", cwd=tmp_path, status=1)
    reason = r"it reported nothing; the pattern of loss, 'loss=(\\S+)', found nothing (thriftune show study"
    assert f"trial 0 failed: the trial ended without a value of 'loss'; {reason}" in err
    assert "\n    epoch 1, val_loss 0.25\n" in err


def test_the_note_on_steps_from_0_is_printed_once(tmp_path: Path) -> None:
    script = "for epoch in range(3): print(f'epoch {epoch} loss={1 / (epoch + 1)}')"
    patterns = "metrics = { loss = 'loss=(\\S+)', step = 'epoch (\\d+)' }"
    write_command_study(tmp_path, script, patterns)
    _, err = run("run", "study.toml", cwd=tmp_path)
    assert err.count("the command counts its steps from 0; its step 0 is shown as step 1") == 1
    for trial in trials(tmp_path):
        assert (trial.state, [report.step for report in trial.reports]) == ("COMPLETED", [1, 2, 3])
    shown, _ = run("show", "study", *STORE, cwd=tmp_path)
    assert "trial 1 and 1 other: the command counts" in shown


def test_a_note_tells_that_trials_share_a_folder(tmp_path: Path) -> None:
    script = (
        "import os, sys, pathlib\n"
        "assert sys.argv[1] == os.environ['THRIFTUNE_FOLDER']\n"
        "pathlib.Path(sys.argv[1], 'own.txt').write_text(sys.argv[2])\nprint('loss=1')"
    )
    patterns = "metrics = { loss = 'loss=(\\S+)' }"
    write_command_study(tmp_path, "print('loss=1')", patterns)
    note = f"all trials run in {tmp_path}: what a trial writes belongs in its own folder"
    assert note not in run("run", "study.toml", "--workers", "1", "--name", "alone", cwd=tmp_path)[1]
    assert note in run("run", "study.toml", "--workers", "2", cwd=tmp_path)[1]
    assert note not in run("run", "study.toml", "--workers", "2", "--trials", "3", cwd=tmp_path)[1], (
        "the note is printed once"
    )
    write_command_study(tmp_path, script, patterns, args=', "{folder}", "{trial}"')
    assert note not in run("run", "study.toml", "--workers", "2", "--name", "own", cwd=tmp_path)[1]
    for trial in load("own", store=tmp_path / "studies.db").trials:
        assert Path(trial.folder, "own.txt").read_text() == str(trial.id)


def test_report_outside_of_a_trial_and_with_wrong_values_is_refused(tmp_path: Path) -> None:
    assert (
        "error: this process does not run in a trial's command"
        in run("report", "loss=1", cwd=tmp_path, status=1)[1]
    )
    assert (
        "error: 'loss' is not of the form KEY=VALUE, such as loss=0.3"
        in run("report", "loss", cwd=tmp_path, status=1)[1]
    )
    assert "error: loss: 'low' is not a number" in run("report", "loss=low", cwd=tmp_path, status=1)[1]
    assert "Missing argument" in run("report", cwd=tmp_path, status=2)[1]
    run("report", "loss=1", "--step", "-1", cwd=tmp_path, status=2)


# --- studies of scripts -----------------------------------------------------------------------------------

SCRIPT = """
import time
from pathlib import Path
import thriftune as tt
import helper

def train(trial):
    for step in trial.steps():
        time.sleep(float((Path(helper.__file__).parent / "pause").read_text()))
        trial.report(loss=helper.half(trial["x"]), save=lambda folder: (folder / "x").write_text("x"))

if __name__ == "__main__":
    space = {"x": tt.Float(0, 1)}
    result = tt.tune(train, space, minimize="loss", trials=4, max_steps=20, workers=2, name="study",
                     store="studies.db", seed=0)
    print(len(result.trials))
"""


def start_script(folder: Path) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, str(folder / "code" / "script.py")]
    return subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True)


def test_a_script_is_resumed_by_name(tmp_path: Path) -> None:
    """The script imports a module from its own folder, which thriftune does not search otherwise."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "script.py").write_text(SCRIPT)
    (tmp_path / "code" / "helper.py").write_text("def half(x): return x / 2")
    set_pause(tmp_path / "code", 0.1)
    with start_script(tmp_path) as process:
        try:
            wait_until(lambda: any(trial.reports for trial in trials_if_any(tmp_path)))
            with start_script(tmp_path) as second:  # is refused and does not affect the running study
                _, err = second.communicate(timeout=PATIENCE_SECONDS)
                assert f"is being run by process {process.pid}" in err
        finally:
            os.kill(process.pid, signal.SIGKILL)
    set_pause(tmp_path / "code", 0)
    (tmp_path / "elsewhere").mkdir()
    store = ("--store", str(tmp_path / "studies.db"))
    assert "4 completed" in run("resume", "study", *store, cwd=tmp_path / "elsewhere")[0]
    (tmp_path / "code" / "helper.py").unlink()
    with start_script(tmp_path) as process:
        assert process.wait() != 0
    assert "4 completed" in run("resume", "study", *store, cwd=tmp_path)[0], (
        "a finished study is resumed without loading its function"
    )
    with open_store(tmp_path / "studies.db") as opened:
        opened.update_spec("study", {**opened.spec("study"), "trials": 5})
    err = run("resume", "study", *store, cwd=tmp_path, status=1)[1]
    assert "cannot be loaded here (ModuleNotFoundError: No module named 'helper')" in err


def test_python_m_thriftune_is_the_command() -> None:
    shown = subprocess.run([sys.executable, "-m", "thriftune", "--version"], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("thriftune")


def test_engine_ray_runs_a_study_on_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)  # a cluster is started for the study
    write_slow_study(tmp_path, pause=0.0)
    run_json("run", "study.toml", "--engine", "ray", "--trials", "2", cwd=tmp_path)
    assert [trial.state for trial in trials(tmp_path)] == ["COMPLETED"] * 2
    with open_store(tmp_path / "studies.db") as store:
        assert store.spec("study")["engine"] == "ray"


def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    write_slow_study(tmp_path, pause=0.0)
    command = [sys.executable, "-c", MAIN, "run", "study.toml", "--engine", "spark"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 1
    assert "engine 'spark' is not known; use one of local, ray" in result.stderr
    assert not (tmp_path / "studies.db").exists()
