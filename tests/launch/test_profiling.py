"""How long steps take, by real trials in real processes; no test goes by how fast the machine is."""

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

from tests.conftest import unable
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
[space.x]
type = "float"
low = 0.0
high = 1.0
"""

SLEEPS = """
import time

def train(trial):
    for step in trial.steps():
        time.sleep({seconds})
        trial.report(loss=1 / step)
"""

AMPLE_SECONDS = 60.0
"""For trials that end by themselves, however slow the machine is."""

MakeSpec = Callable[..., Spec]


def this_process() -> object:
    threads = {name: value for name, value in os.environ.items() if name.endswith("_NUM_THREADS")}
    return os.sched_getaffinity(0), threads, Path.cwd()


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test does: no process, no temporary folder; cores, variables and folder are as they were."""
    temporary, mark = tmp_path / "temporary", f"TEST_MARK={tmp_path}"
    temporary.mkdir()
    monkeypatch.setenv(*mark.split("="))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    before = this_process()
    yield
    assert this_process() == before
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


def test_a_longer_step_measures_longer(make: MakeSpec) -> None:
    """At least as long as its step sleeps, however much longer a busy machine makes both."""
    short = measure(make(SLEEPS.format(seconds=0.01), max_steps=9), [1], AMPLE_SECONDS, repeats=2)
    began = time.monotonic()
    long = measure(make(SLEEPS.format(seconds="0.050"), max_steps=9), [1], AMPLE_SECONDS, repeats=1)
    passed = time.monotonic() - began
    assert short.profile.seconds_per_step[1] >= 0.01
    assert 0.05 <= long.profile.seconds_per_step[1] < passed / 8, "eight steps are measured"
    assert long.profile.std == 0.0
    assert [trial.steps for trial in short.rows[0].trials] == [8, 8]
    assert "no measured step saved" in short.remarks[0]


def test_a_trial_that_goes_on_is_told_to_end_when_its_time_is_over(make: MakeSpec, tmp_path: Path) -> None:
    code = SLEEPS.format(seconds=0.01) + '    open("ended in good order", "w").close()'
    found = measure(make(code), [1], 1.0, repeats=1)
    assert found.rows[0].steps > 1
    assert (tmp_path / "ended in good order").exists()


TELLS = """
import json, os, time

def train(trial):
    threads = {name: value for name, value in os.environ.items() if name.endswith("_NUM_THREADS")}
    with open("told", "a") as file:
        told = [len(os.sched_getaffinity(0)), threads, trial.config, trial.seed, os.getcwd()]
        file.write(json.dumps(told) + "\\n")
    for step in trial.steps():
        time.sleep(0.01)
        trial.report(loss=1 / step)
"""


def test_trials_have_so_many_cores_and_threads_and_differ_in_nothing_else(make: MakeSpec, tmp_path: Path) -> None:
    if cores() < 2:
        unable("this needs two cores")
    spec = make(TELLS, max_steps=5)
    said: list[str] = []
    found = measure(spec, (1, 2), AMPLE_SECONDS, repeats=2, say=said.append)
    told = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    assert [each[0] for each in told] == [1, 2, 1, 2], "turn about"
    for number, threads, *_ in told:
        names = ("OMP", "MKL", "OPENBLAS", "NUMEXPR")
        assert {threads[f"{name}_NUM_THREADS"] for name in names} == {str(number)}
    assert all(each[2:] == told[0][2:] for each in told)
    assert told[0][2] == found.config == first_config(spec)
    assert told[0][4] == str(tmp_path), "as a study runs"
    assert [row.workers for row in found.rows] == [1, 2]
    assert [row.steps for row in found.rows] == [8, 8]
    assert [line.partition(" ... ")[0] for line in said[1:]] == [
        "1 worker, trial 1 of 2",
        "2 workers, trial 1 of 2",
        "1 worker, trial 2 of 2",
        "2 workers, trial 2 of 2",
    ]
    assert f"x={found.config['x']:.4g}" in said[0]


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


def test_a_trial_is_taken_up_from_its_checkpoint_and_saves_are_told_from_steps(make: MakeSpec) -> None:
    found = measure(make(SAVES.format(to_save=0.2, every=4), max_steps=9), [1], AMPLE_SECONDS, repeats=1)
    assert found.profile.checkpoint > found.profile.seconds_per_step[1]
    assert found.profile.startup > 0.2, "the half second that it takes to restore"
    assert found.remarks == ()


def test_where_every_step_saves_the_saves_are_part_of_the_steps(make: MakeSpec) -> None:
    found = measure(make(SAVES.format(to_save=0.03, every=1), max_steps=6), [1], AMPLE_SECONDS, repeats=1)
    assert found.profile.seconds_per_step[1] >= 0.04
    assert found.profile.checkpoint == 0.0
    assert "every step saves" in found.remarks[0]
    assert found.rows[0].steps == 5, "it ended by itself, before its time"
    assert found.profile.startup > 0.2, "and was taken up all the same"


def test_a_function_that_only_returns_has_its_whole_training_for_a_step(make: MakeSpec) -> None:
    found = measure(
        make("import time\ndef train(trial):\n    time.sleep(0.1)\n    return 0.5"), [1], AMPLE_SECONDS, 1
    )
    assert found.profile.seconds_per_step[1] >= 0.1
    assert found.rows[0].steps == 1
    assert "whole training" in found.remarks[0]


def test_a_machine_that_is_busy_is_remarked_on_before_and_after(
    make: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (99.9, 0.0, 0.0))
    said: list[str] = []
    monkeypatch.setattr("os.cpu_count", lambda: 101)
    quick = make(SLEEPS.format(seconds=0), max_steps=3)
    assert "busy" not in measure(quick, [1], AMPLE_SECONDS, 1, said.append).remarks[0]
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    found = measure(quick, [1], AMPLE_SECONDS, 1, said.append)
    busy = "the machine is busy (load average 99.9, 4 cores): steps take longer than on an idle one"
    assert found.remarks[0] == busy
    assert [line == busy for line in said] == [False, False, False, True, False]


def test_a_command_is_measured_like_a_function(make: MakeSpec) -> None:
    code = "import time\nfor i in range(9):\n    time.sleep(0.02)\n    print(f'loss={1 / (i + 1)}')"
    command = 'command = ["python3", "work.py"]'
    spec = make(code, command=command)
    target = replace(spec.target, patterns={"loss": r"loss=([0-9.]+)"})
    found = measure(replace(spec, target=target), [1], AMPLE_SECONDS, repeats=1)
    assert found.profile.seconds_per_step[1] > 0.01
    assert found.rows[0].steps == 8


# --- what goes wrong


def test_a_function_that_fails_gives_its_error_and_its_configuration(make: MakeSpec) -> None:
    code = (
        SLEEPS.format(seconds=0.01)
        + '        if step == 3:\n            print("so far")\n            int("three")'
    )
    spec = make(code)
    with pytest.raises(ProfileError) as caught:
        measure(spec, [1], AMPLE_SECONDS)
    first, second, *others = str(caught.value).splitlines()
    assert first == "the training function failed: ValueError: invalid literal for int() with base 10: 'three'"
    assert second == f"It was run with x={first_config(spec)['x']:.4g}"
    assert any("work.py" in line for line in others)
    assert others[-1] == "so far"


def test_a_command_that_fails_gives_its_last_words(make: MakeSpec) -> None:
    spec = make("print('no data'); raise SystemExit(3)", command='command = ["python3", "work.py"]')
    with pytest.raises(ProfileError, match=r"(?s)exited with status 3.*no data$"):
        measure(spec, [1], AMPLE_SECONDS)


def test_a_function_that_cannot_be_taken_up_says_so(make: MakeSpec) -> None:
    code = SAVES.format(to_save=0, every=1).replace("time.sleep(0.5)", "raise OSError('half a file')")
    with pytest.raises(ProfileError, match=r"failed when it was resumed after step \d+: OSError: half a file"):
        measure(make(code, max_steps=3), [1], AMPLE_SECONDS)


def test_too_little_time_for_a_step_is_told(make: MakeSpec) -> None:
    with pytest.raises(ProfileError, match=r"with 1 worker, no step .* 0\.2 s of a trial, .*; give more"):
        measure(make(SLEEPS.format(seconds=60)), [1], 0.4, repeats=2)


def test_a_function_that_reports_nothing_is_told_to(make: MakeSpec) -> None:
    with pytest.raises(ProfileError, match="ended without a report"):
        measure(make("def train(trial):\n    pass"), [1], AMPLE_SECONDS)


def test_a_function_that_hangs_after_its_first_step_is_ended(
    make: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling, "_GRACE_SECONDS", 0.1)
    code = "import time\ndef train(trial):\n    trial.report(loss=1.0)\n    time.sleep(60)"
    found = measure(make(code), [1], 1.0, repeats=1)
    assert "only one report" in found.remarks[0]
    assert found.profile.startup == 0.0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"workers": [1, 4096]}, f"workers: 4096: there is room for {cores()} here"),
        ({"workers": [1, 1]}, "workers: 1, 1: must contain 1"),
        ({"workers": []}, "workers: none: must contain 1"),
        ({"workers": [0, 1]}, "workers: 0 must be a whole number"),
        ({"seconds": 0}, "seconds: 0 must be a number above 0"),
        ({"seconds": float("nan")}, "seconds: nan must be"),
        ({"repeats": 0}, "repeats: 0 must be a whole number"),
    ],
)
def test_mistakes_are_told_before_anything_runs(make: MakeSpec, options: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        measure(make(SLEEPS), **options)


def test_the_users_own_code_cannot_be_measured(make: MakeSpec) -> None:
    with pytest.raises(SettingError, match="runs outside; only a command, or a function of a file"):
        measure(replace(make(SLEEPS), target=Target("outside")))


@pytest.mark.parametrize(
    ("most", "powers"), [(1, (1,)), (2, (1, 2)), (7, (1, 2, 4)), (64, (1, 2, 4, 8, 16, 32, 64))]
)
def test_numbers_are_powers_of_two_up_to_the_cores(most: int, powers: tuple[int, ...]) -> None:
    assert powers_of_two(most) == powers


# --- interrupts; what is left is looked at after every test


def test_an_interrupt_leaves_nothing_behind(make: MakeSpec, tmp_path: Path) -> None:
    """Ctrl-C in a notebook: the process goes on, and is as it was."""
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
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored

    def interrupt() -> None:
        eventually((tmp_path / "three").exists, "three steps")
        assert any("sleep" in command for command in processes_with(f"TEST_MARK={tmp_path}").values())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        measure(spec, [1], 60.0)
    thread.join()


def test_an_engine_that_does_not_open_leaves_cores_and_variables_as_they_were(
    make: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    within: list[Any] = []

    def refuse(_: object) -> None:
        within.extend([len(os.sched_getaffinity(0)), os.environ["OMP_NUM_THREADS"]])
        raise OSError("no more processes")

    monkeypatch.setattr(LocalEngine, "open", refuse)
    with pytest.raises(OSError, match="no more processes"):
        measure(make(SLEEPS), [1], 1.0)
    assert within == [1, "1"]


# --- within a limit


def test_numbers_for_which_there_is_no_time_are_left_out_and_said(make: MakeSpec) -> None:
    spec = make(SLEEPS.format(seconds=0.02))
    lines: list[str] = []

    class Slow(profiling.ThisMachine):
        """Whose trials of two workers never get started."""

        most = 2

        def engine(self, folder: Path, workers: int) -> Any:
            if workers == 2:
                raise profiling._NoStep("no step")
            return super().engine(folder, workers)

    bench = Slow(spec.target)
    bench.most = 2
    found = measure(spec, (1, 2), 1.0, 1, lines.append, bench, ends_at=time.monotonic() + AMPLE_SECONDS)
    assert list(found.profile.seconds_per_step) == [1]
    assert "no time was left for trials with 2 workers: plans will not use these numbers" in found.remarks
    assert "2 workers, trial 1 of 1 ... no step" in lines
    with pytest.raises(ProfileError, match="no step"):
        measure(spec, (1, 2), 1.0, 1, lines.append, bench)


def test_all_of_it_is_over_when_the_limit_is(make: MakeSpec) -> None:
    spec = make(SLEEPS.format(seconds=0.02))
    lines: list[str] = []
    ends_at = time.monotonic() + 3.0
    found = measure(spec, (1,), AMPLE_SECONDS, 50, lines.append, ends_at=ends_at)
    assert 1 <= len(found.rows[0].trials) <= 50
    with pytest.raises(ProfileError, match="limit: the time was over"):
        measure(spec, (1,), ends_at=ends_at - 3.0)


def test_one_worker_without_a_step_is_an_error_with_a_limit_too(make: MakeSpec) -> None:
    spec = make(SLEEPS.format(seconds=1000))
    with pytest.raises(ProfileError, match="no step was done"):
        measure(spec, (1,), 1.0, 1, ends_at=time.monotonic() + 2.0)
