"""Logs of measured studies, written by hand without training anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.cli import studies
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.system.knowledge import OTHERS, OWN

KIND = "a processor, 2 cores, 8 GiB"
KEPT: Mapping[str, Any] = {"memory": "kept"}
BOTH: Mapping[str, Any] = {"memory": "kept", "threads": 2}


class Story:
    """Builds a log. Trials run one after the other; a window begins where the last one ended."""

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
        """`setting`: the window's setting, if it is not the last one that was decided."""
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

    def decide(self, setting: Mapping[str, Any], why: str = "a probe", by: str = "") -> Story:
        """Decide because of the window that has just come, before its last step is reported."""
        change = ev.SetKnobs(
            self.now, self.trial, setting, why, by or (ev.PROBE if why.startswith("a probe") else OWN)
        )
        after = isinstance(self.entries[-1], ev.Reported) and self.entries[-1].at > self.now
        self.entries.insert(len(self.entries) - after, change)
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
    """A trial with steps of a second. It probes two settings, and uses them for eight windows."""
    each: Any = {"joules": joules, "meter": meter}
    story.begin().window(2.0, cold=True, minor_faults=9e4, idle=0.0, **each)
    story.window(1.0, minor_faults=5e4, idle=0.0, **each).decide(KEPT)
    story.window(memory, minor_faults=1e4, idle=0.0, **each).decide(BOTH)
    for number in range(8):
        story.window(0.9 * memory + 0.01 * (-1) ** number, minor_faults=1e4 + number, idle=0.0, **each)
        if number == 0:
            story.decide(BOTH, "28% less a step than with no knob (error 4%)")
    return story.end()


def like_others(story: Story) -> Story:
    """A trial that uses what other trials found, and has only its first window without knobs."""
    story.begin().window(2.0, cold=True, minor_faults=8e4, joules=7.0)
    story.decide(BOTH, "28% less a step than with no knob expected (error 3%)", OTHERS)
    for _ in range(4):
        story.window(0.36, minor_faults=1e4, joules=1.26)
    return story.end()
