"""Measure how an attempt uses its machine, and apply knobs between its steps.

One or more steps with the same setting form a usage window. A window is much longer than the time that reading the
counters takes. The worker sends each window to the driver, and the driver answers with the next setting.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from thriftune.common.clock import wall_time
from thriftune.state.events import UsageMeasured
from thriftune.system.counters import Counters, rates
from thriftune.system.energy import EnergyMeter
from thriftune.system.knobs import BUILT_IN, Knob, Panel
from thriftune.system.machine_signature import signature
from thriftune.training.run import Run

LEAST_SECONDS = 0.5
"""A window of several steps lasts at least this long."""

LEAST_STEP_SECONDS = 0.2
"""A window of one step lasts at least this long. Otherwise a trial of few steps would have only one window."""

LEAST_SHARE = 0.05
"""A window lasts at least this share of the time since its attempt began. A long attempt thus has fewer
windows."""

_MOST_WAIT_SHARE, _MOST_WAIT_SECONDS = 0.1, 5.0
"""The longest wait for the answer to a window: this share of a step's time, and at most this many seconds."""


class Instruments:
    """The counters, the energy meter and the knobs of a worker process.

    It must be created before the process starts other threads, so that the counters include these threads.
    """

    def __init__(self) -> None:
        self.counters = Counters()
        self.energy = EnergyMeter()
        self.usual_threads = _usual_threads()
        # Effects are relative to a trial without knobs, which depends on the usual number of threads.
        threads = "1 thread" if self.usual_threads == 1 else f"{self.usual_threads} threads"
        self.kind = f"{signature()}, {threads} a trial"
        self._panel: Panel | None = None
        self._began = 0.0  # when the last attempt began, by time.perf_counter()
        self._last_was_short = False  # the last attempt was too short for one window
        self._reported_problem: str | None = None  # the last problem of the meter that was reported

    def gauge(self, run: Run, settings: SettingSource, own: Sequence[Knob]) -> Gauge | None:
        """Return the gauge of an attempt that begins, or None if it is not measured.

        `own`: the user's knobs. They replace built-in knobs with the same name.

        After an attempt that was too short for a window, the next attempt is measured only from the time on when
        it has lasted as long as a window. Otherwise, reading the counters would take a large part of the time of
        trials that last a millisecond.
        """
        self._began = time.perf_counter()
        if run.system is None:
            return None
        if self._panel is None:
            knobs = {name: make() for name, make in BUILT_IN.items()} | {knob.name: knob for knob in own}
            self._panel = Panel(list(knobs.values()))
        return Gauge(run, self, self._panel, settings, delayed=self._last_was_short and not run.system)

    def new_problems(self) -> list[str]:
        """Return the problems of the energy meter that were not returned before."""
        problem = self.energy.problem
        if problem is None or problem == self._reported_problem:
            return []
        self._reported_problem = problem
        return [f"energy: {problem}"]

    def end_attempt(self, gauge: Gauge | None) -> list[str]:
        """Restore all knobs; return a sentence for each that could not be restored.

        If any could not be restored, this process must not run another attempt.
        """
        self._last_was_short = time.perf_counter() - self._began < LEAST_SECONDS
        return [] if gauge is None else gauge.end()


class SettingSource(Protocol):
    """Receives the settings that the driver sends."""

    def take_setting(self) -> Mapping[str, Any] | None:
        """Return the newest setting that was not taken yet, or None. Never waits."""

    def wait_for_setting(self, seconds: float) -> None:
        """Wait until a setting that was not taken has arrived, at most this long."""


class Gauge:
    """Measures one attempt.

    A window consists of whole steps. Steps that are not reported count, too.

    `delayed`: the first window begins with the first step that begins LEAST_SECONDS after the attempt.
    """

    def __init__(
        self,
        run: Run,
        instruments: Instruments,
        panel: Panel,
        settings: SettingSource,
        *,
        delayed: bool = False,
    ) -> None:
        self._run = run
        self._instruments = instruments
        self._panel = panel
        self._settings = settings
        self._wanted: Mapping[str, Any] = run.system or {}  # the last setting from the driver
        self._began = time.perf_counter()
        self._last_step = run.resume_step  # the last step that was reported
        # A step has begun and was not reported. Without steps(), the first step begins with the attempt.
        self._in_step = True
        self._loops = False  # the function loops over steps(), which marks where steps begin
        self._delayed = delayed  # the first window is delayed and was not opened yet
        self._cold = True  # the window contains the attempt's first step
        self._awaits_answer = False  # a window was sent, and next_step() has not waited for its answer yet
        self._seconds_per_step = 0.0  # average of the last window
        self._seconds = 0.0  # the length of this window, without the time between its steps
        self._opened_after = run.resume_step  # the last step before this window
        self._opened = self._resumed = self._began
        self._before: Mapping[str, float] = {}  # the counters when this window opened
        self.problems: list[str] = []
        if not delayed:
            self.problems = [*self._panel.change(self._wanted, begins=True), *instruments.new_problems()]
            self._open(run.resume_step)

    @property
    def setting(self) -> Mapping[str, Any]:
        return self._panel.setting

    def next_step(self, step: int) -> list[str]:
        """Apply the newest setting before a step begins.

        Returns a sentence for each knob that could not be applied.
        """
        if self._delayed:
            return self._open_late(step)
        if self._in_step and self._loops:  # the step before was not reported
            self._seconds += time.perf_counter() - self._resumed
        if self._awaits_answer:
            self._settings.wait_for_setting(min(_MOST_WAIT_SHARE * self._seconds_per_step, _MOST_WAIT_SECONDS))
            self._awaits_answer = False
        problems: list[str] = []
        setting = self._settings.take_setting()
        changes = setting is not None and setting != self._wanted
        if changes and setting is not None:
            self._wanted = setting
        window_begins = not (self._loops and self._seconds)
        if changes or window_begins:
            # The setting is applied again, because libraries may have been loaded since the last window.
            problems = [*self._panel.change(self._wanted), *self._instruments.new_problems()]
            self._open(step - 1)
        self._loops = self._in_step = True
        self._resumed = time.perf_counter()
        return problems

    def step_done(self, step: int) -> UsageMeasured | None:
        """Return the measured window if one ends with this step, else None."""
        now = time.perf_counter()
        if self._delayed or step <= self._last_step or not self._in_step:
            return None
        self._seconds += now - self._resumed
        self._last_step, self._in_step = step, False
        wall_seconds, steps = now - self._opened, max(1, step - self._opened_after)
        least = LEAST_STEP_SECONDS if steps == 1 else LEAST_SECONDS
        if self._seconds < max(least, LEAST_SHARE * (now - self._began)):
            return None
        threads = self._panel.setting.get("threads", self._instruments.usual_threads)
        joules = self._instruments.energy.take(float(threads))
        measured = UsageMeasured(
            at=wall_time(),
            trial=self._run.trial,
            attempt=self._run.attempt,
            step=step,
            steps=steps,
            seconds=self._seconds,
            setting=dict(self._panel.setting),
            cold=self._cold,
            counters=rates(self._before, self._instruments.counters.read(), wall_seconds),
            kind=self._instruments.kind,
            joules=joules * min(1.0, self._seconds / wall_seconds),  # only the joules within its steps
            meter=self._instruments.energy.source,
        )
        self._seconds_per_step = self._seconds / steps
        self._cold, self._awaits_answer, self._seconds = False, True, 0.0
        self._opened_after = step  # until the next step begins and opens a window
        return measured

    def end(self) -> list[str]:
        """Restore all knobs; return a sentence for each that could not be restored."""
        return self._panel.restore()

    def _open_late(self, step: int) -> list[str]:
        """Open the delayed first window if the attempt has lasted long enough.

        Returns a sentence for each knob that could not be applied.
        """
        if time.perf_counter() - self._began < LEAST_SECONDS:
            return []
        self._delayed = False
        self._cold = step == self._run.resume_step + 1
        self._loops = self._in_step = True
        problems = [*self._panel.change(self._wanted, begins=True), *self._instruments.new_problems()]
        self._open(step - 1)
        return problems

    def _open(self, after_step: int) -> None:
        """Open a window. `after_step`: the last step before it."""
        self._seconds = 0.0
        self._opened_after = after_step
        self._before = self._instruments.counters.read()
        self._instruments.energy.take(1.0)
        self._opened = self._resumed = time.perf_counter()


def _usual_threads() -> int:
    """Return the number of threads of linear algebra while no knob is applied.

    Workers start with OMP_NUM_THREADS set to their share of the cores.
    """
    threads = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(threads) if threads.isdecimal() and int(threads) else len(os.sched_getaffinity(0))
