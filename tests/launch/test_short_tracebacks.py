"""A script that is interrupted: what it says, and how it ends."""

from __future__ import annotations

import builtins
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import thriftune as tt
from thriftune.common.command_hints import how_to_go_on
from thriftune.errors import StudyInterrupted
from thriftune.launch.short_tracebacks import short_if_uncaught

PATIENCE_SECONDS = 60.0

SCRIPT = """
import signal, time
from pathlib import Path
import thriftune as tt

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored

def train(trial):
    for step in trial.steps():
        trial.report(loss=trial["x"])
        time.sleep(float(Path("pause").read_text()))

def study():
    return tt.tune(
        train, {"x": tt.Float(0, 1)}, minimize="loss", trials=2, max_steps=10_000, workers=1, stopping="none",
        name="s", store="s.db",
    )
"""


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _reports(folder: Path) -> int:
    try:
        return sum(len(trial.reports) for trial in tt.load("s", folder / "s.db").trials)
    except tt.ThriftuneError:
        return 0


@contextmanager
def running(folder: Path, end: str, *flags: str, pause: float = 0.01) -> Iterator[subprocess.Popen[str]]:
    """The script, which ends like this; once a step was reported."""
    (folder / "pause").write_text(str(pause))
    (folder / "script.py").write_text(SCRIPT + end)
    process = subprocess.Popen(
        [sys.executable, *flags, "script.py"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: _reports(folder) > 0 or process.poll() is not None)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


GO_ON = "To go on: thriftune resume s --store "


def test_ctrl_c_ends_a_script_with_one_message_and_status_130(tmp_path: Path) -> None:
    end = "import atexit; atexit.register(print, 'tidied up')\nstudy()\nprint('not reached')"
    with running(tmp_path, end) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert out == "tidied up\n"
    assert "Traceback" not in err
    said = err.strip().splitlines()
    assert said[-1].startswith("stopped by Ctrl-C; 0 trials have ended. " + GO_ON)
    assert sum("stopped by" in line for line in said) == 1


def test_a_second_ctrl_c_ends_it_the_same_way(tmp_path: Path) -> None:
    with running(tmp_path, "study()", pause=600) as process:
        process.send_signal(signal.SIGINT)
        until(lambda: bool(tt.load("s", tmp_path / "s.db").history.stop_requested_by))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert "Traceback" not in err
    said = err.strip().splitlines()[-1]
    assert said.startswith("stopped now; what trials reported and saved is safe. " + GO_ON)


def test_a_shell_sees_130(tmp_path: Path) -> None:
    (tmp_path / "pause").write_text("0.01")
    (tmp_path / "script.py").write_text(SCRIPT + "import os\nPath('pid').write_text(str(os.getpid()))\nstudy()")
    shell = subprocess.Popen(
        ["sh", "-c", f"{sys.executable} script.py; echo status $?"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    until(lambda: _reports(tmp_path) > 0)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGINT)
    assert shell.communicate(timeout=PATIENCE_SECONDS)[0] == "status 130\n"


def test_a_script_may_catch_it(tmp_path: Path) -> None:
    end = "try:\n    study()\nexcept tt.StudyInterrupted as it:\n    print('caught', it)\nraise ValueError('mine')"
    with running(tmp_path, end) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1
    assert "caught stopped by Ctrl-C" in out
    assert "Traceback" in err  # of what it raised itself
    assert "ValueError: mine" in err


def test_a_script_with_a_hook_of_its_own_keeps_it_for_other_errors(tmp_path: Path) -> None:
    end = (
        "import sys\nsys.excepthook = lambda kind, error, _: print('mine:', error)\n"
        "try:\n    study()\nexcept tt.StudyInterrupted:\n    raise ValueError('other') from None"
    )
    with running(tmp_path, end) as process:
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, out) == (1, "mine: other\n")


def test_an_interactive_python_stays(tmp_path: Path) -> None:
    with running(tmp_path, "study()", "-i") as process:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert "Traceback" in err  # as for any other exception there
    assert "StudyInterrupted" in err


@pytest.mark.parametrize("name", ["__IPYTHON__", "ps1"])
def test_no_hook_is_set_in_a_notebook(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sys.excepthook
    monkeypatch.setattr(sys if name == "ps1" else builtins, name, ">>> ", raising=False)
    with pytest.raises(StudyInterrupted), short_if_uncaught():
        raise StudyInterrupted("stopped")
    assert sys.excepthook is before


def test_how_to_go_on_can_be_pasted_into_a_shell() -> None:
    assert how_to_go_on("s", "/my studies/s.db") == "To go on: thriftune resume s --store '/my studies/s.db'"
    assert how_to_go_on("s", ":memory:") == ""
