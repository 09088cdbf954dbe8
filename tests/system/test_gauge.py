"""The gauge: it measures attempts in this process; the test plays the driver."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from thriftune.state.events import Event, Reported, UsageMeasured, Warned
from thriftune.system import gauge as gauges
from thriftune.system.gauge import Gauge, Instruments
from thriftune.system.knobs import CannotTurn, Knob
from thriftune.training.run import Run
from thriftune.training.trial import Trial


class Driver:
    """Sends one of the settings after each window, in their order."""

    def __init__(self, *settings: Mapping[str, Any]) -> None:
        self.settings = list(settings)
        self.next_setting: Mapping[str, Any] | None = None
        self.sent: list[Event] = []
        self.waited: list[float] = []

    def send(self, event: Event) -> int:
        self.sent.append(event)
        if isinstance(event, UsageMeasured) and self.settings:
            self.next_setting = self.settings.pop(0)
        return 0

    def take_setting(self) -> Mapping[str, Any] | None:
        setting, self.next_setting = self.next_setting, None
        return setting

    def wait_for_setting(self, seconds: float) -> None:
        self.waited.append(seconds)

    def seconds_left(self) -> float | None:
        return None

    def end_requested(self, after_report: int = 0, timeout_seconds: float = 0.0) -> bool:
        return False

    @property
    def windows(self) -> list[UsageMeasured]:
        return [event for event in self.sent if isinstance(event, UsageMeasured)]


class Dial(Knob):
    name = "dial"

    def __init__(self) -> None:
        self.at = 0

    def values(self, cores: int) -> Sequence[int]:
        return (1, 2)

    def apply(self, value: Any) -> None:
        if value == 2:
            raise CannotTurn("it goes to 1")
        self.at = value

    def restore(self) -> None:
        self.at = 0


class Clock:
    """Replaces time.perf_counter: only pass_() moves it, so a busy machine changes no measured time."""

    def __init__(self) -> None:
        self.now = 1000.0

    def pass_(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    return clock


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Measures windows of 0.02 s, whatever share of the attempt they are."""
    monkeypatch.setattr(gauges, "LEAST_SECONDS", 0.02)
    monkeypatch.setattr(gauges, "LEAST_STEP_SECONDS", 0.01)
    monkeypatch.setattr(gauges, "LEAST_SHARE", 0.0)


@pytest.fixture
def dial() -> Dial:
    return Dial()


def a_run(tmp_path: Path, **more: Any) -> Run:
    given = {"trial": 3, "attempt": 1, "config": {}, "resume_step": 0, "objectives": ("loss",), "max_steps": 6}
    kept = {"seed": 0, "folder": str(tmp_path), "keep": 2, "system": {}}
    return Run(**{**given, **kept, **more})


def begun(run: Run, driver: Driver, dial: Dial, instruments: Instruments | None = None) -> tuple[Trial, Gauge]:
    gauge = (instruments or Instruments()).gauge(run, driver, [dial])
    assert gauge is not None
    return Trial(run, driver, gauge=gauge), gauge


STEP_SECONDS = 0.03  # longer than the shortest window


def burn(cpu_seconds: float) -> None:
    until = time.process_time() + cpu_seconds
    while time.process_time() < until:
        pass


def test_steps_are_measured_and_settings_are_applied_between_them(
    tmp_path: Path, quick: None, clock: Clock, dial: Dial
) -> None:
    driver = Driver({}, {"dial": 1}, {"dial": 1}, {})
    trial, gauge = begun(a_run(tmp_path), driver, dial)
    seen = []
    for _ in trial.steps():
        seen.append((dial.at, dict(trial.system)))
        burn(0.02)
        clock.pass_(STEP_SECONDS)
        trial.report(loss=1.0)
    assert seen == [(0, {}), (0, {}), (1, {"dial": 1}), (1, {"dial": 1}), (0, {}), (0, {})]
    windows = driver.windows
    assert [window.setting for window in windows] == [setting for _, setting in seen]
    assert [window.step for window in windows] == [1, 2, 3, 4, 5, 6]
    assert [window.cold for window in windows] == [True] + [False] * 5
    assert all(window.steps == 1 for window in windows)
    assert [window.seconds for window in windows] == pytest.approx([STEP_SECONDS] * 6)
    assert len({window.kind for window in windows}) == 1
    assert all(window.joules >= 0.0 and window.meter for window in windows)
    # The kernel knows the sum exactly, but guesses which part of it was the user's.
    cpu_names = "user_seconds", "system_seconds"
    busy = sum(window.counters[name] * window.seconds for window in windows for name in cpu_names)
    assert busy > 0.03, "it was this process that was measured"
    order = [type(event) for event in driver.sent]
    assert order == [UsageMeasured, Reported] * 6
    assert gauge.end() == []
    assert dial.at == 0


def test_short_steps_make_a_window_together(tmp_path: Path, quick: None, clock: Clock, dial: Dial) -> None:
    driver = Driver()
    trial, _ = begun(a_run(tmp_path, max_steps=60), driver, dial)
    for _ in trial.steps():
        clock.pass_(0.003)
        trial.report(loss=1.0)
    assert [window.steps for window in driver.windows] == [7] * 8, "the fewest steps that take 0.02 s"
    assert all(window.seconds == pytest.approx(0.021) for window in driver.windows)


def test_a_single_step_may_be_shorter_than_other_windows(
    tmp_path: Path, quick: None, clock: Clock, dial: Dial
) -> None:
    """Otherwise a trial of few steps would have one window, and nothing to compare."""
    driver = Driver()
    trial, _ = begun(a_run(tmp_path), driver, dial)
    for _ in trial.steps():
        clock.pass_(0.015)
        trial.report(loss=1.0)
    assert [window.steps for window in driver.windows] == [1] * 6


def test_time_between_steps_does_not_count(tmp_path: Path, quick: None, clock: Clock, dial: Dial) -> None:
    """The worker waits there for the driver's answer."""
    driver = Driver()
    driver.wait_for_setting = lambda seconds: clock.pass_(0.2)  # type: ignore[method-assign]
    trial, _ = begun(a_run(tmp_path), driver, dial)
    for _ in trial.steps():
        clock.pass_(STEP_SECONDS)
        trial.report(loss=1.0)
    assert [window.seconds for window in driver.windows] == pytest.approx([STEP_SECONDS] * 6)


def test_a_function_that_only_reports_is_measured_too(
    tmp_path: Path, quick: None, clock: Clock, dial: Dial
) -> None:
    driver = Driver({}, {"dial": 1})
    trial, _ = begun(a_run(tmp_path), driver, dial)
    seen = []
    for _ in range(4):
        seen.append(dial.at)
        clock.pass_(STEP_SECONDS)
        trial.report(loss=1.0)
    trial.finish(0.5)  # says no more of the last step
    assert seen == [0, 0, 1, 1]
    assert [window.step for window in driver.windows] == [1, 2, 3, 4]


def test_a_step_that_is_reported_twice_counts_once(tmp_path: Path, quick: None, clock: Clock, dial: Dial) -> None:
    driver = Driver()
    trial, _ = begun(a_run(tmp_path), driver, dial)
    for _ in trial.steps():
        clock.pass_(STEP_SECONDS)
        trial.report(loss=1.0)
        trial.report(loss=1.0)
    assert [window.step for window in driver.windows] == [1, 2, 3, 4, 5, 6]


def test_a_refused_value_is_reported_once_and_not_in_the_windows_setting(
    tmp_path: Path, quick: None, clock: Clock, dial: Dial
) -> None:
    driver = Driver({"dial": 2}, {"dial": 2}, {"dial": 1})
    trial, _ = begun(a_run(tmp_path), driver, dial)
    for _ in trial.steps():
        clock.pass_(STEP_SECONDS)
        trial.report(loss=1.0)
    messages = [event.message for event in driver.sent if isinstance(event, Warned)]
    assert messages == ["dial: cannot be 2: it goes to 1"]
    assert [window.setting for window in driver.windows[:4]] == [{}, {}, {}, {"dial": 1}]


def test_an_attempt_begins_with_its_setting(tmp_path: Path, quick: None, dial: Dial) -> None:
    trial, gauge = begun(a_run(tmp_path, system={"dial": 1}), Driver(), dial)
    assert dial.at == 1
    gauge.end()
    assert dial.at == 0
    assert trial.system == {}


def test_options_have_their_usual_value_at_first(tmp_path: Path, quick: None, clock: Clock, dial: Dial) -> None:
    driver = Driver({"loaders": 2})
    trial, _ = begun(a_run(tmp_path, options={"loaders": 0}), driver, dial)
    seen = []
    for _ in trial.steps():
        seen.append(trial.system["loaders"])
        clock.pass_(STEP_SECONDS)
        trial.report(loss=1.0)
    assert seen == [0, 2, 2, 2, 2, 2]
    assert Trial(a_run(tmp_path, options={"loaders": 0}), driver).system["loaders"] == 0, "also where it is off"


def test_a_trial_without_a_setting_is_not_measured(tmp_path: Path, dial: Dial) -> None:
    assert Instruments().gauge(a_run(tmp_path, system=None), Driver(), [dial]) is None


def test_short_attempts_read_no_counters_after_the_first(
    tmp_path: Path, quick: None, clock: Clock, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    instruments = Instruments()
    read, reads = instruments.counters.read, 0

    def count() -> dict[str, float]:
        nonlocal reads
        reads += 1
        return read()

    monkeypatch.setattr(instruments.counters, "read", count)
    reads_of_first = 0
    for number in range(3):
        trial, gauge = begun(a_run(tmp_path), Driver(), dial, instruments)
        for _ in trial.steps():
            clock.pass_(0.001)
            trial.report(loss=1.0)
        instruments.end_attempt(gauge)
        reads_of_first = reads if number == 0 else reads_of_first
        assert reads == reads_of_first


def test_a_long_attempt_after_a_short_one_is_measured(
    tmp_path: Path, quick: None, clock: Clock, dial: Dial
) -> None:
    """Alternating short and long attempts in one worker: every long one is measured from its second step on."""
    instruments = Instruments()
    for _ in range(2):
        driver = Driver()
        trial, gauge = begun(a_run(tmp_path, max_steps=1), driver, dial, instruments)
        for _ in trial.steps():
            clock.pass_(0.001)
            trial.report(loss=1.0)
        instruments.end_attempt(gauge)
        assert driver.windows == []
        driver = Driver({"dial": 1})
        trial, gauge = begun(a_run(tmp_path), driver, dial, instruments)
        for _ in trial.steps():
            clock.pass_(STEP_SECONDS)
            trial.report(loss=1.0)
        instruments.end_attempt(gauge)
        assert [window.step for window in driver.windows] == [2, 3, 4, 5, 6]
        assert not any(window.cold for window in driver.windows)
        assert [window.setting for window in driver.windows] == [{}, *[{"dial": 1}] * 4]


def test_the_window_of_a_delayed_attempt_is_cold_if_it_holds_the_first_step(
    tmp_path: Path, quick: None, clock: Clock, dial: Dial
) -> None:
    """Loading data may take longer than a window, before the first step begins."""
    instruments, driver = Instruments(), Driver()
    instruments.end_attempt(begun(a_run(tmp_path), Driver(), dial, instruments)[1])
    trial, _ = begun(a_run(tmp_path), driver, dial, instruments)
    clock.pass_(STEP_SECONDS)
    for _ in trial.steps():
        clock.pass_(STEP_SECONDS)
        trial.report(loss=1.0)
    assert [window.cold for window in driver.windows] == [True, *[False] * 5]


def test_an_attempt_that_begins_with_a_setting_is_measured_after_a_short_one(
    tmp_path: Path, quick: None, clock: Clock, dial: Dial
) -> None:
    instruments, driver = Instruments(), Driver()
    instruments.end_attempt(begun(a_run(tmp_path), Driver(), dial, instruments)[1])
    trial, _ = begun(a_run(tmp_path, system={"dial": 1}), driver, dial, instruments)
    for _ in trial.steps():
        clock.pass_(STEP_SECONDS)
        trial.report(loss=1.0)
    assert [window.step for window in driver.windows] == [1, 2, 3, 4, 5, 6]


def test_a_long_attempt_is_measured_less_and_less_often(tmp_path: Path, clock: Clock, dial: Dial) -> None:
    driver = Driver()
    trial, _ = begun(a_run(tmp_path, max_steps=36_000), driver, dial)
    for _ in trial.steps():
        clock.pass_(0.1)
        trial.report(loss=1.0)
    assert len(driver.windows) < 200, "an hour of steps of a tenth of a second"
    assert sum(window.steps for window in driver.windows) > 33_000


def test_a_problem_of_the_meter_is_reported_once(tmp_path: Path, quick: None, clock: Clock, dial: Dial) -> None:
    driver, instruments = Driver(), Instruments()
    instruments.energy.problem = "RAPL: it cannot be read"
    trial, gauge = begun(a_run(tmp_path), driver, dial, instruments)
    assert gauge.problems == ["energy: RAPL: it cannot be read"]
    for _ in trial.steps():
        clock.pass_(STEP_SECONDS)
        trial.report(loss=1.0)
    assert not [event for event in driver.sent if isinstance(event, Warned)]
    _, again = begun(a_run(tmp_path), driver, dial, instruments)
    assert again.problems == []


def test_steps_that_are_not_reported_count_with_their_time(
    tmp_path: Path, quick: None, clock: Clock, dial: Dial
) -> None:
    """One in three is."""
    driver = Driver({}, {"dial": 1})
    trial, _ = begun(a_run(tmp_path, max_steps=10), driver, dial)
    seen = []
    for step in trial.steps():
        seen.append(dial.at)
        clock.pass_(STEP_SECONDS)
        if step % 3 == 1:
            trial.report(loss=1.0)
    assert [(window.step, window.steps) for window in driver.windows] == [(1, 1), (4, 3), (7, 3), (10, 3)]
    assert all(window.seconds == pytest.approx(STEP_SECONDS * window.steps) for window in driver.windows)
    assert seen == [0] * 4 + [1] * 6


def test_a_knob_that_lasts_is_in_the_next_attempts_setting(tmp_path: Path, quick: None, clock: Clock) -> None:
    class LastingDial(Dial):
        lasts = True

    instruments, driver = Instruments(), Driver({"dial": 1})
    for _ in range(2):
        trial, gauge = begun(a_run(tmp_path, max_steps=2), driver, LastingDial(), instruments)
        for _ in trial.steps():
            clock.pass_(STEP_SECONDS)
            trial.report(loss=1.0)
        instruments.end_attempt(gauge)
    assert [window.setting for window in driver.windows] == [{}, {"dial": 1}, {"dial": 1}, {"dial": 1}]
    assert [window.cold for window in driver.windows] == [True, False, True, False]


def test_a_knob_that_cannot_be_restored_is_reported_at_the_end(tmp_path: Path, quick: None) -> None:
    class Stuck(Dial):
        def restore(self) -> None:
            sys.exit("it is stuck")

    instruments = Instruments()
    _, gauge = begun(a_run(tmp_path, system={"dial": 1}), Driver(), Stuck(), instruments)
    assert instruments.end_attempt(gauge) == ["dial: cannot be restored: SystemExit: it is stuck"]
    assert instruments.end_attempt(None) == []


def test_a_worker_does_not_import_numpy() -> None:
    """Training may need no such library."""
    code = "import thriftune.engines.worker, thriftune.system.gauge, sys; print('numpy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"
