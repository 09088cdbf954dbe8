"""Studies whose trials are tuned while they train: real workers, real knobs, real kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import thriftune as tt
from tests import ROOT
from tests.conftest import fail_or_skip
from tests.support.ray_clusters import nodes
from thriftune.errors import SettingError
from thriftune.state import events as ev
from thriftune.store.opening import open_store

STEP_SECONDS = 0.6
SPACE = {"secret_name": tt.Float(0.0, 1.0)}
PACED = tt.System(knobs=[], options={"pace": ["slow", "quick"]})


def paced(trial: tt.Trial) -> None:
    """Steps that take a fifth as long where its option says so: a busy machine makes no difference to that."""
    for _ in trial.steps():
        time.sleep(STEP_SECONDS if trial.system["pace"] == "slow" else STEP_SECONDS / 5)
        trial.report(loss=trial["secret_name"])


def tuned(store: Path, **more: Any) -> tt.Result:
    given = {
        "seed": 1,
        "trials": 3,
        "max_steps": 20,
        "workers": 1,
        "stopping": "none",
        "searcher": "random",
        "system": PACED,
        "progress": False,
    }
    return tt.tune(paced, SPACE, minimize="loss", store=store, **{**given, **more})


def test_the_best_option_is_found_and_used(tmp_path: Path) -> None:
    result = tuned(tmp_path / "studies.db")
    assert [dict(trial.knob_setting) for trial in result.trials] == [{"pace": "quick"}] * 3
    assert any(change.by == ev.PROBE for _, change in result.trials[0].knob_changes)


def test_where_it_is_off_nothing_is_measured(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> None:
        for _ in trial.steps():
            time.sleep(STEP_SECONDS)
            trial.report(loss=float(len(trial.system)))

    result = tt.tune(
        train, SPACE, minimize="loss", trials=1, max_steps=2, system="off", store=tmp_path / "s.db", progress=False
    )
    assert result.trials[0].value == 0.0
    assert not result.trials[0].windows


def test_short_trials_are_not_measured(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> float:
        return float(trial["secret_name"])

    result = tt.tune(train, SPACE, minimize="loss", trials=40, store=tmp_path / "s.db", progress=False)
    # One that the machine had no time for looks like a long one.
    assert sum(not (trial.windows or trial.knob_changes) for trial in result.trials) > 20


def test_long_trials_between_short_ones_are_measured(tmp_path: Path) -> None:
    """All run in one worker."""

    def train(trial: tt.Trial) -> None:
        for _ in trial.steps():
            time.sleep(0.001 if trial.id % 2 else STEP_SECONDS)
            trial.report(loss=trial["secret_name"])

    result = tt.tune(
        train, SPACE, minimize="loss", trials=5, max_steps=3, workers=1, stopping="none", searcher="random",
        store=tmp_path / "s.db", progress=False,
    )  # fmt: skip
    assert all(trial.windows for trial in result.trials if trial.id % 2 == 0)


class Note(tt.system.Knob):
    """Leaves a line in a file whenever it is applied or restored."""

    name = "note"

    def __init__(self, file: Path) -> None:
        self.file = file
        self.applied = False

    def values(self, cores: int) -> Sequence[str]:
        return ("on",)

    def apply(self, value: Any) -> None:
        self.applied = True
        self._write(f"{value} {os.getpid()}")

    def restore(self) -> None:
        if self.applied:
            self.applied = False
            self._write(f"off {os.getpid()}")

    def _write(self, line: str) -> None:
        with self.file.open("a") as file:
            file.write(line + "\n")


@pytest.mark.parametrize("ends", ["well", "raises"])
def test_a_knob_of_ones_own_is_turned_in_the_worker_and_put_back(tmp_path: Path, ends: str) -> None:
    def train(trial: tt.Trial) -> None:
        for step in trial.steps():
            time.sleep(STEP_SECONDS)
            trial.report(loss=1.0)
            if step == 5 and ends == "raises":
                raise ValueError("deliberate")

    system = tt.System(knobs=[Note(tmp_path / "notes")])
    tt.tune(
        train, SPACE, minimize="loss", trials=1, max_steps=6, retries=0, workers=1, system=system,
        store=tmp_path / "s.db", progress=False,
    )  # fmt: skip
    lines = (tmp_path / "notes").read_text().splitlines()
    assert lines[0].startswith("on ")
    assert lines[-1].startswith("off ")
    assert int(lines[0].split()[1]) != os.getpid()


class Stuck(Note):
    """Cannot be put back."""

    name = "stuck"

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def apply(self, value: Any) -> None: ...

    def restore(self) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "message"), [(OSError("no\nway back"), "OSError: no way back"), (SystemExit(3), "SystemExit: 3")]
)
def test_where_a_knob_cannot_be_put_back_it_is_said_and_the_next_trial_has_another_process(
    error: BaseException, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def train(trial: tt.Trial) -> float:
        return float(os.getpid())

    result = tt.tune(
        train, SPACE, minimize="loss", trials=2, retries=0, workers=1, system=tt.System(knobs=[Stuck(error)]),
        store=tmp_path / "s.db",
    )  # fmt: skip
    assert [trial.attempts for trial in result.trials] == [1, 1]
    assert len({trial.value for trial in result.trials}) == 2
    lines = capfd.readouterr().err.splitlines()
    assert all(trial.warnings == [f"stuck: cannot be restored: {message}"] for trial in result.trials)
    assert sum(f"stuck: cannot be restored: {message}" in line for line in lines) == 1  # once for all trials


SCRIPT = """
import sys
from tests.system.test_studies import tuned
from pathlib import Path
tuned(Path(sys.argv[1]), name="killed")
"""


def test_a_driver_that_is_killed_loses_nothing_of_what_was_measured(tmp_path: Path) -> None:
    store = tmp_path / "studies.db"
    root = ROOT
    with subprocess.Popen([sys.executable, "-c", SCRIPT, str(store)], cwd=root) as driver:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            time.sleep(0.2)
            if store.exists() and (log := _log(store)) and any(isinstance(entry, ev.SetKnobs) for entry in log):
                break
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    before = tt.load("killed", store).trials
    assert any(trial.windows for trial in before)
    after = tuned(store, name="killed")
    for trial in before:
        assert after.trials[trial.id].windows[: len(trial.windows)] == trial.windows
        assert after.trials[trial.id].knob_changes[: len(trial.knob_changes)] == trial.knob_changes
    assert [dict(trial.knob_setting) for trial in after.trials] == [{"pace": "quick"}] * 3


def _log(store: Path) -> list[ev.Event]:
    try:
        with open_store(store, create=False) as opened:
            return list(opened.read("killed"))
    except tt.ThriftuneError:
        return []


@pytest.mark.parametrize("knob", ["threads", "memory"])
def test_threads_and_memory_are_turned_for_real(tmp_path: Path, knob: str) -> None:
    """The process has what the setting says, seen from within at every step.

    With one knob at a time: which one is tried first depends on how steps vary, and so on how busy the machine is.
    """
    if knob == "threads" and len(os.sched_getaffinity(0)) < 2:
        fail_or_skip("this needs two cores")

    def train(trial: tt.Trial) -> None:
        import numpy as np
        from threadpoolctl import threadpool_info

        np.ones(3) @ np.ones(3)
        for _ in trial.steps():
            time.sleep(STEP_SECONDS)
            threads = max((pool["num_threads"] for pool in threadpool_info()), default=0)
            expected = trial.system.get("threads", int(os.environ["OMP_NUM_THREADS"]))
            trial.report(loss=1.0, agrees=float(threads == expected))

    system = tt.System(knobs=[knob])
    result = tt.tune(
        train, SPACE, minimize="loss", trials=1, max_steps=6, workers=1, stopping="none", system=system,
        store=tmp_path / "s.db", progress=False,
    )  # fmt: skip
    (trial,) = result.trials
    assert any(knob in change.setting for _, change in trial.knob_changes)
    assert all(report.metrics["agrees"] == 1.0 for report in trial.reports)


@pytest.mark.cluster
def test_on_a_ray_cluster(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with nodes() as cluster:
        cluster.add(1)
        result = tuned(tmp_path / "s.db", engine=tt.Ray(address=cluster.address), workers=None, trials=2)
        assert [dict(trial.knob_setting) for trial in result.trials] == [{"pace": "quick"}] * 2
        assert all(trial.windows for trial in result.trials)
        cluster.add(1)
        engine = tt.Ray(address=cluster.address, gang=2)
        left = tuned(tmp_path / "gang.db", engine=engine, workers=None, trials=1, max_steps=2, progress=True)
    assert not any(trial.windows for trial in left.trials)
    assert "system: trials with several workers are not tuned" in capfd.readouterr().err


# --- what a user may say ----------------------------------------------------------------------------------


class Switch(tt.system.Knob):
    """As the test says."""

    def __init__(self, name: str = "switch", values: Any = ("on",)) -> None:
        self.name = name
        self.given = values

    def values(self, cores: int) -> Any:
        if isinstance(self.given, BaseException):
            raise self.given
        return self.given

    def apply(self, value: Any) -> None: ...

    def restore(self) -> None: ...


class Bare(tt.system.Knob):
    """Has no values(), but the one of all knobs."""

    name = "bare"

    def apply(self, value: Any) -> None: ...

    def restore(self) -> None: ...


def _made(kind: Any) -> Any:
    """Whatever a type checker says to that."""
    return kind()


class MyThreads(tt.system.Threads):
    """One that is built in, in a way of one's own."""


@pytest.mark.parametrize(
    ("system", "error"),
    [
        ("fast", "system: 'fast' must be 'auto', 'off', or tt.System"),
        ({"knob": []}, "system: knob is not known; it has knobs, "),
        ({"knobs": ["turbo"]}, "system: knobs: 'turbo' is not known; use one of threads, memory"),
        ({"knobs": "memory"}, "system: knobs: 'memory' must be a list"),
        ({"options": {"loaders": [2]}}, "system: options: loaders: .* at least two"),
        ({"options": {"memory": [1, 2]}}, "system: options: 'memory' is the name of a built-in knob"),
        ({"options": {"loaders": list(range(101))}}, "system: options: loaders: 101 values are too many"),
        ({"aim": "fun"}, "system: aim: 'fun' must be one of 'time', 'energy', 'dollars'"),
        ({"knobs": ["nice"]}, "system: the knob 'nice' was removed in 0.2.0"),
        ({"knobs": [object()]}, "system: knobs: .* must have a name, and values, apply, restore"),
        ({"knobs": [Switch]}, r"system: knobs: Switch is a class; give an object, Switch\(\)"),
        (
            {"knobs": [Switch(values=None)]},
            r"system: knobs: switch: values\(\) must return a list, .* returned None",
        ),
        ({"knobs": [Switch(values=3)]}, r"system: knobs: switch: values\(\) must return a list, .* returned 3"),
        ({"knobs": [Switch(values="on")]}, r"system: knobs: switch: values\(\) must return a list, .* 'on'"),
        ({"knobs": [Switch(values=list(range(101)))]}, "system: knobs: switch: 101 values are too many"),
        ({"knobs": [Switch(values=[{}])]}, "system: knobs: switch: {} is no plain value"),
        ({"knobs": [Switch(values=OSError("a\nb"))]}, "system: knobs: switch: .* it raised OSError: a b"),
        ({"knobs": [Switch(values=SystemExit(3))]}, "system: knobs: switch: .* it raised SystemExit: 3"),
        ({"knobs": [_made(Bare)]}, r"system: knobs: bare: values\(\) must return a list"),
        ({"knobs": [Switch("")]}, "system: knobs: the name '' must be a word"),
        ({"knobs": [Switch("a\n")]}, r"system: knobs: the name 'a\\n' must be a word"),
        ({"knobs": [Switch("a: b")]}, "system: knobs: the name 'a: b' must be a word"),
        ({"knobs": [Switch("memory")]}, "system: knobs: 'memory' is the name of a built-in knob"),
        ({"knobs": ["memory", "memory"]}, "system: memory: two knobs or options have this name"),
        ({"knobs": ["threads", MyThreads()]}, "system: threads: two knobs or options have this name"),
        ({"options": {"": [1, 2]}}, "system: options: the name '' must be a word"),
        ({"options": {" a": [1, 2]}}, "system: options: the name ' a' must be a word"),
        ({"options": {3: [1, 2]}}, "system: options: the name 3 must be a word"),
        ({"options": {"a": 3}}, "system: options: a: 3 must be a list of at least two"),
        ({"options": {"a": [1, 1]}}, r"system: options: a: \[1, 1\] must be different values"),
        ({"options": {"a": [0, 1, True]}}, "system: options: a: .* must be different values"),
        ({"options": {"a": [1.0, 1]}}, "system: options: a: .* must be different values"),
        ({"options": {"a": [1.0, float("nan")]}}, "system: options: a: nan is no plain value"),
    ],
)
def test_bad_settings_are_refused_before_anything_runs(system: Any, error: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=error) as refused:
        tt.tune(paced, SPACE, minimize="loss", trials=1, system=system, store=tmp_path / "s.db")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "s.db").exists()
    if isinstance(system, dict) and "knob" not in system:
        with pytest.raises(SettingError, match=error):
            tt.System(**system)


def test_knobs_and_options_of_all_sorts_are_taken() -> None:
    knobs = [Switch("large cache-2"), Switch("größe", range(0)), MyThreads(), Switch("nice")]
    found = tt.System(knobs=knobs, options={"my mode": ["a", "b"], "flag": [False, True], "n": (0, 0.5)})
    assert found.written["knobs"] == ["large cache-2", "größe", "threads", "nice"]


ONE_PARAMETER = '[space.x]\ntype = "float"\nlow = 0.0\nhigh = 1.0\n'


def test_a_study_file_says_the_same(tmp_path: Path) -> None:
    from thriftune.settings.study_file import read_study_file

    (tmp_path / "train.py").write_text("def train(trial): ...\n")
    file = tmp_path / "study.toml"
    text = 'function = "train.py:train"\nminimize = "loss"\ntrials = 1\n{}\n' + ONE_PARAMETER
    file.write_text(text.format(""))
    assert read_study_file(file).spec.system == tt.System().written
    file.write_text(text.format('system = "off"'))
    assert read_study_file(file).spec.system is None
    file.write_text(text.format('system = {knobs = ["memory"], aim = "energy"}\nworkers = 2'))
    written = tt.System(knobs=["memory"], aim="energy").written
    assert read_study_file(file).spec.system == written
    for line, error in (
        ("system = 3", "system: 3 must be 'auto', 'off', or a table such as {knobs"),
        ('system = "on"', "system: 'on' must be 'auto', 'off', or a table such as {knobs"),
        ("system = {meter = 3}", "system: meter was removed in 0.2.0; delete it"),
    ):
        file.write_text(text.format(line))
        with pytest.raises(SettingError, match=error):
            read_study_file(file)


def test_commands_are_not_tuned(tmp_path: Path) -> None:
    from thriftune.settings.study_file import read_study_file

    text = 'command = ["echo", "{x}"]\nminimize = "loss"\ntrials = 1\n%s\n' + ONE_PARAMETER
    file = tmp_path / "study.toml"
    file.write_text(text % "")
    assert read_study_file(file).spec.system is None
    file.write_text(text % 'system = "off"')
    assert read_study_file(file).spec.system is None
    file.write_text(text % 'system = {aim = "energy"}')
    with pytest.raises(SettingError, match="system: works for training functions only"):
        read_study_file(file)
