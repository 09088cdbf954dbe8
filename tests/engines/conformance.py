"""What every engine must do. An engine's own tests inherit EngineConformance and say how to make one."""

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
from tests.engines.processes import PATIENCE_SECONDS, all_gone, eventually
from thriftune.engines.protocol import Engine
from thriftune.state.events import THIS_MACHINE, Ended, Event, Failed, Killed, Lost, Reported, UsageMeasured
from thriftune.store.output_files import read_output
from thriftune.training.run import Run

HERE = {THIS_MACHINE: 1}
END = (Ended, Failed, Killed, Lost)
TARGET = {
    "kind": "function",
    "where": "tests.engines.training_functions:act",
    "folder": str(ROOT),
    "meter": [],  # runs may be measured
}
"""What the engine is to run."""


def told(events: list[Event], trial: int, attempt: int = 1) -> list[Any]:
    """What was said about one attempt."""
    return [e for e in events if getattr(e, "trial", None) == trial and getattr(e, "attempt", None) == attempt]


def ends(events: list[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, END)]


def until(engine: Engine, done: Callable[[list[Event]], object], so_far: list[Event] | None = None) -> list[Event]:
    """Waits on the engine until what it told is enough."""
    events = [] if so_far is None else so_far
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not done(events):
        assert time.monotonic() < deadline, f"all that was told: {events}"
        events += engine.wait(0.5)
    return events


def until_ended(engine: Engine, *trials: int, attempt: int = 1) -> list[Event]:
    return until(engine, lambda events: all(ends(told(events, trial, attempt)) for trial in trials))


def nothing_more(engine: Engine) -> None:
    assert engine.wait(0.3) == []


class EngineConformance(ABC):
    """`folder` is the study's; an engine made anew on it follows one that is gone."""

    @abstractmethod
    def make(self, folder: Path, slots: int) -> Engine:
        """An engine that runs TARGET, or any other that runs the functions of acts.py."""

    @abstractmethod
    def make_code(self, folder: Path, slots: int) -> str:
        """A Python expression, with its imports in it, that makes the same in another process."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return tmp_path / "study"

    @pytest.fixture
    def opened(self, folder: Path) -> Iterator[Callable[[int], Engine]]:
        with ExitStack() as stack:

            def open_one(slots: int) -> Engine:
                engine = self.make(folder, slots)
                stack.callback(engine.close)
                assert engine.recover() == []
                engine.open()
                return engine

            yield open_one

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

    # --- how attempts end

    def test_an_attempt_ends_once_and_its_reports_come_before_in_order(
        self, engine: Engine, run: Callable[..., Run]
    ) -> None:
        engine.start(run(0, "count", max_steps=200), HERE)
        engine.start(run(1, "raise_error"), HERE)
        events = until_ended(engine, 0, 1)
        counted = told(events, 0)
        assert [type(event) for event in counted] == [Reported] * 200 + [Ended]
        assert [event.number for event in counted[:-1]] == list(range(1, 201))
        assert not counted[-1].cut
        assert counted[-1].seconds > 0
        (failed,) = told(events, 1)
        assert (failed.kind, failed.output) == ("raised", "about to raise")
        assert "ValueError: deliberate" in failed.error
        nothing_more(engine)

    def test_what_an_attempt_prints_is_kept_when_it_has_ended(
        self, opened: Callable[[int], Engine], run: Callable[..., Run], folder: Path
    ) -> None:
        engine = opened(1)
        kept = {}
        for trial, (do, attempt) in enumerate(
            (("check", 1), ("count", 1), ("print_no_newline", 2), ("raise_error", 1), ("exit_3", 1))
        ):
            engine.start(run(trial, do, attempt), HERE)
            until_ended(engine, trial, attempt=attempt)
            kept[do] = read_output(folder / "trials" / str(trial), attempt)
        assert kept == {
            "check": "said as ever\nand below\n",
            "count": "",
            "print_no_newline": "no end of line",
            "raise_error": "about to raise\n",
            "exit_3": "about to exit\n",
        }

    def test_no_report_is_lost_where_threads_report(self, engine: Engine, run: Callable[..., Run]) -> None:
        engine.start(run(0, "report_from_threads", max_steps=1600), HERE)
        *reports, end = told(until_ended(engine, 0), 0)
        assert isinstance(end, Ended), end
        assert [event.number for event in reports] == list(range(1, 1601))
        assert sorted(event.step for event in reports) == list(range(1, 1601))
        said = sorted((event.metrics["speaker"], event.metrics["count"]) for event in reports)
        assert said == [(speaker, count) for speaker in range(8) for count in range(200)]

    def test_no_report_is_lost_where_a_signal_handler_reports(
        self, engine: Engine, run: Callable[..., Run]
    ) -> None:
        engine.start(run(0, "report_from_handler", max_steps=10**6), HERE)
        *reports, end = told(until_ended(engine, 0), 0)
        assert isinstance(end, Ended), end
        assert [event.number for event in reports] == list(range(1, len(reports) + 1))
        assert sorted(event.step for event in reports) == list(range(1, len(reports) + 1))
        by_speaker = {n: [e.metrics["count"] for e in reports if e.metrics["speaker"] == n] for n in range(3)}
        assert by_speaker[0] == list(range(1000))
        assert sorted(by_speaker[1]) == list(range(int(by_speaker[2][0])))

    def test_a_signal_handler_may_raise_during_a_report(self, engine: Engine, run: Callable[..., Run]) -> None:
        engine.start(run(0, "raise_from_handler", max_steps=10**6), HERE)
        *reports, end = told(until_ended(engine, 0), 0)
        assert isinstance(end, Ended), end
        assert [event.number for event in reports] == list(range(1, len(reports) + 1))

    def test_times_go_on_where_the_clock_is_set_back(self, engine: Engine, run: Callable[..., Run]) -> None:
        engine.start(run(0, "set_clock_back"), HERE)
        times = [event.at for event in told(until_ended(engine, 0), 0)]
        assert len(times) == 3
        assert times == sorted(times)

    def test_many_attempts_one_after_the_other(self, engine: Engine, run: Callable[..., Run]) -> None:
        events: list[Event] = []
        for trial in range(100):
            engine.start(run(trial, "pid" if trial % 10 else "exit_3"), HERE)
            if trial % 2:
                until(engine, lambda e, n=trial: len(ends(e)) == n + 1, events)  # type: ignore[misc]
        assert [len(ends(told(events, trial))) for trial in range(100)] == [1] * 100
        kinds = {type(ends(told(events, trial))[0]) for trial in range(100) if trial % 10}
        assert kinds == {Ended}

    def test_knobs_are_turned_between_steps(self, engine: Engine, run: Callable[..., Run]) -> None:
        engine.set_knobs(0, 1, {"pace": 9})  # nobody is there yet
        engine.start(replace(run(0, "settings", max_steps=4), system={"pace": 1}), HERE)
        events = until(engine, lambda events: any(isinstance(event, UsageMeasured) for event in events))
        engine.set_knobs(0, 1, {"pace": 2})
        engine.set_knobs(0, 2, {"pace": 9})  # another attempt's
        events += until_ended(engine, 0) if not ends(events) else []
        paces = [event.metrics["pace"] for event in told(events, 0) if isinstance(event, Reported)]
        assert paces[0] == 1
        assert paces[-1] == 2
        assert paces == sorted(paces)
        measured = [event for event in told(events, 0) if isinstance(event, UsageMeasured)]
        assert measured[0].setting == {"pace": 1}
        assert measured[-1].setting == {"pace": 2}
        assert [event.step for event in measured] == sorted(event.step for event in measured)
        engine.start(run(1, "settings", max_steps=1), HERE)  # one that is not measured
        assert not [event for event in until_ended(engine, 1) if isinstance(event, UsageMeasured)]

    def test_told_to_end_it_ends_after_its_next_step(self, engine: Engine, run: Callable[..., Run]) -> None:
        engine.start(run(0, "count", max_steps=10**6, pause=0.01), HERE)
        events = until(engine, lambda events: len(events) >= 3)
        engine.request_end(0, 1)
        engine.request_end(0, 1)
        until(engine, ends, events)
        assert isinstance(events[-1], Ended)
        assert events[-1].cut
        nothing_more(engine)

    def test_killed_it_is_gone(self, engine: Engine, run: Callable[..., Run]) -> None:
        engine.start(run(0, "count", max_steps=10**6, pause=0.01), HERE)
        engine.start(run(1, "ignore_sigterm"), HERE)
        events = until(engine, lambda events: told(events, 0))
        engine.kill(0, 1)
        engine.kill(1, 1)
        engine.kill(1, 1)
        until(engine, lambda events: len(ends(events)) == 2, events)
        assert all(isinstance(told(events, trial)[-1], Killed) for trial in (0, 1))
        engine.start(run(2, "check"), HERE)
        assert isinstance(until_ended(engine, 2)[-1], Ended)

    def test_killed_at_once(self, opened: Callable[[int], Engine], run: Callable[..., Run]) -> None:
        """Also before the process that is to run it is quite there."""
        engine = opened(1)
        for trial in range(10):
            engine.start(run(trial, "sleep"), HERE)
            engine.kill(trial, 1)
            assert [type(event) for event in until_ended(engine, trial)] == [Killed]

    def test_unknown_and_ended_attempts_are_ignored(self, engine: Engine, run: Callable[..., Run]) -> None:
        engine.request_end(5, 1)
        engine.kill(5, 1)
        engine.start(run(0, "pid"), HERE)
        until_ended(engine, 0)
        engine.request_end(0, 1)
        engine.kill(0, 1)
        engine.start(run(0, "count", attempt=2), HERE)
        engine.request_end(0, 1)  # not the attempt that runs
        engine.kill(0, 3)
        events = until_ended(engine, 0, attempt=2)
        assert [type(event) for event in told(events, 0, 2)] == [Reported] * 3 + [Ended]
        assert not events[-1].cut  # type: ignore[attr-defined]

    def test_a_huge_configuration(self, engine: Engine, run: Callable[..., Run]) -> None:
        engine.start(run(0, "pid", ballast="ä" * 3_000_000), HERE)
        assert isinstance(until_ended(engine, 0)[-1], Ended)

    def test_an_attempt_goes_on_from_its_checkpoint(self, engine: Engine, run: Callable[..., Run]) -> None:
        engine.start(run(0, "train", then="exit_3", max_steps=4), HERE)
        first = until_ended(engine, 0)
        assert [(type(e).__name__, getattr(e, "saved", None)) for e in first[:2]] == [("Reported", True)] * 2
        engine.start(run(0, "train", attempt=2, resume_step=2, max_steps=4), HERE)
        second = until_ended(engine, 0, attempt=2)
        assert [event.step for event in told(second, 0, 2)[:-1]] == [3, 4]
        assert isinstance(second[-1], Ended)

    # --- waiting

    def test_wait_returns_when_its_time_is_over(self, engine: Engine) -> None:
        assert engine.wait(0.0) == []
        assert engine.wait(0.05) == []
        assert engine.wait(-1.0) == []

    def test_wake_from_another_thread(self, engine: Engine) -> None:
        timer = threading.Timer(0.2, engine.wake)
        timer.start()
        assert engine.wait(PATIENCE_SECONDS * 5) == []  # the test would run into its own limit
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

    def test_doing_names_what_runs(self, engine: Engine, run: Callable[..., Run]) -> None:
        engine.start(run(7, "sleep"), HERE)
        assert [doing.trial for doing in engine.status() if doing.trial is not None] == [7]
        engine.kill(7, 1)
        until_ended(engine, 7)
        assert all(doing.trial is None for doing in engine.status())

    # --- the end

    def test_close_ends_all_and_may_be_called_twice(
        self, opened: Callable[[int], Engine], run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mark = os.urandom(8).hex()
        monkeypatch.setenv("TEST_MARK", mark)
        engine = opened(2)
        engine.start(run(0, "sleep_in_company"), HERE)
        engine.start(run(1, "spin"), HERE)
        until(engine, lambda events: told(events, 0))
        engine.close()
        all_gone(f"TEST_MARK={mark}")
        engine.close()
        engine.wake()

    def test_close_without_open(self, folder: Path) -> None:
        engine = self.make(folder, 1)
        engine.recover()
        engine.close()

    def test_recover_gives_what_a_killed_driver_was_not_told(self, folder: Path, run: Callable[..., Run]) -> None:
        """Every report that returned in the trial is known afterwards, and everybody is gone."""
        mark = os.urandom(8).hex()
        runs = [run(n, "train", max_steps=10**6) for n in range(2)] + [run(2, "train", then="raise_error")]
        code = f"""
import time
engine = {self.make_code(folder, 3)}
from thriftune.training.run import Run
engine.recover()
engine.open()
for run in {[repr(each) for each in runs]!r}:
    engine.start(eval(run), {HERE!r})
time.sleep(600)
"""
        driver = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "TEST_MARK": mark}, cwd=ROOT)
        try:
            done = [folder / "trials" / str(n) / "steps_done" for n in range(2)]
            eventually(lambda: all(path.exists() and path.stat().st_size > 200 for path in done), "steps done")
            failing = folder / "trials" / "2" / "steps_done"
            eventually(lambda: failing.exists() and len(failing.read_text().splitlines()) == 2, "the last before")
            time.sleep(0.5)  # it fails just afterwards
        finally:
            driver.kill()
            driver.wait()
        events = self.make(folder, 3).recover()
        all_gone(f"TEST_MARK={mark}")
        for trial, path in enumerate(done):
            steps = [event.step for event in told(events, trial)]
            assert steps == list(range(1, len(steps) + 1))
            # A step is done just before it is reported, so the last may have been cut off between the two.
            assert len(path.read_text().splitlines()) - len(steps) in (0, 1)
        failed = told(events, 2)[-1]
        assert isinstance(failed, Failed)
        assert "deliberate" in failed.error
        following = self.make(folder, 1)
        following.recover()
        following.open()
        following.close()
        assert self.make(folder, 1).recover() == []
