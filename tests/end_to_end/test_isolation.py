"""A trial harms only itself: whatever it does, the other trials of its study complete."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import thriftune as tt
from tests.conftest import fail_or_skip
from tests.engines.processes import PATIENCE_SECONDS, eventually, parent
from tests.engines.training_functions import MEMORY_GROUP, act
from thriftune.engines.exit_causes import out_of_memory_kills
from thriftune.state.trial_record import State, TrialRecord
from thriftune.study.result import Result
from thriftune.training.trial import Trial


def tune(*acts: str, store: Path, retries: int = 1, workers: int = 2, timeout: float | None = None) -> Result:
    return tt.tune(
        act,
        {"do": tt.Choice(list(acts))},
        minimize="loss",
        searcher="grid",
        trials=len(acts),
        max_steps=4,
        workers=workers,
        retries=retries,
        timeout=timeout,
        seed=1,
        name="study",
        store=store / "studies.db",
        progress=False,
    )


def by_act(result: Result) -> dict[str, TrialRecord]:
    return {trial["do"]: trial for trial in result.trials}


# Each fault: how it is told apart, what its error says, what is kept of its output.
FAULTS = {
    "raise_error": ("raised", "ValueError: deliberate", "about to raise"),
    "raise_huge": ("raised", "ended", ""),
    "raise_unspeakable": ("raised", "_Unspeakable", ""),
    "raise_interrupt": ("raised", "KeyboardInterrupt", ""),
    "recurse": ("raised", "RecursionError", ""),
    "exit_3": ("exited", "status 3", "about to exit"),
    "exit_0": ("exited", "status 0", ""),
    "sys_exit": ("exited", "SystemExit: leaving", ""),
    "segfault": ("signal", "SIGSEGV", "Segmentation fault"),
    "abort": ("signal", "SIGABRT", "Aborted"),
    "print_much": ("raised", "after 100 MB", "the last of it"),
    "print_no_newline": ("raised", "deliberate", "no end of line"),
    "print_bytes": ("raised", "deliberate", " no text "),
    "return_nan": ("nan", "loss is nan", ""),
    "return_inf": ("nan", "loss is -inf", ""),
    "return_none": ("no_value", "without a value of 'loss'", ""),
    "return_text": ("raised", "'good' is a text and not a number", ""),
    "return_other": ("no_value", "it reported accuracy", ""),
    "report_text": ("raised", "'small' is a text and not a number", ""),
    "close_all": ("exited", "", ""),
    "write_on_every_line": ("exited", "its worker's connection", ""),
    "leave_printing_child": ("raised", "deliberate", ""),
}

MANNERS = (
    "return_dict",
    "print_mark",
    "close_stdout",
    "close_descriptors_1_and_2",
    "replace_stdout",
    "unblock_stdout",
    "change_folder",
    "remove_folder",
    "change_variables",
    "change_signals",
    "change_limits",
    "leave_thread",
    "leave_speaking_thread",
    "leave_child",
    "leave_zombie",
    "leave_daemon",
    "fork_and_return",
    "fork_and_raise",
)
"""What a trial may do and complete all the same."""


class TestFaults:
    """One study with every fault and bad manner, each followed by trials that would notice what is left of it."""

    @pytest.fixture(scope="class")
    @classmethod
    def trials(cls, tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrialRecord]:
        bad = [*FAULTS, *MANNERS]
        acts = [name for n, act in enumerate(bad) for name in (act, f"check:{n}", f"check:again{n}")]
        return by_act(tune(*acts, store=tmp_path_factory.mktemp("faults")))

    @pytest.mark.parametrize("fault", FAULTS)
    def test_it_is_retried_then_failed_with_its_error_and_output(
        self, fault: str, trials: dict[str, TrialRecord]
    ) -> None:
        trial, (kind, error, output) = trials[fault], FAULTS[fault]
        assert (trial.state, trial.attempts, trial.failures, trial.losses) == (State.FAILED, 2, 2, 0)
        assert trial.error_kind == kind
        assert trial.error is not None
        assert error in trial.error
        assert output in trial.output
        assert len(trial.error) < 60_000
        assert len(trial.output) <= 16_384

    @pytest.mark.parametrize("manner", MANNERS)
    def test_it_completes(self, manner: str, trials: dict[str, TrialRecord]) -> None:
        trial = trials[manner]
        assert (trial.state, trial.failures, trial.error) == (State.COMPLETED, 0, None)
        assert trial.value in (0.5, 1.0)

    def test_nobody_else_notices(self, trials: dict[str, TrialRecord]) -> None:
        checks = [trial for name, trial in trials.items() if name.startswith("check")]
        assert len(checks) == 2 * len([*FAULTS, *MANNERS])
        assert {(t.state, t.failures, t.losses, t.value, t.error) for t in checks} == {
            (State.COMPLETED, 0, 0, 1.0, None)
        }


def test_trials_that_hang_are_killed_and_retried(tmp_path: Path) -> None:
    hangs = ("sleep", "spin", "ignore_sigterm", "sleep_in_company")
    trials = by_act(tune(*hangs, "check:1", "check:2", store=tmp_path, retries=1, workers=4, timeout=3.0))
    for name in hangs:
        trial = trials[name]
        assert (trial.state, trial.attempts, trial.failures, trial.error_kind) == (State.FAILED, 2, 2, "timeout")
        assert "limit of 3 s" in (trial.error or "")
        assert trial.output in ("asleep", "spinning")
    assert {trials[f"check:{n}"].state for n in (1, 2)} == {State.COMPLETED}


def test_a_trial_that_always_vanishes_is_given_up_on_and_no_retry_is_used(tmp_path: Path) -> None:
    trials = by_act(tune("kill_itself", "check:1", store=tmp_path, retries=3))
    lost = trials["kill_itself"]
    assert (lost.state, lost.failures, lost.losses, lost.error_kind) == (State.FAILED, 0, 5, "lost")
    assert "vanished 5 times" in (lost.error or "")
    assert trials["check:1"].state is State.COMPLETED


@pytest.mark.parametrize("then", ["raise_error", "exit_3", "segfault", "kill_itself"])
def test_the_next_attempt_goes_on_from_the_checkpoint(then: str, tmp_path: Path) -> None:
    space = {"do": tt.Choice(["train"]), "then": tt.Choice([then])}
    result = tt.tune(
        act,
        space,
        minimize="loss",
        trials=1,
        max_steps=4,
        workers=1,
        store=tmp_path / "s.db",
        name="s",
        progress=False,
    )
    (trial,) = result.trials
    assert (trial.state, trial.attempts) == (State.COMPLETED, 2)
    assert (trial.failures, trial.losses) == ((0, 1) if then == "kill_itself" else (1, 0))
    (record,) = tmp_path.glob("*.files/s/trials/0/steps_done")
    done = record.read_text().splitlines()
    assert done == ["1 1", "1 2", "2 3", "2 4"]
    assert [(report.step, report.attempt) for report in trial.reports] == [(1, 1), (2, 1), (3, 2), (4, 2)]


@pytest.mark.parametrize("generations", [0, 1, 2, 3], ids=["worker", "reaper", "supervisor", "watchdog"])
def test_killed_from_outside_is_lost_and_the_study_goes_on(generations: int, tmp_path: Path) -> None:
    witness = tmp_path / "pid"

    def train(trial: Trial) -> float:
        if trial.id == 0 and trial.attempt == 1:
            unfinished = witness.with_suffix(".unfinished")
            unfinished.write_text(str(os.getpid()))
            unfinished.rename(witness)
            threading.Event().wait(600)
        return 1.0

    def kill() -> None:
        eventually(witness.exists, "the trial runs")
        victim = int(witness.read_text())
        for _ in range(generations):
            victim = parent(victim)
        os.kill(victim, 9)

    killer = threading.Thread(target=kill)
    killer.start()
    space = {"x": tt.Float(0, 1)}
    result = tt.tune(
        train, space, minimize="loss", trials=20, workers=2, retries=0, store=tmp_path / "s.db", progress=False
    )
    killer.join()
    assert {trial.state for trial in result.trials} == {State.COMPLETED}
    assert (result.trials[0].failures, result.trials[0].losses, result.trials[0].attempts) == (0, 1, 2)
    assert sum(trial.failures for trial in result.trials) == 0


# --- functions that do not get there ----------------------------------------------------------------------


class _Unloadable:
    def __call__(self, trial: Trial) -> float:
        return 1.0

    def __reduce__(self) -> tuple[object, ...]:
        return int, ("this is no function",)


def test_a_function_that_cannot_be_loaded_fails_its_trials(tmp_path: Path) -> None:
    space = {"x": tt.Float(0, 1)}
    result = tt.tune(
        _Unloadable(), space, minimize="loss", trials=3, workers=2, store=tmp_path / "s.db", progress=False,
        on_failure="go_on",
    )  # fmt: skip
    for trial in result.trials:
        assert (trial.state, trial.failures, trial.losses, trial.error_kind) == (State.FAILED, 2, 0, "raised")
        assert "Traceback" in (trial.error or "")
        assert "this is no function" in (trial.error or "")


def test_an_import_that_fails_in_the_worker_fails_its_trials(tmp_path: Path) -> None:
    """The module is there for the driver, and gone for the workers."""
    (tmp_path / "fleeting.py").write_text("import os\ndef train(trial):\n    return 1.0\n")
    script = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import fleeting, thriftune as tt
sys.path.pop(0)
result = tt.tune(fleeting.train, {{"x": tt.Float(0, 1)}}, minimize="loss", trials=2, workers=2, retries=0,
                 store={str(tmp_path / "s.db")!r}, name="s", progress=False)
for trial in result.trials:
    print(trial.state, trial.error_kind, trial.error.splitlines()[-1])
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert ran.stdout.splitlines() == ["FAILED raised ModuleNotFoundError: No module named 'fleeting'"] * 2, (
        ran.stderr
    )


# --- memory -----------------------------------------------------------------------------------------------


@pytest.fixture
def memory_group(tmp_path: Path) -> Iterator[Path]:
    """A control group that may have 64 MB."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a group with a limit on its memory")
    name = f"thriftune-test-{os.getpid()}"
    with contextlib.ExitStack() as stack:
        for root, limit in _memory_roots(tmp_path, stack):
            group = root / name
            try:
                (root / "cgroup.procs").read_text()  # or else it is a plain folder
                group.mkdir()
                stack.callback(_remove, group)
                (group / limit).write_text(str(64 << 20))
            except OSError:
                continue
            for swap in ("memory.swap.max", "memory.memsw.limit_in_bytes"):
                if (group / swap).exists():
                    (group / swap).write_text("0" if swap.endswith("max") else str(64 << 20))
            yield group
            return
        fail_or_skip("no control group can have its memory limited on this machine")


def _memory_roots(tmp_path: Path, stack: contextlib.ExitStack) -> Iterator[tuple[Path, str]]:
    yield Path("/sys/fs/cgroup"), "memory.max"
    yield Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
    mounted = tmp_path / "memory"
    mounted.mkdir()
    command = ["mount", "-t", "cgroup", "-o", "memory", "none", str(mounted)]
    if subprocess.run(command, capture_output=True).returncode == 0:
        stack.callback(subprocess.run, ["umount", str(mounted)], check=False)
        yield mounted, "memory.limit_in_bytes"


def _remove(group: Path) -> None:
    def removed() -> bool:
        with contextlib.suppress(OSError):
            group.rmdir()
        return not group.exists()

    eventually(removed, f"{group} can be removed")


def test_killed_for_memory_is_the_trials_own_fault(
    memory_group: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MEMORY_GROUP, str(memory_group))
    before = out_of_memory_kills()
    trials = by_act(tune("eat_memory:1", "eat_memory:2", "check:1", "check:2", store=tmp_path))
    if out_of_memory_kills() - before < 4:
        fail_or_skip("the kernel does not count its kills for memory")
    for n in (1, 2):
        trial = trials[f"eat_memory:{n}"]
        assert (trial.state, trial.failures, trial.losses, trial.error_kind) == (State.FAILED, 2, 0, "memory")
        assert trial.output == "hungry"
        assert trials[f"check:{n}"].state is State.COMPLETED


# --- what a trial leaves in its worker, and what it forks -------------------------------------------------


def test_a_trial_that_clears_the_import_path_harms_nobody(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> float:
        import sys

        if trial.id == 0:
            sys.path.clear()
        else:
            import colorsys
            import wave  # noqa: F401 (neither has been imported before)

            del sys.modules["colorsys"], sys.modules["wave"], colorsys
        return 1.0

    result = tt.tune(
        train,
        {"x": tt.Float(0, 1)},
        minimize="loss",
        trials=4,
        workers=1,
        retries=0,
        store=tmp_path,
        progress=False,
    )
    assert {trial.state for trial in result.trials} == {State.COMPLETED}


def test_a_forked_child_has_no_say(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> float:
        import os
        import time

        if os.fork() == 0:
            trial.report(loss=0.1)
            return 0.1
        time.sleep(0.5)
        return 0.3

    result = tt.tune(
        train, {"x": tt.Float(0, 1)}, minimize="loss", trials=2, workers=2, store=tmp_path, progress=False
    )
    assert [(trial.state, trial.value, len(trial.reports)) for trial in result.trials] == [
        ("COMPLETED", 0.3, 1)
    ] * 2
