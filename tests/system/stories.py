"""Studies of which something was measured: their logs, written by hand, without training anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.cli import studies
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.system.knowledge import KNOWN, OWN

KIND = "a processor, 2 cores, 8 GiB, software counters"
KEPT: Mapping[str, Any] = {"memory": "kept"}
BOTH: Mapping[str, Any] = {"memory": "kept", "threads": 2}


class Story:
    """A log in the making. Each trial is alone, one after the other; a window begins where the last one ended."""

    def __init__(self) -> None:
        self.now = 100.0
        self.entries: list[ev.Event] = [
            ev.DriverStarted(self.now, 77, "there"),
            ev.MachineReady(self.now, ev.THIS_MACHINE, "AWS c7i.large", 2, 0.36),
        ]
        self.trial, self.attempt, self.step, self.reports = -1, 1, 0, 0
        self.setting: Mapping[str, Any] = {}

    def begin(self) -> Story:
        """A new trial."""
        self.trial, self.attempt, self.step, self.setting = self.trial + 1, 0, 0, {}
        self.entries.append(ev.Create(self.now, self.trial, {"lr": 0.1, "act": "relu"}))
        return self.place()

    def place(self, resume_step: int = 0) -> Story:
        """A new attempt."""
        self.attempt, self.step, self.reports = self.attempt + 1, resume_step, 0
        self.entries.append(ev.Place(self.now, self.trial, self.attempt, ev.THIS_MACHINE, resume_step))
        return self

    def window(
        self,
        seconds: float,
        *,
        steps: int = 1,
        setting: Mapping[str, Any] | None = None,
        cold: bool = False,
        kind: str = KIND,
        joules: float = 0.0,
        meter: str = "estimate",
        **counters: float,
    ) -> Story:
        """`setting`: what it stood at, if not what it was last turned to."""
        self.now += seconds
        self.step += steps
        self.reports += 1
        here = self.setting if setting is None else setting
        about = self.now, self.trial, self.attempt
        self.entries.append(
            ev.UsageMeasured(*about, self.step, steps, seconds, here, cold, counters, kind, joules, meter)
        )
        self.entries.append(
            ev.Reported(
                self.now + 1e-3, self.trial, self.attempt, self.reports, self.step, {"loss": 1.0}, saved=True
            )
        )
        return self

    def turn(self, setting: Mapping[str, Any], why: str = "looks at it", by: str = "") -> Story:
        """Because of the window that has just come, so that it is decided before the report."""
        turn = ev.SetKnobs(
            self.now, self.trial, setting, why, by or (ev.PROBE if why.startswith("looks") else OWN)
        )
        after = isinstance(self.entries[-1], ev.Reported) and self.entries[-1].at > self.now
        self.entries.insert(len(self.entries) - after, turn)
        self.setting = setting
        return self

    def idle(self, seconds: float) -> Story:
        self.now += seconds
        return self

    def lose(self) -> Story:
        self.now += 0.01
        self.entries.append(ev.Lost(self.now, self.trial, self.attempt, "gone"))
        return self

    def end(self) -> Story:
        self.now += 0.01
        self.entries.append(ev.Ended(self.now, self.trial, self.attempt, 1.0))
        return self

    def finish(self) -> list[ev.Event]:
        return [*self.entries, ev.Finish(self.now, "all done"), ev.DriverStopped(self.now)]

    def history(self) -> History:
        history = studies.fold(self.entries, studies.spec(max_steps=1000))
        history.validate()
        return history


def tuned(story: Story, *, memory: float = 0.8, joules: float = 3.5, meter: str = "estimate") -> Story:
    """A trial of a second a step that looks at two settings, finds both good, and goes on with them for eight."""
    each: Any = {"joules": joules, "meter": meter}
    story.begin().window(2.0, cold=True, minor_faults=9e4, idle=0.0, **each)
    story.window(1.0, minor_faults=5e4, idle=0.0, **each).turn(KEPT)
    story.window(memory, minor_faults=1e4, idle=0.0, **each).turn(BOTH)
    for number in range(8):
        story.window(0.9 * memory + 0.01 * (-1) ** number, minor_faults=1e4 + number, idle=0.0, **each)
        if number == 0:
            story.turn(BOTH, "28% less a step than with nothing turned (error 4%)")
    return story.end()


def known(story: Story) -> Story:
    """One that is like known work, and has no window with nothing turned but its first."""
    story.begin().window(2.0, cold=True, minor_faults=8e4, joules=7.0)
    story.turn(BOTH, "like known work (distance 0.3 of 1.1): 28% less a step (error 3%)", KNOWN)
    for _ in range(4):
        story.window(0.36, minor_faults=1e4, joules=1.26)
    return story.end()
