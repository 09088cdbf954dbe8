"""Tests of measuring step times, with real trials in real processes. None depends on the machine's speed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import fail_or_skip
from tests.engines.processes import eventually, processes_with, wait_for_no_process
from thriftune.clouds.local import cores
from thriftune.engines.local import LocalEngine
from thriftune.errors import ProfileError, SettingError
from thriftune.launch import profiling
from thriftune.launch.profiling import first_config, measure, powers_of_two
from thriftune.settings.study_file import read_study_file
from thriftune.state.spec import Spec, Target

STUDY = """
minimize = "loss"
trials = 4
max_steps = 1000000
seed = 3
[space]
x = { type = "float", low = 0.0, high = 1.0 }
"""

SLEEPS = """
import time

def train(trial):
    for step in trial.steps():
        time.sleep({seconds})
        trial.report(loss=1 / step)
"""

AMPLE_SECONDS = 60.0
"""Enough time for trials that end by themselves, on the slowest machine."""

MakeSpec = Callable[..., Spec]


def process_settings() -> object:
    threads = {name: value for name, value in os.environ.items() if name.endswith("_NUM_THREADS")}
    return os.sched_getaffinity(0), threads, Path.cwd()


@pytest.fixture(autouse=True)
def check_cleanup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check after each test that no process or temporary folder is left and this process has its settings back."""
    temporary, mark = tmp_path / "temporary", f"TEST_MARK={tmp_path}"
    temporary.mkdir()
    monkeypatch.setenv(*mark.split("="))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    before = process_settings()
    yield
    assert process_settings() == before
    assert list(temporary.iterdir()) == []
    wait_for_no_process(mark)


@pytest.fixture
def make(tmp_path: Path) -> MakeSpec:
    def study(code: str, *, command: str = "", max_steps: int | None = None) -> Spec:
        (tmp_path / "work.py").write_text(code)
        runs = command or 'function = "work.py:train"'
        (tmp_path / "study.toml").write_text(f"{runs}\n{STUDY}")
        overrides = {} if max_steps is None else {"max_steps": max_steps}
        return read_study_file(tmp_path / "study.toml", overrides).spec

    return study


def test_the_measured_step_time_is_at_least_the_step_s_sleep(make: MakeSpec) -> None:
    short = measure(make(SLEEPS.format(seconds=0.01), max_steps=9), [1], AMPLE_SECONDS, repeats=2)
    began = time.monotonic()
    long = measure(make(SLEEPS.format(seconds="0.050"), max_steps=9), [1], AMPLE_SECONDS, repeats=1)
    elapsed = time.monotonic() - began
    assert short.profile.seconds_per_step[1] >= 0.01
    assert 0.05 <= long.profile.seconds_per_step[1] < elapsed / 8, "eight steps are measured"
    assert long.profile.std == 0.0
    assert [trial.steps for trial in short.rows[0].trials] == [8, 8]
    assert "no measured step saved" in short.remarks[0]


def test_a_long_trial_is_stopped_when_its_time_is_over(make: MakeSpec, tmp_path: Path) -> None:
    code = SLEEPS.format(seconds=0.01) + '    open("ended normally", "w").close()'
    step_times = measure(make(code), [1], 1.0, repeats=1)
    assert step_times.rows[0].steps > 1
    assert (tmp_path / "ended normally").exists()


WRITES_ITS_SETTINGS = """
import json, os, time

def train(trial):
    threads = {name: value for name, value in os.environ.items() if name.endswith("_NUM_THREADS")}
    with open("settings", "a") as file:
        settings = [len(os.sched_getaffinity(0)), threads, trial.config, trial.seed, os.getcwd()]
        file.write(json.dumps(settings) + "\\n")
    for step in trial.steps():
        time.sleep(0.01)
        trial.report(loss=1 / step)
"""


def test_a_trial_of_n_workers_has_n_cores_and_threads_and_all_else_is_the_same(
    make: MakeSpec, tmp_path: Path
) -> None:
    if cores() < 2:
        fail_or_skip("this needs two cores")
    spec = make(WRITES_ITS_SETTINGS, max_steps=5)
    lines: list[str] = []
    step_times = measure(spec, (1, 2), AMPLE_SECONDS, repeats=2, say=lines.append)
    settings = [json.loads(line) for line in (tmp_path / "settings").read_text().splitlines()]
    assert [each[0] for each in settings] == [1, 2, 1, 2], "the numbers of workers alternate"
    for number, threads, *_ in settings:
        names = ("OMP", "MKL", "OPENBLAS", "NUMEXPR")
        assert {threads[f"{name}_NUM_THREADS"] for name in names} == {str(number)}
    assert all(each[2:] == settings[0][2:] for each in settings)
    assert settings[0][2] == step_times.config == first_config(spec)
    assert settings[0][4] == str(tmp_path), "the folder in which a study runs it"
    assert [row.workers for row in step_times.rows] == [1, 2]
    assert [row.steps for row in step_times.rows] == [8, 8]
    assert [line.partition(" ... ")[0] for line in lines[1:]] == [
        "1 worker, trial 1 of 2",
        "2 workers, trial 1 of 2",
        "1 worker, trial 2 of 2",
        "2 workers, trial 2 of 2",
    ]
    assert f"x={step_times.config['x']:.4g}" in lines[0]


def test_the_configuration_is_the_first_of_random_search_with_the_seed(make: MakeSpec) -> None:
    spec = make("def train(trial): ...")
    assert first_config(spec) == first_config(spec)
    assert first_config(spec) != first_config(replace(spec, seed=4))


SAVES = """
import time

def save(folder):
    time.sleep({to_save})
    (folder / "state").write_text("x")

def train(trial):
    if trial.restore(lambda folder: None):
        time.sleep(0.5)
    for step in trial.steps():
        time.sleep(0.01)
        trial.report(loss=1 / step, save=save if step % {every} == 0 else None)
"""


def test_resuming_and_saving_are_measured_apart_from_steps(make: MakeSpec) -> None:
    step_times = measure(make(SAVES.format(to_save=0.2, every=4), max_steps=9), [1], AMPLE_SECONDS, repeats=1)
    assert step_times.profile.checkpoint > step_times.profile.seconds_per_step[1]
    assert step_times.profile.startup > 0.2, "the half second that it takes to restore"
    assert step_times.remarks == ()


def test_if_every_step_saves_the_step_time_includes_the_save(make: MakeSpec) -> None:
    step_times = measure(make(SAVES.format(to_save=0.03, every=1), max_steps=6), [1], AMPLE_SECONDS, repeats=1)
    assert step_times.profile.seconds_per_step[1] >= 0.04
    assert step_times.profile.checkpoint == 0.0
    assert "every step saves" in step_times.remarks[0]
    assert step_times.rows[0].steps == 5, "the trial ended by itself"
    assert step_times.profile.startup > 0.2, "a trial that has ended is resumed too"


def test_the_whole_run_of_a_function_that_only_returns_is_one_step(make: MakeSpec) -> None:
    step_times = measure(
        make("import time\ndef train(trial):\n    time.sleep(0.1)\n    return 0.5"), [1], AMPLE_SECONDS, 1
    )
    assert step_times.profile.seconds_per_step[1] >= 0.1
    assert step_times.rows[0].steps == 1
    assert "whole training" in step_times.remarks[0]


def test_a_busy_machine_gives_a_remark(make: MakeSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (99.9, 0.0, 0.0))
    lines: list[str] = []
    monkeypatch.setattr("os.cpu_count", lambda: 101)
    spec = make(SLEEPS.format(seconds=0), max_steps=3)
    assert "busy" not in measure(spec, [1], AMPLE_SECONDS, 1, lines.append).remarks[0]
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    step_times = measure(spec, [1], AMPLE_SECONDS, 1, lines.append)
    busy = "the machine is busy (load average 99.9, 4 cores): steps take longer than on an idle one"
    assert step_times.remarks[0] == busy
    assert [line == busy for line in lines] == [False, False, False, True, False]


def test_a_command_is_measured_like_a_function(make: MakeSpec) -> None:
    code = "import time\nfor i in range(9):\n    time.sleep(0.02)\n    print(f'loss={1 / (i + 1)}')"
    command = 'command = ["python3", "work.py"]'
    spec = make(code, command=command)
    target = replace(spec.target, patterns={"loss": r"loss=([0-9.]+)"})
    step_times = measure(replace(spec, target=target), [1], AMPLE_SECONDS, repeats=1)
    assert step_times.profile.seconds_per_step[1] > 0.01
    assert step_times.rows[0].steps == 8


# --- errors -----------------------------------------------------------------------------------------------


def test_the_error_of_a_failing_function_has_its_configuration_and_output(make: MakeSpec) -> None:
    code = (
        SLEEPS.format(seconds=0.01)
        + '        if step == 3:\n            print("output")\n            int("three")'
    )
    spec = make(code)
    with pytest.raises(ProfileError) as error:
        measure(spec, [1], AMPLE_SECONDS)
    first, second, *others = str(error.value).splitlines()
    assert first == "the training function failed: ValueError: invalid literal for int() with base 10: 'three'"
    assert second == f"It was run with x={first_config(spec)['x']:.4g}"
    assert any("work.py" in line for line in others)
    assert others[-1] == "output"


def test_the_error_of_a_failing_command_has_its_last_output(make: MakeSpec) -> None:
    spec = make("print('no data'); raise SystemExit(3)", command='command = ["python3", "work.py"]')
    with pytest.raises(ProfileError, match=r"(?s)exited with status 3.*no data$"):
        measure(spec, [1], AMPLE_SECONDS)


def test_a_function_that_fails_when_it_is_resumed_is_an_error(make: MakeSpec) -> None:
    code = SAVES.format(to_save=0, every=1).replace("time.sleep(0.5)", "raise OSError('half a file')")
    with pytest.raises(ProfileError, match=r"failed when it was resumed after step \d+: OSError: half a file"):
        measure(make(code, max_steps=3), [1], AMPLE_SECONDS)


def test_too_little_time_for_a_step_is_an_error(make: MakeSpec) -> None:
    with pytest.raises(ProfileError, match=r"with 1 worker, no step .* 0\.2 s of a trial, .*; give more"):
        measure(make(SLEEPS.format(seconds=60)), [1], 0.4, repeats=2)


def test_a_function_without_reports_is_an_error(make: MakeSpec) -> None:
    with pytest.raises(ProfileError, match="ended without a report"):
        measure(make("def train(trial):\n    pass"), [1], AMPLE_SECONDS)


def test_a_function_that_hangs_after_its_first_step_is_killed(
    make: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling, "_GRACE_SECONDS", 0.1)
    code = "import time\ndef train(trial):\n    trial.report(loss=1.0)\n    time.sleep(60)"
    step_times = measure(make(code), [1], 1.0, repeats=1)
    assert "only one report" in step_times.remarks[0]
    assert step_times.profile.startup == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": [1, 4096]}, f"workers: 4096: there is room for {cores()} here"),
        ({"workers": [1, 1]}, "workers: 1, 1: must contain 1"),
        ({"workers": []}, "workers: none: must contain 1"),
        ({"workers": [0, 1]}, "workers: 0 is too small"),
        ({"seconds": 0}, "seconds: 0 must be a number above 0"),
        ({"seconds": float("nan")}, "seconds: nan must be"),
        ({"repeats": 0}, "repeats: 0 is too small"),
    ],
)
def test_a_wrong_option_is_an_error_before_any_trial_runs(
    make: MakeSpec, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        measure(make(SLEEPS), **options)


def test_an_ask_and_tell_study_cannot_be_measured(make: MakeSpec) -> None:
    with pytest.raises(SettingError, match="runs outside; only a command, or a function of a file"):
        measure(replace(make(SLEEPS), target=Target("outside")))


@pytest.mark.parametrize(
    ("most", "powers"), [(1, (1,)), (2, (1, 2)), (7, (1, 2, 4)), (64, (1, 2, 4, 8, 16, 32, 64))]
)
def test_powers_of_two_up_to_a_maximum(most: int, powers: tuple[int, ...]) -> None:
    assert powers_of_two(most) == powers


# --- interrupts -------------------------------------------------------------------------------------------


def test_after_an_interrupt_no_process_is_left(make: MakeSpec, tmp_path: Path) -> None:
    """This matters in a notebook, whose process continues after Ctrl-C."""
    code = """
import subprocess, time

def train(trial):
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    for step in trial.steps():
        time.sleep(0.01)
        trial.report(loss=1 / step)
        if step == 3:
            open("three", "w").close()
"""
    spec = make(code)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores SIGINT in background processes

    def interrupt() -> None:
        eventually((tmp_path / "three").exists, "three steps")
        assert any("sleep" in command for command in processes_with(f"TEST_MARK={tmp_path}").values())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        measure(spec, [1], 60.0)
    thread.join()


def test_cores_and_variables_are_restored_if_the_engine_cannot_open(
    make: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    during: list[Any] = []

    def fail(_: object) -> None:
        during.extend([len(os.sched_getaffinity(0)), os.environ["OMP_NUM_THREADS"]])
        raise OSError("no more processes")

    monkeypatch.setattr(LocalEngine, "open", fail)
    with pytest.raises(OSError, match="no more processes"):
        measure(make(SLEEPS), [1], 1.0)
    assert during == [1, "1"]


# --- limits -----------------------------------------------------------------------------------------------


def test_numbers_of_workers_without_time_are_left_out_with_a_remark(make: MakeSpec) -> None:
    spec = make(SLEEPS.format(seconds=0.02))
    lines: list[str] = []

    class OneWorkerOnly(profiling.ThisMachine):
        """This machine, but trials of two workers never start."""

        most = 2

        def engine(self, folder: Path, workers: int) -> Any:
            if workers == 2:
                raise profiling._NoStep("no step")
            return super().engine(folder, workers)

    bench = OneWorkerOnly(spec.target)
    bench.most = 2
    step_times = measure(spec, (1, 2), 1.0, 1, lines.append, bench, ends_at=time.monotonic() + AMPLE_SECONDS)
    assert list(step_times.profile.seconds_per_step) == [1]
    assert "no time was left for trials with 2 workers: plans will not use these numbers" in step_times.remarks
    assert "2 workers, trial 1 of 1 ... no step" in lines
    with pytest.raises(ProfileError, match="no step"):
        measure(spec, (1, 2), 1.0, 1, lines.append, bench)


def test_measuring_ends_at_the_limit(make: MakeSpec) -> None:
    spec = make(SLEEPS.format(seconds=0.02))
    lines: list[str] = []
    ends_at = time.monotonic() + 3.0
    step_times = measure(spec, (1,), AMPLE_SECONDS, 50, lines.append, ends_at=ends_at)
    assert 1 <= len(step_times.rows[0].trials) <= 50
    with pytest.raises(ProfileError, match="limit: the time was over"):
        measure(spec, (1,), ends_at=ends_at - 3.0)


def test_no_step_with_one_worker_is_an_error_with_a_limit(make: MakeSpec) -> None:
    spec = make(SLEEPS.format(seconds=1000))
    with pytest.raises(ProfileError, match="no step was done"):
        measure(spec, (1,), 1.0, 1, ends_at=time.monotonic() + 2.0)
