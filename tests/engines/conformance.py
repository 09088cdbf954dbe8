"""Tests that every engine must pass. The tests of an engine inherit EngineConformance and define make()."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.engines.processes import PATIENCE_SECONDS, eventually, wait_for_no_process
from thriftune.engines.protocol import Engine
from thriftune.state.events import THIS_MACHINE, Ended, Event, Failed, Killed, Lost, Reported, UsageMeasured
from thriftune.store.output_files import read_output
from thriftune.training.run import Run

ON_THIS_MACHINE = {THIS_MACHINE: 1}
END = (Ended, Failed, Killed, Lost)
TARGET = {
    "kind": "function",
    "where": "tests.engines.training_functions:act",
    "folder": str(ROOT),
    "measured": True,
}
"""The training function of the engines under test."""


def events_of(events: list[Event], trial: int, attempt: int = 1) -> list[Any]:
    """Return the events of one attempt."""
    return [e for e in events if getattr(e, "trial", None) == trial and getattr(e, "attempt", None) == attempt]


def ends(events: list[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, END)]


def wait_until(
    engine: Engine, done: Callable[[list[Event]], object], events: list[Event] | None = None
) -> list[Event]:
    """Collect events until `done(events)` is true; return all of them. New events are appended to `events`."""
    events = [] if events is None else events
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not done(events):
        assert time.monotonic() < deadline, f"all events: {events}"
        events += engine.wait(0.5)
    return events


def wait_for_end(engine: Engine, *trials: int, attempt: int = 1) -> list[Event]:
    return wait_until(engine, lambda events: all(ends(events_of(events, trial, attempt)) for trial in trials))


def no_more_events(engine: Engine) -> None:
    assert engine.wait(0.3) == []


class EngineConformance(ABC):
    """Tests of an engine. `folder` is the study's; another engine on it follows one whose driver has ended."""

    @abstractmethod
    def make(self, folder: Path, slots: int) -> Engine:
        """Return an engine that runs TARGET, or another target with the functions of training_functions.py."""

    @abstractmethod
    def make_code(self, folder: Path, slots: int) -> str:
        """Return a Python expression, including its imports, that makes the same engine in another process."""

    def steps_done(self, folder: Path, trial: int) -> Path:
        """Return the file to which the function train() appends the steps of a trial."""
        return folder / "trials" / str(trial) / "steps_done"

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return tmp_path / "study"

    @pytest.fixture
    def opened(self, folder: Path) -> Iterator[Callable[[int], Engine]]:
        with ExitStack() as stack:

            def open_engine(slots: int) -> Engine:
                engine = self.make(folder, slots)
                stack.callback(engine.close)
                assert engine.recover() == []
                engine.open()
                return engine

            yield open_engine

    @pytest.fixture
    def engine(self, opened: Callable[[int], Engine]) -> Engine:
        return opened(2)

    @pytest.fixture
    def run(self, folder: Path) -> Callable[..., Run]:
        def make(
            trial: int, do: str, attempt: int = 1, resume_step: int = 0, max_steps: int = 3, **config: Any
        ) -> Run:
            home = str(folder / "trials" / str(trial))
            return Run(trial, attempt, {"do": do, **config}, resume_step, ("loss",), max_steps, 7, home, 2)

        return make

    # --- ends of attempts

    def test_an_attempt_ends_once_and_its_reports_come_before_in_order(
        self, engine: Engine, run: Callable[..., Run]
    ) -> None:
        engine.start(run(0, "count", max_steps=200), ON_THIS_MACHINE)
        engine.start(run(1, "raise_error"), ON_THIS_MACHINE)
        events = wait_for_end(engine, 0, 1)
        counted = events_of(events, 0)
        assert [type(event) for event in counted] == [Reported] * 200 + [Ended]
        assert [event.number for event in counted[:-1]] == list(range(1, 201))
        assert not counted[-1].cut
        assert counted[-1].seconds > 0
        (failed,) = events_of(events, 1)
        assert (failed.kind, failed.output) == ("raised", "about to raise")
        assert "ValueError: deliberate" in failed.error
        no_more_events(engine)

    def test_the_output_of_an_attempt_is_stored_when_it_has_ended(
        self, opened: Callable[[int], Engine], run: Callable[..., Run], folder: Path
    ) -> None:
        engine = opened(1)
        outputs = {}
        for trial, (do, attempt) in enumerate(
            (("check", 1), ("count", 1), ("print_no_newline", 2), ("raise_error", 1), ("exit_3", 1))
        ):
            engine.start(run(trial, do, attempt), ON_THIS_MACHINE)
            wait_for_end(engine, trial, attempt=attempt)
            outputs[do] = read_output(folder / "trials" / str(trial), attempt)
        assert outputs == {
            "check": "printed by Python\nwritten to descriptor 1\n",
            "count": "",
            "print_no_newline": "no end of line",
            "raise_error": "about to raise\n",
            "exit_3": "about to exit\n",
        }

    def test_no_report_of_a_thread_is_lost(self, engine: Engine, run: Callable[..., Run]) -> None:
        engine.start(run(0, "report_from_threads", max_steps=1600), ON_THIS_MACHINE)
        *reports, end = events_of(wait_for_end(engine, 0), 0)
        assert isinstance(end, Ended), end
        assert [event.number for event in reports] == list(range(1, 1601))
        assert sorted(event.step for event in reports) == list(range(1, 1601))
        reported = sorted((event.metrics["speaker"], event.metrics["count"]) for event in reports)
        assert reported == [(speaker, count) for speaker in range(8) for count in range(200)]

    def test_no_report_of_a_signal_handler_is_lost(self, engine: Engine, run: Callable[..., Run]) -> None:
        engine.start(run(0, "report_from_handler", max_steps=10**6), ON_THIS_MACHINE)
        *reports, end = events_of(wait_for_end(engine, 0), 0)
        assert isinstance(end, Ended), end
        assert [event.number for event in reports] == list(range(1, len(reports) + 1))
        assert sorted(event.step for event in reports) == list(range(1, len(reports) + 1))
        by_speaker = {n: [e.metrics["count"] for e in reports if e.metrics["speaker"] == n] for n in range(3)}
        assert by_speaker[0] == list(range(1000))
        assert sorted(by_speaker[1]) == list(range(int(by_speaker[2][0])))

    def test_a_signal_handler_may_raise_during_a_report(self, engine: Engine, run: Callable[..., Run]) -> None:
        engine.start(run(0, "raise_from_handler", max_steps=10**6), ON_THIS_MACHINE)
        *reports, end = events_of(wait_for_end(engine, 0), 0)
        assert isinstance(end, Ended), end
        assert [event.number for event in reports] == list(range(1, len(reports) + 1))

    def test_times_increase_when_the_clock_is_set_back(self, engine: Engine, run: Callable[..., Run]) -> None:
        engine.start(run(0, "set_clock_back"), ON_THIS_MACHINE)
        times = [event.at for event in events_of(wait_for_end(engine, 0), 0)]
        assert len(times) == 3
        assert times == sorted(times)

    def test_many_attempts_one_after_the_other(self, engine: Engine, run: Callable[..., Run]) -> None:
        events: list[Event] = []
        for trial in range(100):
            engine.start(run(trial, "pid" if trial % 10 else "exit_3"), ON_THIS_MACHINE)
            if trial % 2:
                wait_until(engine, lambda e, n=trial: len(ends(e)) == n + 1, events)  # type: ignore[misc]
        assert [len(ends(events_of(events, trial))) for trial in range(100)] == [1] * 100
        end_types = {type(ends(events_of(events, trial))[0]) for trial in range(100) if trial % 10}
        assert end_types == {Ended}

    def test_knobs_are_set_between_steps(self, engine: Engine, run: Callable[..., Run]) -> None:
        engine.set_knobs(0, 1, {"pace": 9})  # the attempt has not started
        engine.start(replace(run(0, "settings", max_steps=4), system={"pace": 1}), ON_THIS_MACHINE)
        events = wait_until(engine, lambda events: any(isinstance(event, UsageMeasured) for event in events))
        engine.set_knobs(0, 1, {"pace": 2})
        engine.set_knobs(0, 2, {"pace": 9})  # for another attempt
        events += wait_for_end(engine, 0) if not ends(events) else []
        paces = [event.metrics["pace"] for event in events_of(events, 0) if isinstance(event, Reported)]
        assert paces[0] == 1
        assert paces[-1] == 2
        assert paces == sorted(paces)
        measured = [event for event in events_of(events, 0) if isinstance(event, UsageMeasured)]
        assert measured[0].setting == {"pace": 1}
        assert measured[-1].setting == {"pace": 2}
        assert [event.step for event in measured] == sorted(event.step for event in measured)
        engine.start(run(1, "settings", max_steps=1), ON_THIS_MACHINE)  # this run is not measured
        assert not [event for event in wait_for_end(engine, 1) if isinstance(event, UsageMeasured)]

    def test_an_attempt_ends_after_its_next_step_when_requested(
        self, engine: Engine, run: Callable[..., Run]
    ) -> None:
        engine.start(run(0, "count", max_steps=10**6, pause=0.01), ON_THIS_MACHINE)
        events = wait_until(engine, lambda events: len(events) >= 3)
        engine.request_end(0, 1)
        engine.request_end(0, 1)
        wait_until(engine, ends, events)
        assert isinstance(events[-1], Ended)
        assert events[-1].cut
        no_more_events(engine)

    def test_a_killed_attempt_ends_at_once(self, engine: Engine, run: Callable[..., Run]) -> None:
        engine.start(run(0, "count", max_steps=10**6, pause=0.01), ON_THIS_MACHINE)
        engine.start(run(1, "ignore_sigterm"), ON_THIS_MACHINE)
        events = wait_until(engine, lambda events: events_of(events, 0))
        engine.kill(0, 1)
        engine.kill(1, 1)
        engine.kill(1, 1)
        wait_until(engine, lambda events: len(ends(events)) == 2, events)
        assert all(isinstance(events_of(events, trial)[-1], Killed) for trial in (0, 1))
        engine.start(run(2, "check"), ON_THIS_MACHINE)
        assert isinstance(wait_for_end(engine, 2)[-1], Ended)

    def test_an_attempt_can_be_killed_right_after_its_start(
        self, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        """The process that runs it may not have started yet."""
        engine = opened(1)
        for trial in range(10):
            engine.start(run(trial, "sleep"), ON_THIS_MACHINE)
            engine.kill(trial, 1)
            assert [type(event) for event in wait_for_end(engine, trial)] == [Killed]

    def test_unknown_and_ended_attempts_are_ignored(self, engine: Engine, run: Callable[..., Run]) -> None:
        engine.request_end(5, 1)
        engine.kill(5, 1)
        engine.start(run(0, "pid"), ON_THIS_MACHINE)
        wait_for_end(engine, 0)
        engine.request_end(0, 1)
        engine.kill(0, 1)
        engine.start(run(0, "count", attempt=2), ON_THIS_MACHINE)
        engine.request_end(0, 1)  # an earlier attempt
        engine.kill(0, 3)
        events = wait_for_end(engine, 0, attempt=2)
        assert [type(event) for event in events_of(events, 0, 2)] == [Reported] * 3 + [Ended]
        assert not events[-1].cut  # type: ignore[attr-defined]

    def test_a_huge_configuration(self, engine: Engine, run: Callable[..., Run]) -> None:
        engine.start(run(0, "pid", ballast="ä" * 3_000_000), ON_THIS_MACHINE)
        assert isinstance(wait_for_end(engine, 0)[-1], Ended)

    def test_an_attempt_resumes_from_its_checkpoint(self, engine: Engine, run: Callable[..., Run]) -> None:
        engine.start(run(0, "train", then="exit_3", max_steps=4), ON_THIS_MACHINE)
        first = wait_for_end(engine, 0)
        assert [(type(e).__name__, getattr(e, "saved", None)) for e in first[:2]] == [("Reported", True)] * 2
        engine.start(run(0, "train", attempt=2, resume_step=2, max_steps=4), ON_THIS_MACHINE)
        second = wait_for_end(engine, 0, attempt=2)
        assert [event.step for event in events_of(second, 0, 2)[:-1]] == [3, 4]
        assert isinstance(second[-1], Ended)

    # --- waiting

    def test_wait_returns_after_its_timeout(self, engine: Engine) -> None:
        assert engine.wait(0.0) == []
        assert engine.wait(0.05) == []
        assert engine.wait(-1.0) == []

    def test_wake_from_another_thread(self, engine: Engine) -> None:
        timer = threading.Timer(0.2, engine.wake)
        timer.start()
        assert engine.wait(PATIENCE_SECONDS * 5) == []  # without wake(), the test would run into its time limit
        timer.join()
        engine.wake()
        engine.wake()
        assert engine.wait(None) == []

    def test_wake_from_a_signal_handler(self, engine: Engine) -> None:
        before = signal.signal(signal.SIGUSR1, lambda *_: engine.wake())
        try:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            assert engine.wait(PATIENCE_SECONDS * 5) == []
        finally:
            signal.signal(signal.SIGUSR1, before)

    def test_status_shows_running_trials(self, engine: Engine, run: Callable[..., Run]) -> None:
        engine.start(run(7, "sleep"), ON_THIS_MACHINE)
        assert [worker.trial for worker in engine.status() if worker.trial is not None] == [7]
        engine.kill(7, 1)
        wait_for_end(engine, 7)
        assert all(worker.trial is None for worker in engine.status())

    # --- close and recover

    def test_close_ends_all_processes_and_may_be_called_twice(
        self, opened: Callable[[int], Engine], run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mark = os.urandom(8).hex()
        monkeypatch.setenv("TEST_MARK", mark)
        engine = opened(2)
        engine.start(run(0, "sleep_in_company"), ON_THIS_MACHINE)
        engine.start(run(1, "spin"), ON_THIS_MACHINE)
        wait_until(engine, lambda events: events_of(events, 0))
        engine.close()
        wait_for_no_process(f"TEST_MARK={mark}")
        engine.close()
        engine.wake()

    def test_close_without_open(self, folder: Path) -> None:
        engine = self.make(folder, 1)
        engine.recover()
        engine.close()

    def test_recover_returns_the_reports_of_a_killed_driver(self, folder: Path, run: Callable[..., Run]) -> None:
        """Every report that returned in the trial is recovered, and no process is left."""
        mark = os.urandom(8).hex()
        runs = [run(n, "train", max_steps=10**6) for n in range(2)] + [run(2, "train", then="raise_error")]
        code = f"""
import time
engine = {self.make_code(folder, 3)}
from thriftune.training.run import Run
engine.recover()
engine.open()
for run in {[repr(each) for each in runs]!r}:
    engine.start(eval(run), {ON_THIS_MACHINE!r})
time.sleep(600)
"""
        driver = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "TEST_MARK": mark}, cwd=ROOT)
        try:
            done = [self.steps_done(folder, n) for n in range(2)]
            eventually(lambda: all(path.exists() and path.stat().st_size > 200 for path in done), "steps done")
            failing = self.steps_done(folder, 2)
            eventually(lambda: failing.exists() and len(failing.read_text().splitlines()) == 2, "the last step")
            time.sleep(0.5)  # it fails right after that
        finally:
            driver.kill()
            driver.wait()
        events = self.make(folder, 3).recover()
        wait_for_no_process(f"TEST_MARK={mark}")
        for trial, path in enumerate(done):
            steps = [event.step for event in events_of(events, trial)]
            assert steps == list(range(1, len(steps) + 1))
            # The kill may have come between the last step and its report.
            assert len(path.read_text().splitlines()) - len(steps) in (0, 1)
        failed = events_of(events, 2)[-1]
        assert isinstance(failed, Failed)
        assert "deliberate" in failed.error
        next_engine = self.make(folder, 1)
        next_engine.recover()
        next_engine.open()
        next_engine.close()
        assert self.make(folder, 1).recover() == []
