"""Tests that a worker undoes the changes of a trial in its process before it runs the next one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.conftest import needs_torch
from tests.engines.conformance import ON_THIS_MACHINE, wait_for_end
from tests.engines.state_changes import KINDS, TORCH_KINDS
from thriftune.engines.local import LocalEngine
from thriftune.state.events import Ended, Event, Failed, Reported
from thriftune.training.run import Run

LOADED_LATE = """
from tests.engines.state_changes import act

assert not {"decimal", "multiprocessing", "tempfile", "torch"} & set(sys.modules)
"""
"""A training script that leaves most modules to be loaded by its trials."""

CHANGED_WHEN_LOADED = """
import decimal, locale, logging, multiprocessing, os, tempfile, time, warnings
from tests.engines.state_changes import act

decimal.getcontext().prec = 40
decimal.DefaultContext.prec = 41
locale.setlocale(locale.LC_ALL, "POSIX")
locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
logging.captureWarnings(True)
logging.getLogger().setLevel(logging.INFO)
logging.getLogger().addHandler(logging.NullHandler())
multiprocessing.set_start_method("forkserver")
tempfile.tempdir = "/tmp/elsewhere"
os.environ["TZ"] = "ABC-2"
time.tzset()
"""
"""A training script that changes some of the state itself, before the first trial."""

TORCH_CHANGED_WHEN_LOADED = """
import torch
from tests.engines.state_changes import act

torch.set_default_dtype(torch.float16)
torch.set_default_device("meta")
"""

RunTrials = Callable[..., list[Event]]


@pytest.fixture
def run_trials(tmp_path: Path) -> Iterator[RunTrials]:
    """Return a function that runs trials one after the other on one slot, and returns all their events.

    Its first argument is the training script. The others are the configurations, one for each trial.
    """
    engines: list[LocalEngine] = []

    def run_all(script: str, *configs: dict[str, Any]) -> list[Event]:
        path = tmp_path / "script.py"
        root = str(ROOT)
        path.write_text(f"import sys\nsys.path.insert(0, {root!r})\n{script}")
        target = {"kind": "function", "where": "script.py:act", "folder": str(tmp_path)}
        engine = LocalEngine(tmp_path / "run", 1, target)
        engines.append(engine)
        engine.recover()
        engine.open()
        events: list[Event] = []
        for trial, config in enumerate(configs):
            home = str(tmp_path / "trials" / str(trial))
            engine.start(Run(trial, 1, config, 0, ("loss",), 3, 7, home, 2), ON_THIS_MACHINE)
            events += wait_for_end(engine, trial)
        return events

    yield run_all
    for engine in engines:
        engine.close()


def ran_in_one_process(events: list[Event]) -> bool:
    """Return whether all trials ran in the same process. Asserts that all have succeeded."""
    assert [event for event in events if not isinstance(event, (Reported, Ended))] == []
    return len({event.metrics["pid"] for event in events if isinstance(event, Reported)}) == 1


SCRIPTS = [
    pytest.param(LOADED_LATE, id="loaded late"),
    pytest.param(CHANGED_WHEN_LOADED, id="changed when loaded"),
]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in TORCH_KINDS])
def test_the_next_trial_finds_the_initial_state(kind: str, script: str, run_trials: RunTrials) -> None:
    change, check = {"do": "change", "kind": kind}, {"do": "check", "kind": kind}
    assert ran_in_one_process(run_trials(script, change, check, change, check))


@needs_torch
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(LOADED_LATE, id="loaded late"),
        pytest.param(TORCH_CHANGED_WHEN_LOADED, id="changed when loaded"),
    ],
)
@pytest.mark.parametrize("kind", list(TORCH_KINDS))
def test_the_next_trial_finds_the_initial_state_of_torch(kind: str, script: str, run_trials: RunTrials) -> None:
    change, check = {"do": "change", "kind": kind}, {"do": "check", "kind": kind}
    assert ran_in_one_process(run_trials(script, change, check, change, check))


def test_a_watchdog_ends_with_its_trial(run_trials: RunTrials) -> None:
    assert ran_in_one_process(run_trials(LOADED_LATE, {"do": "start_watchdog"}, {"do": "check_watchdog"}))


@pytest.mark.parametrize("change", ["pid", "disable_faulthandler", "write_tracebacks_elsewhere", "handle_faults"])
def test_a_crash_leaves_a_traceback_in_the_output(change: str, run_trials: RunTrials) -> None:
    """Test it after trials that have changed how crashes are handled."""
    first = {"do": "pid"} if change == "pid" else {"do": "do", "change": change}
    *earlier, failed = run_trials(LOADED_LATE, first, {"do": "pid"}, {"do": "segfault"})
    assert ran_in_one_process(earlier)
    assert isinstance(failed, Failed)
    assert "Fatal Python error: Segmentation fault" in failed.output
    assert "in segfault" in failed.output


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("leave_inference_mode_on", marks=needs_torch),
        pytest.param(
            "stop_being_root", marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another")
        ),
    ],
)
def test_a_worker_is_replaced_if_a_change_cannot_be_undone(change: str, run_trials: RunTrials) -> None:
    assert not ran_in_one_process(run_trials(LOADED_LATE, {"do": "do", "change": change}, {"do": "pid"}))


def test_changes_by_the_script_while_it_loads_hold_for_every_trial(run_trials: RunTrials, tmp_path: Path) -> None:
    """The script changes variables, the folder and the mask of permissions."""
    folder = tmp_path / "data"
    folder.mkdir()
    script = f"""
import os
os.environ["SET_WHEN_LOADED"] = "yes"
os.chdir({str(folder)!r})
os.umask(0o027)

def act(trial):
    mask = os.umask(0)
    assert (os.environ.get("SET_WHEN_LOADED"), os.getcwd(), mask) == ("yes", {str(folder)!r}, 0o027)
    del os.environ["SET_WHEN_LOADED"]
    os.chdir("/")
    return {{"loss": 1.0, "pid": float(os.getpid())}}
"""
    assert ran_in_one_process(run_trials(script, {}, {}, {}))


def test_a_module_with_the_name_of_a_library_does_no_harm(run_trials: RunTrials) -> None:
    """Some scripts replace a library by an empty module, so that nothing loads it."""
    script = """
import sys, types
for name in ("decimal", "multiprocessing", "numpy", "tempfile", "torch"):
    sys.modules[name] = types.ModuleType(name)
from tests.engines.state_changes import pid as act
"""
    assert ran_in_one_process(run_trials(script, {}, {}))
