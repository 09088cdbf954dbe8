"""The values of trials at each rung, as the rules with rungs compare them."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from operator import attrgetter

from thriftune.state.history import History
from thriftune.state.trial_record import Report, TrialRecord

_step = attrgetter("step")


class Rungs:
    """The values of the trials that have reached each rung. A cache of the reports of one history.

    A trial's value at a rung is the first that it reported at that step or later. Lower is better here.
    """

    def __init__(
        self, history: History, step_of: Callable[[int], float], judged: TrialRecord | None = None
    ) -> None:
        """Read the history, except the last report of `judged`, which is for add_report().

        `step_of(k)`: the step of rung k, ascending; math.inf above the last rung.
        """
        self.history = history
        self._rewrites = history.rewritten_values
        self.values: list[list[float]] = []  # by rung: the values of the trials there, ascending
        self._step_of = step_of
        self._reached: dict[int, list[float]] = {}  # by trial: its value at each rung it has reached
        self._next: dict[int, float] = {}  # by trial: the step of the next rung
        self._first = step_of(0)
        for trial in history.trials:
            self._read(trial.id, trial.reports[:-1] if trial is judged else trial.reports)

    def covers(self, history: History) -> bool:
        """Return whether this cache is of that history, and no value in it has changed since."""
        return self.history is history and self._rewrites == history.rewritten_values

    def add_report(self, trial: TrialRecord) -> int | None:
        """Read the trial's last reports; return the highest rung newly reached, if any."""
        if trial.reports[-1].step < self._next.get(trial.id, self._first):  # most reports reach no rung
            return None
        before = len(self.reached(trial.id))
        self._read(trial.id, trial.reports)
        now = len(self.reached(trial.id))
        return now - 1 if now > before else None

    def _read(self, trial_id: int, reports: Sequence[Report]) -> None:
        values = self._reached.setdefault(trial_id, [])
        next_step, sign = self._step_of(len(values)), -1.0 if self.history.maximize else 1.0
        for i in range(bisect_left(reports, next_step, key=_step), len(reports)):
            value = reports[i].value
            while value is not None and reports[i].step >= next_step:
                self._add_value(values, sign * value)
                next_step = self._step_of(len(values))
        self._next[trial_id] = next_step

    def _add_value(self, trial_values: list[float], value: float) -> None:
        if math.isnan(value):
            value = math.inf
        if len(trial_values) == len(self.values):
            self.values.append([])
        insort(self.values[len(trial_values)], value)
        trial_values.append(value)

    def reached(self, trial_id: int) -> list[float]:
        """Return the trial's value at each rung that it has reached."""
        return self._reached.get(trial_id, [])

    def count_better(self, value: float, rung: int) -> int:
        """Return how many values at the rung are better than this one."""
        return bisect_left(self.values[rung], value)
