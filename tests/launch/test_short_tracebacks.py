"""Tests of interrupted scripts: their message, their exit status, and the interpreter's hook for errors."""

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
from thriftune.common.command_hints import how_to_resume
from thriftune.errors import StudyInterrupted
from thriftune.launch.short_tracebacks import short_if_uncaught

TIMEOUT_SECONDS = 60.0
"""Enough for a study to start and to stop on a busy machine."""

SCRIPT = """
import signal, time
from pathlib import Path
import thriftune as tt

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores SIGINT in background processes

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


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _reports(folder: Path) -> int:
    try:
        return sum(len(trial.reports) for trial in tt.load("s", folder / "s.db").trials)
    except tt.ThriftuneError:
        return 0


@contextmanager
def running(folder: Path, end: str, *flags: str, pause: float = 0.01) -> Iterator[subprocess.Popen[str]]:
    """Run the script with `end` added, from its first report until the context ends."""
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
        wait_until(lambda: _reports(folder) > 0 or process.poll() is not None)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


HOW_TO_RESUME = "To resume: thriftune resume s --store "


def test_ctrl_c_ends_a_script_with_one_message_and_status_130(tmp_path: Path) -> None:
    end = "import atexit; atexit.register(print, 'cleaned up')\nstudy()\nprint('not reached')"
    with running(tmp_path, end) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 130
    assert out == "cleaned up\n"
    assert "Traceback" not in err
    lines = err.strip().splitlines()
    assert lines[-1].startswith("stopped by Ctrl-C; 0 trials have ended. " + HOW_TO_RESUME)
    assert sum("stopped by" in line for line in lines) == 1


def test_a_second_ctrl_c_ends_the_script_at_once_with_the_same_status(tmp_path: Path) -> None:
    with running(tmp_path, "study()", pause=600) as process:
        process.send_signal(signal.SIGINT)
        wait_until(lambda: bool(tt.load("s", tmp_path / "s.db").history.stop_requested_by))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 130
    assert "Traceback" not in err
    last = err.strip().splitlines()[-1]
    assert last.startswith("stopped now; what trials reported and saved is safe. " + HOW_TO_RESUME)


def test_a_shell_gets_status_130(tmp_path: Path) -> None:
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
    wait_until(lambda: _reports(tmp_path) > 0)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGINT)
    assert shell.communicate(timeout=TIMEOUT_SECONDS)[0] == "status 130\n"


def test_a_script_whose_study_another_process_runs_ends_with_one_message(tmp_path: Path) -> None:
    with running(tmp_path, "study()"):
        second = subprocess.run(
            [sys.executable, "script.py"], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
    assert second.returncode == 1
    assert "Traceback" not in second.stderr
    assert "study 's' is being run by process " in second.stderr


def test_a_script_may_catch_study_interrupted(tmp_path: Path) -> None:
    end = (
        "try:\n    study()\nexcept tt.StudyInterrupted as error:\n    print('caught', error)\n"
        "raise ValueError('mine')"
    )
    with running(tmp_path, end) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 1
    assert "caught stopped by Ctrl-C" in out
    assert "Traceback" in err  # of the script's own error
    assert "ValueError: mine" in err


def test_a_scripts_own_excepthook_still_gets_other_errors(tmp_path: Path) -> None:
    end = (
        "import sys\nsys.excepthook = lambda kind, error, _: print('mine:', error)\n"
        "try:\n    study()\nexcept tt.StudyInterrupted:\n    raise ValueError('other') from None"
    )
    with running(tmp_path, end) as process:
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    assert (process.returncode, out) == (1, "mine: other\n")


def test_an_interactive_python_shows_a_traceback(tmp_path: Path) -> None:
    with running(tmp_path, "study()", "-i") as process:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT_SECONDS)
    assert "Traceback" in err  # as for other exceptions in an interactive session
    assert "StudyInterrupted" in err


@pytest.mark.parametrize("name", ["__IPYTHON__", "ps1"])
def test_no_excepthook_is_set_in_a_notebook_or_console(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sys.excepthook
    monkeypatch.setattr(sys if name == "ps1" else builtins, name, ">>> ", raising=False)
    with pytest.raises(StudyInterrupted), short_if_uncaught():
        raise StudyInterrupted("stopped")
    assert sys.excepthook is before


def test_the_command_to_resume_is_quoted_for_a_shell() -> None:
    assert how_to_resume("s", "/my studies/s.db") == "To resume: thriftune resume s --store '/my studies/s.db'"
    assert how_to_resume("s", ":memory:") == ""
