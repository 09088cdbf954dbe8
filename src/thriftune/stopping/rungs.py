"""Who has come how far, and with what value there? The tables that rules with rungs go by."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from operator import attrgetter

from thriftune.state.history import History
from thriftune.state.trial_record import Report, TrialRecord

_step = attrgetter("step")


class Rungs:
    """A table a level: the values of the trials that have reached it. A cache of the reports of one history.

    A trial's value at a level is the first that it told at that step or later; lower is better here.
    """

    def __init__(self, history: History, level: Callable[[int], float], judged: TrialRecord | None = None) -> None:
        """`level(k)`: the step of rung k, rising; math.inf above the last. Of `judged`, the last report is left
        out: it is for take_in()."""
        self.history = history
        self._rewrites = history.rewrites
        self.values: list[list[float]] = []  # by rung, rising
        self._level = level
        self._reached: dict[int, list[float]] = {}  # by trial: its values, a rung each
        self._next: dict[int, float] = {}  # by trial: the step of the rung above these
        self._first = level(0)
        for trial in history.trials:
            self._read(trial.id, trial.reports[:-1] if trial is judged else trial.reports)

    def covers(self, history: History) -> bool:
        """Tell whether this cache is of that history, and no value in it has changed since."""
        return self.history is history and self._rewrites == history.rewrites

    def take_in(self, trial: TrialRecord) -> int | None:
        """Enters what the trial has newly reached; returns the highest such rung."""
        if trial.reports[-1].step < self._next.get(trial.id, self._first):  # as after most reports
            return None
        before = len(self.reached(trial.id))
        self._read(trial.id, trial.reports)
        now = len(self.reached(trial.id))
        return now - 1 if now > before else None

    def _read(self, trial_id: int, reports: Sequence[Report]) -> None:
        mine = self._reached.setdefault(trial_id, [])
        level, sign = self._level(len(mine)), -1.0 if self.history.maximize else 1.0
        for i in range(bisect_left(reports, level, key=_step), len(reports)):
            value = reports[i].value
            while value is not None and reports[i].step >= level:
                self._enter(mine, sign * value)
                level = self._level(len(mine))
        self._next[trial_id] = level

    def _enter(self, mine: list[float], value: float) -> None:
        if math.isnan(value):
            value = math.inf
        if len(mine) == len(self.values):
            self.values.append([])
        insort(self.values[len(mine)], value)
        mine.append(value)

    def reached(self, trial_id: int) -> list[float]:
        """Its value at each rung that it has reached."""
        return self._reached.get(trial_id, [])

    def better(self, value: float, rung: int) -> int:
        """How many on the rung are better than that."""
        return bisect_left(self.values[rung], value)
