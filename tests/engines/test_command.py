"""Tests commands as trials: their output and reports, their ends and their environment."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.engines.conformance import ON_THIS_MACHINE, ends, wait_for_end, wait_until
from tests.engines.processes import eventually, processes_with, wait_for_no_process
from thriftune.engines import command as command_module
from thriftune.engines import printed_metrics
from thriftune.engines.command import Command
from thriftune.engines.local import LocalEngine
from thriftune.engines.printed_metrics import PrintedMetrics
from thriftune.engines.worker import attempt
from thriftune.state.events import Ended, Event, Failed, Lost, Reported, Warned
from thriftune.training.checkpoint_files import Checkpoints
from thriftune.training.run import Run

PYTHON = sys.executable
LOSS = {"loss": r"loss=(\S+)", "accuracy": r"accuracy=(\S+)", "step": r"step (\S+)"}
HANGS = r"loss=((?:a+)+|[0-9.]+)$"


class FakeLink:
    """A link to a fake driver, which collects all events and may request the end."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.end = threading.Event()
        self.end_after = 0  # the number of reports after which the trial is to end; 0: never

    def send(self, event: Event) -> int:
        self.heard.append(event)
        if self.end_after and self.end_after == sum(isinstance(each, Reported) for each in self.heard):
            self.end.set()
        return 0

    def seconds_left(self) -> float | None:
        return None

    def end_requested(self, after_report: int = 0, timeout_seconds: float = 0.0) -> bool:
        assert not after_report, "nothing here is judged"
        return self.end.is_set()


class Stage:
    """Runs commands in this process, as a worker does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.link = FakeLink()
        self.data: dict[str, tuple[str, str]] = {}

    def run(
        self,
        *command: str,
        patterns: Mapping[str, str] | None = None,
        max_steps: int | None = None,
        attempt_number: int = 1,
        resume_step: int = 0,
        objectives: Sequence[str] = ("loss",),
        **config: Any,
    ) -> Any:
        folder = str(self.folder / "trial")
        run = Run(3, attempt_number, config, resume_step, objectives, max_steps, 7, folder, 2, data=self.data)
        return attempt(Command(command, patterns or {}, str(self.folder)), run, self.link)

    def shell(self, script: str, **how: Any) -> Any:
        return self.run("sh", "-c", script, **how)

    def python(self, script: str, **how: Any) -> Any:
        return self.run(PYTHON, "-c", script, **how)

    @property
    def values(self) -> list[tuple[int, float]]:
        return [(event.step, event.metrics["loss"]) for event in self.link.heard if isinstance(event, Reported)]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    value = os.urandom(8).hex()
    monkeypatch.setenv("TEST_MARK", value)
    return f"TEST_MARK={value}"


# --- how they end -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "kind", "error"),
    [
        ("exit 3", "exited", "status 3"),
        ("kill -SEGV $$", "signal", "SIGSEGV"),
        ("kill -ABRT $$", "signal", "SIGABRT"),
    ],
)
def test_a_command_that_fails(script: str, kind: str, error: str, stage: Stage) -> None:
    outcome = stage.shell(script)
    assert isinstance(outcome, Failed)
    assert outcome.kind == kind
    assert error in outcome.error


def test_a_command_that_succeeds_or_is_killed_from_outside(stage: Stage) -> None:
    assert isinstance(stage.shell("exit 0", objectives=()), Ended)
    for name in ("KILL", "TERM"):
        outcome = stage.shell(f"kill -{name} $$")
        assert isinstance(outcome, Lost)
        assert f"SIG{name}" in outcome.why


def test_a_missing_command(stage: Stage) -> None:
    outcome = stage.run("no-such-command")
    assert (outcome.kind, "'no-such-command' cannot be started" in outcome.error) == ("raised", True)
    run = Run(3, 1, {}, 0, ("loss",), None, 7, str(stage.folder / "trial"), 2)
    outcome = attempt(Command(["true"], {}, str(stage.folder / "missing")), run, stage.link)
    assert isinstance(outcome, Failed)
    assert "/missing" in outcome.error


REPORTS_ON_SIGTERM = """
import os, signal, subprocess, sys, time
def end(*_):
    {last}
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("loss=3", flush=True)
while True:
    time.sleep(0.01)
"""


@pytest.mark.parametrize(
    "last",
    [
        "print('loss=2', flush=True)",
        "subprocess.run([sys.executable, '-m', 'thriftune', 'report', 'loss=2'], check=False)",
    ],
)
def test_reports_of_an_ending_command_count(last: str, stage: Stage) -> None:
    """A command may finish its epoch after SIGTERM, which must not be repeated."""
    stage.link.end_after = 1
    outcome = stage.python(REPORTS_ON_SIGTERM.format(last=last), patterns={"loss": LOSS["loss"]})
    assert isinstance(outcome, Ended)
    assert outcome.cut
    assert stage.values == [(1, 3.0), (2, 2.0)]


def test_a_command_gets_sigterm_when_it_is_to_end(stage: Stage) -> None:
    script = "trap 'echo loss=5; exit 1' TERM; echo loss=1; while :; do sleep 0.05; done"
    timer = threading.Timer(0.5, stage.link.end.set)
    timer.start()
    outcome = stage.shell(script, patterns=LOSS)
    assert isinstance(outcome, Ended)
    assert outcome.cut
    assert stage.values == [(1, 1.0), (2, 5.0)]  # the report that it makes while it ends counts


def test_a_command_that_ignores_sigterm_dies(stage: Stage, mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_module, "_TERM_GRACE_SECONDS", 0.3)
    threading.Timer(0.3, stage.link.end.set).start()
    outcome = stage.shell("trap '' TERM; sleep 600 & sleep 600; sleep 600")
    assert isinstance(outcome, Ended)
    assert outcome.cut
    wait_for_no_process(mark)


def test_a_command_ends_after_the_last_step(stage: Stage) -> None:
    outcome = stage.shell(
        "n=0; while :; do n=$((n+1)); echo loss=$n; sleep 0.01; done", patterns=LOSS, max_steps=4
    )
    assert isinstance(outcome, Ended)
    assert not outcome.cut
    assert stage.values == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]


@pytest.mark.parametrize("way", ["sleep 600 &", "yes &", "setsid sleep 600 &", "(sleep 600; echo loss=9) &"])
def test_background_processes_do_not_delay_the_end(way: str, stage: Stage, mark: str) -> None:
    outcome = stage.shell(f"{way} echo loss=2", patterns=LOSS)
    assert isinstance(outcome, Ended)
    assert stage.values == [(1, 2.0)]
    for pid, command in processes_with(mark).items():  # a process that has left the group ends with the worker
        if "setsid" in way and command.startswith(("sleep", "setsid")):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    wait_for_no_process(mark)


def test_nan_ends_the_command(stage: Stage, mark: str) -> None:
    outcome = stage.shell("echo loss=0.5; echo loss=nan; sleep 600", patterns=LOSS)
    assert (outcome.kind, stage.values[0]) == ("nan", (1, 0.5))
    wait_for_no_process(mark)


# --- what they print --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "values"),
    [
        ("loss=1", [(1, 1.0)]),
        ("loss=1\\nloss=2\\n", [(1, 1.0), (2, 2.0)]),
        ("step 5 loss=1\\nstep 7 loss=1e-3", [(5, 1.0), (7, 0.001)]),
        ("loss=\\nloss=0.5\\n", [(1, 0.5)]),
        ("loss=3\\rloss=2\\rloss=1\\r\\n", [(1, 3.0), (2, 2.0), (3, 1.0)]),
        ("\\377\\376 loss=4 \\200\\n", [(1, 4.0)]),
        ("nothing of note\\n", []),
    ],
)
def test_metrics_by_pattern(printed: str, values: list[tuple[int, float]], stage: Stage) -> None:
    assert isinstance(stage.shell(f"printf '{printed}'", patterns=LOSS), Ended if values else Failed)
    assert stage.values == values


def test_a_missing_metric_is_explained(stage: Stage) -> None:
    failed = stage.shell("echo val_loss=0.5", patterns={"loss": "train_loss=(.+)"})
    assert (failed.kind, stage.values) == ("no_value", [])
    why = "the pattern of loss, 'train_loss=(.+)', found nothing"
    assert failed.error == f"the trial ended without a value of 'loss'; it reported nothing; {why}"


@pytest.mark.parametrize(
    ("printed", "name", "text", "values"),
    [
        ("loss=much", "loss", "much", []),
        ("loss=0.5\\nloss=--", "loss", "--", [(1, 0.5)]),
        ("loss=0.5 accuracy=n/a", "accuracy", "n/a", []),
        ("step inf loss=1", "step", "inf", []),
        ("step x loss=1", "step", "x", []),
    ],
)
def test_a_match_that_is_no_number_is_an_error(
    printed: str, name: str, text: str, values: list[tuple[int, float]], stage: Stage, mark: str
) -> None:
    failed = stage.shell(f"printf '{printed}\\n'; sleep 600", patterns=LOSS)
    assert (failed.kind, stage.values) == ("raised", values)
    pattern = LOSS[name]
    assert failed.error.startswith(
        f"metrics: {name}: the pattern {pattern!r} found {text!r}, which is no number; "
    )
    assert failed.error.endswith(r"(\d+)" if name == "step" else "([-+0-9.eE]+|nan)")
    wait_for_no_process(mark)


def test_an_incomplete_number_is_no_error_if_the_command_fails_or_is_ended(stage: Stage) -> None:
    failed = stage.shell("printf 'loss=1\\nloss=1e-'; exit 3", patterns=LOSS)
    assert (failed.kind, stage.values) == ("exited", [(1, 1.0)])
    assert "status 3" in failed.error
    failed = stage.shell("printf 'loss=1\\nloss=1e-'", patterns=LOSS)
    assert "found '1e-', which is no number" in failed.error
    stage.link.end_after = sum(isinstance(event, Reported) for event in stage.link.heard) + 1
    outcome = stage.shell(
        "trap 'printf loss=--; exit 1' TERM; echo loss=1; while :; do sleep 0.05; done", patterns=LOSS
    )
    assert isinstance(outcome, Ended)


# --- which step it is -------------------------------------------------------------------------------------


REPORTS_STEPS = """
import subprocess, sys
for step in sys.argv[1:]:
    subprocess.run([sys.executable, "-m", "thriftune", "report", "loss=" + step, "--step", step], check=True)
"""

REPORTS_BY_THRIFTUNE = """
import thriftune
def save(folder):
    (folder / "epoch").write_text(str(epoch))
for epoch in range(3):
    thriftune.report(loss=epoch, step=epoch, save=save)
"""

FROM_ZERO = "the command counts its steps from 0; its step 0 is shown as step 1"


def warnings(stage: Stage) -> list[str]:
    return [event.message for event in stage.link.heard if isinstance(event, Warned)]


def test_printed_steps_may_count_from_0(stage: Stage) -> None:
    outcome = stage.shell("for n in 0 1 2 3 4; do echo step $n loss=$n; done", patterns=LOSS, max_steps=3)
    assert isinstance(outcome, Ended)
    assert stage.values == [(1, 0.0), (2, 1.0), (3, 2.0)], "max_steps are steps 0 to max_steps - 1"
    assert warnings(stage) == [FROM_ZERO]


def test_a_later_attempt_counts_like_the_first(stage: Stage) -> None:
    stage.shell("echo step 0 loss=5; echo step 1 loss=4; exit 1", patterns=LOSS)
    stage.shell("echo step 2 loss=3; echo step 3 loss=2", patterns=LOSS, attempt_number=2, resume_step=2)
    assert stage.values == [(1, 5.0), (2, 4.0), (3, 3.0), (4, 2.0)]


def test_each_trial_counts_its_own_steps(stage: Stage, tmp_path: Path) -> None:
    stage.shell("echo step 0 loss=5", patterns=LOSS)
    other = Stage(tmp_path / "other")
    other.folder.mkdir()
    other.shell("echo step 1 loss=5; echo step 2 loss=4", patterns=LOSS)
    assert other.values == [(1, 5.0), (2, 4.0)]
    assert warnings(other) == []


@pytest.mark.parametrize(
    "script",
    [
        "echo step 1 loss=1; echo step 0 loss=2; sleep 600",
        "echo loss=1; echo step 0 loss=2; sleep 600",
        "echo step 0 loss=1; echo step -1 loss=2; sleep 600",
    ],
)
def test_a_step_before_the_first_is_an_error(script: str, stage: Stage) -> None:
    failed = stage.shell(script, patterns=LOSS)
    assert isinstance(failed, Failed)
    assert failed.error.startswith("metrics: step: the pattern found '")
    assert failed.error.endswith(": steps count from 1, or from 0 if the first one is 0")
    assert stage.values == [(1, 1.0)]


def test_reported_steps_may_count_from_0(stage: Stage) -> None:
    assert isinstance(stage.run(PYTHON, "-c", REPORTS_STEPS, "0", "1", "2"), Ended)
    assert stage.values == [(1, 0.0), (2, 1.0), (3, 2.0)]
    assert warnings(stage) == [FROM_ZERO]


def test_a_reported_0_after_other_steps_is_an_error(stage: Stage, capfd: pytest.CaptureFixture[str]) -> None:
    assert isinstance(stage.run(PYTHON, "-c", REPORTS_STEPS, "3", "0"), Failed)
    assert stage.values == [(3, 3.0)]
    assert "error: step 0 came after another one: steps count from 1, or from 0 if" in capfd.readouterr().out


def test_a_step_0_from_python_is_saved_as_step_1(stage: Stage) -> None:
    assert isinstance(stage.python(REPORTS_BY_THRIFTUNE), Ended)
    assert stage.values == [(1, 0.0), (2, 1.0), (3, 2.0)]
    loaded = Checkpoints(stage.folder / "trial" / "checkpoints", keep=2).load(at_most=2)
    assert loaded.folder is not None
    assert (loaded.step, (loaded.folder / "epoch").read_text()) == (2, "1")
    stage.link.heard.clear()
    goes_on = (
        "start = thriftune.current_trial().restore(lambda folder: None); thriftune.report(loss=9, step=start)"
    )
    stage.python(f"import thriftune; {goes_on}", attempt_number=2, resume_step=3)
    assert stage.values == [(4, 9.0)], "step 3 of the command, which has done 0, 1 and 2"
    later = "import thriftune; thriftune.report(loss=1); thriftune.report(loss=0, step=0)"
    stage.folder /= "later"
    stage.folder.mkdir()
    assert isinstance(stage.python(later), Failed)


# --- what it finds around it ------------------------------------------------------------------------------


def test_placeholders_of_the_trial(stage: Stage) -> None:
    say = 'echo "$@"; echo $THRIFTUNE_FOLDER $THRIFTUNE_CHECKPOINT_DIR; test -d $2 && test -d $4 && echo loss=1'
    outcome = stage.run("sh", "-c", say, "sh", "{trial}", "{folder}", "{seed}", "{checkpoint}", patterns=LOSS)
    assert isinstance(outcome, Ended)


def test_a_command_gets_the_paths_of_its_datasets(stage: Stage, capfd: pytest.CaptureFixture[str]) -> None:
    stage.data = {"train": (str(stage.folder), ""), "unused": ("/does/not/exist", "")}
    in_python = "import sys, thriftune; print(sys.argv[1], thriftune.current_trial().data['train'])"
    stage.run(PYTHON, "-c", f"{in_python}; thriftune.report(loss=1.0)", "{data.train}")
    assert capfd.readouterr().out.split() == [str(stage.folder)] * 2


def test_a_missing_dataset_fails_the_trial_before_the_command_starts(stage: Stage) -> None:
    stage.data = {"train": ("/does/not/exist", "")}
    ended = stage.run("touch", str(stage.folder / "started"), "{data.train}")
    assert isinstance(ended, Failed)
    assert "data: train: /does/not/exist does not exist on this machine" in ended.error
    assert not (stage.folder / "started").exists()


def test_a_parameter_wins_over_a_placeholder_of_its_name(stage: Stage, capfd: pytest.CaptureFixture[str]) -> None:
    stage.run("echo", "{seed} {trial} {folder}", seed=99, objectives=())
    assert capfd.readouterr().out.split() == ["99", "3", str(stage.folder / "trial")]


def test_metrics_before_the_objective_belong_to_its_report(stage: Stage) -> None:
    stage.shell("echo accuracy=0.5; echo loss=1; echo loss=2", patterns=LOSS)
    assert [event.metrics for event in stage.link.heard] == [{"accuracy": 0.5, "loss": 1.0}, {"loss": 2.0}]


@pytest.mark.parametrize(
    ("script", "reports"),
    [
        ("echo loss=1; echo accuracy=0.5", [(1, {"loss": 1.0}), (1, {"accuracy": 0.5})]),
        (
            "echo step 4 loss=2; echo accuracy=0.5; echo step 5 loss=1; echo accuracy=0.6",
            [(4, {"loss": 2.0}), (5, {"accuracy": 0.5, "loss": 1.0}), (5, {"accuracy": 0.6})],
        ),
        ("echo accuracy=0.5", [(1, {"accuracy": 0.5})]),
    ],
)
def test_metrics_after_the_last_report_are_added_to_it(
    script: str, reports: list[tuple[int, dict[str, float]]], stage: Stage
) -> None:
    outcome = stage.shell(script, patterns=LOSS, objectives=("loss", "accuracy"))
    assert isinstance(outcome, Ended if any("loss" in metrics for _, metrics in reports) else Failed)
    assert [(event.step, event.metrics) for event in stage.link.heard] == reports


def test_the_last_metric_of_a_command_may_be_no_number(stage: Stage) -> None:
    outcome = stage.shell("echo loss=1; echo accuracy=nan", patterns=LOSS, objectives=("loss", "accuracy"))
    assert (outcome.kind, outcome.error) == ("nan", "accuracy is nan at step 1")


def test_10_mb_of_output_with_and_without_lines(stage: Stage, capfd: pytest.CaptureFixture[str]) -> None:
    script = "import sys; sys.stdout.write('x' * {} + '{}loss=2'); sys.stdout.write('{}' + 'y' * 100)"
    for length, end in ((10_000_000, "\\n"), (10_000_000, "")):
        stage.link.heard.clear()
        assert isinstance(stage.python(script.format(length, end, "\\n"), patterns=LOSS), Ended)
        assert stage.values == [(1, 2.0)]
        out = capfd.readouterr().out
        assert len(out) >= length
        assert out.endswith("y" * 100)


def test_output_without_lines_gives_no_part_of_a_number(stage: Stage, capfd: pytest.CaptureFixture[str]) -> None:
    stage.python("print('loss=12.345;' * 300_000, end='')", patterns={"loss": r"loss=([0-9.]+)"})
    capfd.readouterr()  # otherwise, a failure would show all of it
    assert {value for _, value in stage.values} == {12.345}


def test_a_pattern_with_a_slow_start_works_on_output_without_lines(stage: Stage) -> None:
    stage.python("print('x' * 30_000 + 'loss=2' + 'y' * 100, end='')", patterns={"loss": r".*loss=([0-9.]+)"})
    assert stage.values == [(1, 2.0)]


def test_a_pattern_that_hangs_fails_its_trial(stage: Stage, mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed_metrics, "_MATCH_SECONDS", 0.05)
    outcome = stage.shell(f"echo loss={'a' * 50}!; sleep 600", patterns={"loss": HANGS})
    assert isinstance(outcome, Failed)
    assert f"metrics: loss: the pattern {HANGS!r} took more than" in outcome.error
    wait_for_no_process(mark)


def test_a_trial_ends_between_two_lines_with_slow_matches(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_module, "_POLL_SECONDS", 0.0)
    feed = PrintedMetrics.feed

    def told_after_one(metrics: PrintedMetrics, output: bytes) -> Iterator[list[tuple[str, str]]]:
        for matches in feed(metrics, output):
            yield matches
            stage.link.end.set()

    monkeypatch.setattr(PrintedMetrics, "feed", told_after_one)
    outcome = stage.shell("printf 'accuracy=1\\naccuracy=2\\nloss=3\\n'; sleep 600", patterns=LOSS)
    assert isinstance(outcome, Ended)
    assert outcome.cut
    assert stage.values == [(1, 3.0)]  # earlier output counts nevertheless


# --- what they are given ----------------------------------------------------------------------------------


def test_values_of_placeholders_are_single_arguments(stage: Stage) -> None:
    name = "a b 'c' \"d\" $HOME; `id` \n{x} ü"
    script = "import sys, json; json.dump(sys.argv[1:], open('arguments', 'w'))"
    stage.run(PYTHON, "-c", script, "--name={name}", "{x}", "{missing}", "{}", "{1}", name=name, x=0.1)
    assert json.loads((stage.folder / "arguments").read_text()) == [f"--name={name}", "0.1", "{}", "{1}"]


def test_the_environment_of_a_command(stage: Stage) -> None:
    script = "import os, json; json.dump(dict(os.environ), open('environment', 'w'))"
    stage.python(script, attempt_number=2, max_steps=9, lr=0.1, act="relu")
    variables = json.loads((stage.folder / "environment").read_text())
    assert variables["THRIFTUNE_TRIAL"] == "3"
    assert variables["THRIFTUNE_ATTEMPT"] == "2"
    assert json.loads(variables["THRIFTUNE_CONFIG"]) == {"lr": 0.1, "act": "relu"}
    assert variables["THRIFTUNE_CONFIG_FILE"] == ""
    assert variables["THRIFTUNE_SEED"] == "7"
    assert variables["THRIFTUNE_MAX_STEPS"] == "9"
    assert variables["THRIFTUNE_CHECKPOINT_DIR"] == str(stage.folder / "trial" / "state")
    assert (stage.folder / "trial" / "state").is_dir()
    stage.python(script)
    assert json.loads((stage.folder / "environment").read_text())["THRIFTUNE_MAX_STEPS"] == ""


def test_a_configuration_too_large_for_the_environment_is_in_its_file(stage: Stage) -> None:
    script = """
import json, os, thriftune
assert os.environ["THRIFTUNE_CONFIG"] == ""
with open(os.environ["THRIFTUNE_CONFIG_FILE"]) as file:
    config = json.load(file)
assert thriftune.current_trial().config == config
thriftune.report(loss=len(config))
"""
    assert isinstance(stage.python(script, **{f"p{i}": i / 3 for i in range(40_000)}), Ended)
    assert stage.values == [(1, 40_000.0)]


def test_a_configuration_too_large_for_a_command_line_is_a_clear_failure(stage: Stage) -> None:
    outcome = stage.run(PYTHON, "-c", "", "{x}", x="x" * 3_000_000)
    assert "Argument list too long" in outcome.error
    assert "read the values from the file in THRIFTUNE_CONFIG_FILE" in outcome.error


def test_folders_with_too_long_a_path_for_a_socket(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.folder = long = tmp_path / ("x" * 100)
    long.mkdir()
    stage.python("import thriftune; thriftune.report(loss=1)")
    monkeypatch.setattr("tempfile.tempdir", str(long))
    stage.python("import thriftune; thriftune.report(loss=2)")
    assert stage.values == [(1, 1.0), (1, 2.0)]


def test_the_socket_of_a_killed_worker_is_replaced(stage: Stage) -> None:
    (stage.folder / "trial").mkdir()
    (stage.folder / "trial" / "socket").write_text("left")
    stage.python("import thriftune; thriftune.report(loss=1)")
    assert stage.values == [(1, 1.0)]
    assert not (stage.folder / "trial" / "socket").exists()


# --- reporting from the inside ----------------------------------------------------------------------------

TRAINING = """
import json, sys, thriftune
trial = thriftune.current_trial()
state = {"step": 0}
trial.restore(lambda folder: state.update(json.loads((folder / "state").read_text())))
for step in trial.steps():
    state["step"] += 1
    assert state["step"] == step
    thriftune.report(loss=1 / step, save=lambda folder: (folder / "state").write_text(json.dumps(state)))
    print("step", step, "of attempt", trial.attempt)
    if step == 2 and trial.attempt == 1:
        sys.exit(5)
"""


def test_a_command_reports_by_thriftune_and_resumes(stage: Stage) -> None:
    assert stage.python(TRAINING, max_steps=4).kind == "exited"
    assert [(event.step, event.saved) for event in stage.link.heard] == [(1, True), (2, True)]
    stage.link.heard.clear()
    assert isinstance(stage.python(TRAINING, max_steps=4, attempt_number=2, resume_step=2), Ended)
    assert [(event.step, event.saved) for event in stage.link.heard] == [(3, True), (4, True)]


@pytest.mark.parametrize("way", ["forked", "started"])
def test_processes_of_a_command_report_different_steps(way: str, stage: Stage) -> None:
    """Each process counts its own steps. No report may replace another."""
    work = "for i in range(5): thriftune.report(loss=number + i / 10)"
    fork = f"""
import os, thriftune
thriftune.report(loss=9)
for number in range(3):
    if os.fork() == 0:
        {work}
        os._exit(0)
for _ in range(3):
    os.wait()
thriftune.report(loss=9)
"""
    start = f"""
import subprocess, sys, thriftune
thriftune.report(loss=9)
script = "import sys, thriftune; number = int(sys.argv[1])\\n" + {work!r}
processes = [subprocess.Popen([sys.executable, "-c", script, str(number)]) for number in range(3)]
assert [each.wait() for each in processes] == [0] * 3
thriftune.report(loss=9)
"""
    assert isinstance(stage.python(fork if way == "forked" else start), Ended)
    assert [step for step, _ in stage.values] == list(range(1, 18))
    assert sorted(value for _, value in stage.values) == sorted(
        [9.0, 9.0, *(number + i / 10 for number in range(3) for i in range(5))]
    )


def test_a_signal_handler_may_report_during_the_first_report(stage: Stage) -> None:
    script = """
import signal, thriftune
def handle(*_):
    thriftune.report(loss=2)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.001)
for _ in range(20):
    thriftune.report(loss=1)
signal.signal(signal.SIGALRM, signal.SIG_IGN)
"""
    assert isinstance(stage.python(script), Ended)
    steps = [step for step, _ in stage.values]
    assert steps == list(range(1, len(steps) + 1))


def test_threads_of_a_command_report_steps_without_gaps(stage: Stage) -> None:
    """Their reports may arrive in another order than they were counted in."""
    script = """
import threading, thriftune
def work():
    for i in range(10):
        thriftune.report(loss=i)
threads = [threading.Thread(target=work) for _ in range(4)]
for each in threads: each.start()
for each in threads: each.join()
"""
    assert isinstance(stage.python(script, max_steps=40), Ended)
    assert [step for step, _ in stage.values] == list(range(1, 41))


def test_a_report_without_a_step_follows_the_restored_one(stage: Stage) -> None:
    script = """
import thriftune
trial = thriftune.current_trial()
if trial.attempt == 1:
    thriftune.report(loss=1, step=4, save=lambda folder: (folder / "state").touch())
    raise SystemExit(5)
trial.restore(lambda folder: None)
thriftune.report(loss=2)
"""
    assert stage.python(script).kind == "exited"
    assert isinstance(stage.python(script, attempt_number=2, resume_step=4), Ended)
    assert stage.values == [(4, 1.0), (5, 2.0)]


def test_a_command_learns_by_thriftune_that_it_is_to_end(stage: Stage) -> None:
    stage.link.end.set()
    script = "import thriftune, time\nwhile True: thriftune.report(loss=1); time.sleep(0.01)"
    outcome = stage.python(script)
    assert isinstance(outcome, Ended)
    assert outcome.cut
    assert len(stage.values) <= 1


def test_wrong_messages_are_answered_and_harmless(stage: Stage) -> None:
    script = """
import os, socket, thriftune
for message in (b"nonsense\\n", b"\\xff\\n", b"", b'Ended {"at": 1, "trial": 3, "attempt": 1, "seconds": 1}\\n'):
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(os.environ["THRIFTUNE_SOCKET"])
        line.sendall(message)
        line.shutdown(socket.SHUT_WR)
        assert b"error" in line.recv(4096)
thriftune.report(loss=1)
"""
    assert isinstance(stage.python(script), Ended)
    assert stage.values == [(1, 1.0)]


def test_reporting_outside_of_a_trial_explains_the_error(monkeypatch: pytest.MonkeyPatch, stage: Stage) -> None:
    outcome = stage.python(
        "import os; os.environ.pop('THRIFTUNE_RUN'); import thriftune; thriftune.report(loss=1)"
    )
    assert outcome.kind == "exited"
    script = """
import os, thriftune
os.environ["THRIFTUNE_SOCKET"] = "/nowhere"
try:
    thriftune.report(loss=1)
except thriftune.ThriftuneError as error:
    assert "ended" in str(error)
"""
    assert isinstance(stage.python(script, objectives=()), Ended)


# --- in the engine ----------------------------------------------------------------------------------------


@pytest.fixture
def engine_for(tmp_path: Path) -> Iterator[Callable[..., LocalEngine]]:
    engines = []

    def make(*command: str, **patterns: str) -> LocalEngine:
        target = {"kind": "command", "command": list(command), "patterns": patterns, "folder": str(tmp_path)}
        engine = LocalEngine(tmp_path / "run", 1, target)
        engine.recover()
        engine.open()
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        engine.close()


def a_run(tmp_path: Path, trial: int = 0) -> Run:
    return Run(trial, 1, {}, 0, ("loss",), None, 7, str(tmp_path / "trial"), 2)


def test_the_end_of_the_output_is_stored(engine_for: Callable[..., LocalEngine], tmp_path: Path) -> None:
    engine = engine_for("sh", "-c", "seq 200000; printf 'and no more'; exit 3")
    engine.start(a_run(tmp_path), ON_THIS_MACHINE)
    (failed,) = wait_for_end(engine, 0)
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.output[-22:]) == ("exited", "99999\n200000\nand no more"[-22:])


def test_a_command_with_thousands_of_arguments(engine_for: Callable[..., LocalEngine], tmp_path: Path) -> None:
    names = [f"parameter_{i:04}" for i in range(4000)]
    script = "import sys; print('loss=%d' % len(sys.argv))"
    engine = engine_for(PYTHON, "-c", script, *(f"--{name}={{{name}}}" for name in names), loss="loss=(.*)")
    engine.start(replace(a_run(tmp_path), config=dict.fromkeys(names, 0.123456789)), ON_THIS_MACHINE)
    reported, ended = wait_for_end(engine, 0)
    assert isinstance(ended, Ended)
    assert isinstance(reported, Reported)
    assert reported.metrics == {"loss": 4001.0}


def test_a_trial_can_be_ended_while_a_pattern_hangs(
    engine_for: Callable[..., LocalEngine], tmp_path: Path
) -> None:
    printed = f"loss=1\\nloss={'a' * 60}!\\n"
    engine = engine_for("sh", "-c", f"printf '{printed}'; sleep 600", loss=HANGS)
    engine.start(a_run(tmp_path), ON_THIS_MACHINE)
    events = wait_until(engine, len)
    engine.request_end(0, 1)
    *_, end = wait_until(engine, ends, events)
    assert isinstance(end, (Failed, Ended))  # Ended if the request came before the second line


def test_a_command_is_killed_with_all_its_processes(
    engine_for: Callable[..., LocalEngine], tmp_path: Path, mark: str
) -> None:
    engine = engine_for("sh", "-c", "setsid sleep 600 & sleep 600 & echo loss=1; sleep 600", loss="loss=(.*)")
    engine.start(a_run(tmp_path), ON_THIS_MACHINE)
    events = wait_until(engine, len)
    workers = {doing.pid for doing in engine.status()}
    engine.kill(0, 1)
    wait_until(engine, ends, events)

    def only_keepers() -> bool:
        left = processes_with(mark)
        return (
            not any(command.startswith(("sleep", "setsid", "sh ")) for command in left.values())
            and not workers & left.keys()
        )

    eventually(only_keepers, "the worker and all its processes have ended")


def test_a_worker_is_reused_after_a_command(engine_for: Callable[..., LocalEngine], tmp_path: Path) -> None:
    engine = engine_for("sh", "-c", "echo loss=1", loss="loss=(.*)")
    pids = set()
    for trial in range(5):
        engine.start(a_run(tmp_path, trial), ON_THIS_MACHINE)
        wait_for_end(engine, trial)
        pids |= {doing.pid for doing in engine.status()}
    assert len(pids) == 1
