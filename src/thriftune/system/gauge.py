"""How does a running attempt use its machine? It is measured step by step, and its knobs are turned between steps.

Some steps make a window: long enough that looking at the counters costs nothing, and of one setting. What is
measured of it goes to the driver, which answers with the setting to go on with.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from thriftune.events import Measured
from thriftune.system.counters import Counters, rates
from thriftune.system.energy import Energy
from thriftune.system.knobs import BUILT_IN, Knob, Panel
from thriftune.system.known_work import signature
from thriftune.trial import Run

LEAST_SECONDS, LEAST_SHARE = 0.5, 0.05
"""A window is at least so long, and at least such a part of the attempt so far: a long one is not measured at
every step for hours."""


class Instruments:
    """Of a worker process; made before it has other threads, so that these are counted, too."""

    def __init__(self, meter: Sequence[str] = ()) -> None:
        self.counters = Counters()
        self.energy = Energy(meter or None)
        self.kind = signature(self.counters.kind)
        self._panel: Panel | None = None
        self._began = 0.0
        self._too_short = False  # the last attempt was, for a single window
        self._said: str | None = None  # of the meter's problems
        self._warm = False  # the process has trained before

    def gauge(self, run: Run, turns: Turns, own: Sequence[Knob]) -> Gauge | None:
        """`own`: a user's own knobs; of one name, they win. None: it is not worth it. Where thousands of trials
        take a millisecond each, none is measured."""
        self._began = time.perf_counter()
        if run.system is None or (self._too_short and not run.system):
            return None
        if self._panel is None:
            named = {name: make() for name, make in BUILT_IN.items()} | {knob.name: knob for knob in own}
            self._panel = Panel(list(named.values()))
        return Gauge(run, self, self._panel, turns, warm=self._warm)

    def news(self) -> list[str]:
        """What is wrong with the meter, each thing once."""
        problem = self.energy.problem
        if problem is None or problem == self._said:
            return []
        self._said = problem
        return [f"energy: {problem}"]

    def over(self, gauge: Gauge | None) -> bool:
        """The attempt is: everything is put back. False: something could not be."""
        self._too_short = time.perf_counter() - self._began < LEAST_SECONDS
        if gauge is None:
            return True
        self._warm = True
        return not gauge.end()


class Turns(Protocol):
    """How the driver says what setting to go on with."""

    def told_setting(self) -> Mapping[str, Any] | None:
        """The last one since it was asked, if there was one; does not wait."""

    def wait_for_setting(self, seconds: float) -> None:
        """Until there is one, but no longer than so."""


class Gauge:
    """Of one attempt. `warm`: its process has trained before, so its first step takes no longer than others."""

    def __init__(
        self, run: Run, instruments: Instruments, panel: Panel, turns: Turns, *, warm: bool = False
    ) -> None:
        self._run = run
        self._instruments = instruments
        self._panel = panel
        self._turns = turns
        self._began = self._resumed = time.perf_counter()
        self._in_step = True  # a training function that does not loop over steps() is in its first one
        self._warm = warm
        self._cold = True  # what comes before the first step is in it, unless steps() says when that begins
        self._last_step = run.resume_step
        self._asked = False  # a window was sent, and its answer has not come
        self._seconds_a_step = self._seconds = 0.0  # of the last window; within steps of this one
        self._steps = 0  # of this one
        self._opened, self._before = self._began, instruments.counters.read()
        self.problems = [*self._panel.turn(run.system or {}, begins=True), *instruments.news()]
        instruments.energy.take(1.0)

    @property
    def setting(self) -> Mapping[str, Any]:
        return self._panel.setting

    def next_step(self) -> list[str]:
        """A step begins now. What the driver has said meanwhile comes into force; returns what could not."""
        problems: list[str] = []
        if self._asked:
            self._turns.wait_for_setting(0.1 * self._seconds_a_step)
            self._asked = False
        told = self._turns.told_setting()
        if told is not None and told != self._panel.setting:
            problems = self._panel.turn(told)
            self._open()
        elif not self._steps:
            if self._last_step == self._run.resume_step:
                self._cold = not self._warm
            problems = self._panel.turn(dict(self._panel.setting))  # libraries may have been loaded since
            problems += self._instruments.news()
            self._open()
        self._in_step = True
        self._resumed = time.perf_counter()
        return problems

    def step_done(self, step: int) -> Measured | None:
        """What was measured, where that makes a window."""
        now = time.perf_counter()
        if step <= self._last_step or not self._in_step:
            return None
        self._seconds += now - self._resumed
        self._steps += step - self._last_step
        self._last_step, self._in_step = step, False
        if self._seconds < max(LEAST_SECONDS, LEAST_SHARE * (now - self._began)):
            return None
        counters = self._instruments.counters.read()
        measured = Measured(
            at=time.time(),
            trial=self._run.trial,
            attempt=self._run.attempt,
            step=step,
            steps=self._steps,
            seconds=self._seconds,
            setting=dict(self._panel.setting),
            cold=self._cold,
            counters=rates(self._before, counters, now - self._opened),
            kind=self._instruments.kind,
            joules=self._instruments.energy.take(float(self._panel.setting.get("threads", 1))),
            meter=self._instruments.energy.source,
        )
        self._seconds_a_step = self._seconds / self._steps
        self._cold, self._asked = False, True
        self._seconds, self._steps = 0.0, 0
        return measured

    def end(self) -> list[str]:
        """Puts everything back."""
        return self._panel.restore()

    def _open(self) -> None:
        """A window begins."""
        self._seconds, self._steps = 0.0, 0
        self._opened = self._resumed = time.perf_counter()
        self._before = self._instruments.counters.read()
        self._instruments.energy.take(1.0)
