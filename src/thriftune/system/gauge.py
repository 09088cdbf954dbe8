"""How does a running attempt use its machine? It is measured step by step, and its knobs are turned between steps.

Some steps make a window: long enough that looking at the counters costs nothing, and of one setting. What is
measured of it goes to the driver, which answers with the setting to go on with.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from thriftune.common.clock import wall_time
from thriftune.state.events import UsageMeasured
from thriftune.system.counters import Counters, rates
from thriftune.system.energy import Energy
from thriftune.system.knobs import BUILT_IN, Knob, Panel
from thriftune.system.known_work import signature
from thriftune.training.run import Run

LEAST_SECONDS, LEAST_STEP_SECONDS, LEAST_SHARE = 0.5, 0.2, 0.05
"""A window is at least so long, unless it is a single step of not much less: a trial of few steps would have but
one. And at least such a part of the attempt so far: a long one is not measured at every step for hours."""

_PATIENCE_SHARE, _PATIENCE_SECONDS = 0.1, 5.0
"""How long a step waits for what the driver says to the window before it, at most."""


class Instruments:
    """Of a worker process; made before it has other threads, so that these are counted, too."""

    def __init__(self, meter: Sequence[str] = ()) -> None:
        self.counters = Counters()
        self.energy = Energy(meter or None)
        self.usual_threads = _usual_threads()
        # What nothing turned means, and so what is compared with it, differs with the number of threads.
        threads = "1 thread" if self.usual_threads == 1 else f"{self.usual_threads} threads"
        self.kind = f"{signature(self.counters.kind)}, {threads} a trial"
        self._panel: Panel | None = None
        self._began = 0.0
        self._too_short = False  # the last attempt was, for a single window
        self._said: str | None = None  # of the meter's problems

    def gauge(self, run: Run, turns: Turns, own: Sequence[Knob]) -> Gauge | None:
        """`own`: a user's own knobs; of one name, they win. None: it is not worth it. Where thousands of trials
        take a millisecond each, none is measured."""
        self._began = time.perf_counter()
        if run.system is None or (self._too_short and not run.system):
            return None
        if self._panel is None:
            named = {name: make() for name, make in BUILT_IN.items()} | {knob.name: knob for knob in own}
            self._panel = Panel(list(named.values()))
        return Gauge(run, self, self._panel, turns)

    def news(self) -> list[str]:
        """What is wrong with the meter, each thing once."""
        problem = self.energy.problem
        if problem is None or problem == self._said:
            return []
        self._said = problem
        return [f"energy: {problem}"]

    def over(self, gauge: Gauge | None) -> list[str]:
        """The attempt is: everything is put back. Returns what could not be: this process is no good for
        another."""
        self._too_short = time.perf_counter() - self._began < LEAST_SECONDS
        return [] if gauge is None else gauge.end()


class Turns(Protocol):
    """How the driver says what setting to go on with."""

    def told_setting(self) -> Mapping[str, Any] | None:
        """The last one since it was asked, if there was one; does not wait."""

    def wait_for_setting(self, seconds: float) -> None:
        """Until there is one, but no longer than so."""


class Gauge:
    """Of one attempt. A window is of whole steps, whether each of them is reported or not."""

    def __init__(self, run: Run, instruments: Instruments, panel: Panel, turns: Turns) -> None:
        self._run = run
        self._instruments = instruments
        self._panel = panel
        self._turns = turns
        self._told: Mapping[str, Any] = run.system or {}
        self._began = time.perf_counter()
        self._last_step = run.resume_step  # of those that were reported
        self._in_step = True  # a training function that does not loop over steps() is in its first one
        self._looped = False  # steps() has said when the first step began
        self._cold = True  # the attempt's first step is in the window
        self._asked = False  # a window was sent, and its answer has not come
        self._seconds_a_step = self._seconds = 0.0  # of the last window; of this one, within its steps
        self._opened_after = run.resume_step
        self._opened = self._resumed = self._began
        self._before: Mapping[str, float] = {}
        self.problems = [*self._panel.turn(self._told, begins=True), *instruments.news()]
        self._open(run.resume_step)

    @property
    def setting(self) -> Mapping[str, Any]:
        return self._panel.setting

    def next_step(self, step: int) -> list[str]:
        """The step begins now. What the driver has said meanwhile comes into force; returns what could not."""
        if self._in_step and self._looped:  # the step before was not reported
            self._seconds += time.perf_counter() - self._resumed
        if self._asked:
            self._turns.wait_for_setting(min(_PATIENCE_SHARE * self._seconds_a_step, _PATIENCE_SECONDS))
            self._asked = False
        problems: list[str] = []
        told = self._turns.told_setting()
        turns = told is not None and told != self._told
        if turns and told is not None:
            self._told = told
        begins = not (self._looped and self._seconds)  # a window does, with this step
        if turns or begins:
            problems = [*self._panel.turn(self._told), *self._instruments.news()]  # libraries may have come since
            self._open(step - 1)
        self._looped = self._in_step = True
        self._resumed = time.perf_counter()
        return problems

    def step_done(self, step: int) -> UsageMeasured | None:
        """What was measured, where that makes a window."""
        now = time.perf_counter()
        if step <= self._last_step or not self._in_step:
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
            joules=joules * min(1.0, self._seconds / wall_seconds),  # those within its steps
            meter=self._instruments.energy.source,
        )
        self._seconds_a_step = self._seconds / steps
        self._cold, self._asked, self._seconds = False, True, 0.0
        self._opened_after = step  # until a step begins, which opens the next one
        return measured

    def end(self) -> list[str]:
        """Puts everything back; returns what could not be."""
        return self._panel.restore()

    def _open(self, after_step: int) -> None:
        """A window begins."""
        self._seconds = 0.0
        self._opened_after = after_step
        self._before = self._instruments.counters.read()
        self._instruments.energy.take(1.0)
        self._opened = self._resumed = time.perf_counter()


def _usual_threads() -> int:
    """Of linear algebra, with nothing turned: workers are started with as many as are their share."""
    said = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(said) if said.isdecimal() and int(said) else len(os.sched_getaffinity(0))
