"""No process is ever left behind: not after a study, not when its driver, or who keeps its workers, is killed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import thriftune as tt
from tests import ROOT
from tests.engines.processes import eventually, parent, processes_with, wait_for_no_process
from tests.engines.training_functions import act
from thriftune.engines import recovery

FUNCTION = """
import signal, sys, thriftune as tt
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which those who run the tests by nohup ignore
from tests.engines.training_functions import act
acts = ["sleep_in_company:1", "sleep_in_company:2", "spin", "leave_daemon"]
tt.tune(act, {"do": tt.Choice(acts)}, minimize="loss", searcher="grid", trials=4, workers=4,
        store=sys.argv[1] + "/s.db", name="s", progress=False)
"""

COMMAND = """
import sys, thriftune as tt
from thriftune.cli import main
from pathlib import Path
file = Path(sys.argv[1]) / "study.toml"
file.write_text('''
command = ["sh", "-c", "setsid sh -c 'sleep 611 & sleep 612' & sleep 613 & echo loss=1; sleep 614 | sleep 615"]
minimize = "loss"
trials = 2
workers = 2
store = "s.db"
[space.x]
type = "float"
low = 0.0
high = 1.0
[metrics]
loss = 'loss=(.*)'
''')
sys.argv = ["thriftune", "run", str(file)]
main()
"""


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    value = os.urandom(8).hex()
    monkeypatch.setenv("TEST_MARK", value)
    yield f"TEST_MARK={value}"
    for pid in processes_with(f"TEST_MARK={value}"):  # of a test that has failed
        kill(pid)


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it was quicker
        os.kill(pid, signal.SIGKILL)


def start(script: str, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", script, str(folder)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def sleepers(mark: str) -> list[int]:
    return [pid for pid, command in processes_with(mark).items() if command.startswith("sleep 6")]


def supervisor_of(mark: str, driver: int) -> int:
    """Return the child of the driver's only child, which is the watchdog."""
    parents = {}
    for pid in processes_with(mark):
        with contextlib.suppress(FileNotFoundError):  # it has ended since
            parents[pid] = parent(pid)
    (watchdog,) = (pid for pid, above in parents.items() if above == driver)
    (supervisor,) = (pid for pid, above in parents.items() if above == watchdog)
    return supervisor


@pytest.mark.parametrize("script", [FUNCTION, COMMAND], ids=["function", "command"])
@pytest.mark.parametrize("victims", ["driver", "driver and supervisor", "supervisor and driver"])
def test_after_a_kill_with_descendants_of_all_kinds(victims: str, script: str, mark: str, tmp_path: Path) -> None:
    driver = start(script, tmp_path)
    try:
        eventually(lambda: len(sleepers(mark)) >= 8, "the trials have their descendants")
        pids = {"driver": driver.pid, "supervisor": supervisor_of(mark, driver.pid)}
        for victim in victims.split(" and "):
            kill(pids[victim])
    finally:
        driver.kill()
        driver.wait()
    wait_for_no_process(mark)


@pytest.mark.parametrize("victims", ["driver", "driver and supervisor"])
def test_a_stopped_watchdog_ends(victims: str, mark: str, tmp_path: Path) -> None:
    """The supervisor continues it. If that is killed as well, the next run continues it."""
    driver = start(FUNCTION, tmp_path)
    try:
        eventually(lambda: len(sleepers(mark)) >= 8, "the trials have their descendants")
        supervisor = supervisor_of(mark, driver.pid)
        os.kill(parent(supervisor), signal.SIGSTOP)
        if victims == "driver and supervisor":
            driver.send_signal(signal.SIGSTOP)  # it would continue the watchdog, too
            kill(supervisor)
    finally:
        driver.kill()
        driver.wait()
    if victims == "driver and supervisor":
        recovery.recover(tmp_path / "s.db.files" / "s" / "run")
    wait_for_no_process(mark)


def test_after_a_kill_at_any_moment(mark: str, tmp_path: Path) -> None:
    moments = random.Random(4)
    for n in range(8):
        folder = tmp_path / str(n)
        folder.mkdir()
        driver = start(FUNCTION, folder)
        time.sleep(moments.uniform(0.0, 1.2))
        driver.kill()
        driver.wait()
        wait_for_no_process(mark)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_after_a_signal_that_ends_the_driver(number: signal.Signals, mark: str, tmp_path: Path) -> None:
    """Twice, for those who would wait for the trials' next step."""
    driver = start(FUNCTION, tmp_path)
    try:
        eventually(lambda: len(sleepers(mark)) >= 8, "the trials have their descendants")
        driver.send_signal(number)
        time.sleep(0.5)
        driver.send_signal(signal.SIGINT)
        driver.wait(60)
    finally:
        driver.kill()
        driver.wait()
    wait_for_no_process(mark)


def test_after_tune_has_returned(mark: str, tmp_path: Path) -> None:
    acts = ["leave_child", "leave_daemon", "leave_printing_child", "leave_thread", "sleep_in_company", "segfault"]
    result = tt.tune(
        act,
        {"do": tt.Choice(acts)},
        minimize="loss",
        searcher="grid",
        trials=len(acts),
        workers=3,
        retries=0,
        timeout=3.0,
        store=tmp_path / "s.db",
        progress=False,
    )
    assert len(result.trials) == len(acts)
    assert processes_with(mark) == {}  # at once: it does not return before they are gone


def test_after_tune_has_raised(mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def refuse(*_: object) -> list[str]:
        calls.append(1)
        if len(calls) < 3:
            return []
        eventually(lambda: len(sleepers(mark)) >= 4, "the trial has its descendants")
        raise RuntimeError("of the driver")

    monkeypatch.setattr("thriftune.store.sqlite.SqliteStore.take_requests", refuse)
    with pytest.raises(RuntimeError, match="of the driver"):
        tt.tune(
            act,
            {"do": tt.Choice(["sleep_in_company"])},
            minimize="loss",
            trials=1,
            workers=1,
            store=tmp_path / "s.db",
            progress=False,
        )
    assert processes_with(mark) == {}
