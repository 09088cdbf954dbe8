"""ASHA: asynchronous successive halving (Li et al. 2020), and the rungs at which trials are compared.

`Rungs` has the values of the trials that have reached each rung. `RungRule`, the base of ASHA and Auto, judges
trials at them and promotes paused ones. `ASHA` decides how many trials go on from a rung.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Literal

from thriftune.common.checks import check_whole
from thriftune.errors import SettingError
from thriftune.state.history import History
from thriftune.state.trial_record import Report, State, TrialRecord
from thriftune.stopping.protocol import Verdict

FIRST_RUNG_DIVISOR = 25
"""Without `min_steps`, the first rung is at `max_steps` divided by this. Earlier values are mostly noise."""

_GO_ON = Verdict.GO_ON  # most reports need it, and Python 3.11 looks enum members up slowly

_step = attrgetter("step")


class RungRule(ABC):
    """A rule with rungs at steps `min_steps`, `min_steps` * `eta`, ...

    A subclass decides how many of the trials at a rung go on. `min_steps` None derives it from `max_steps`.

    Trials never wait for each other. A paused trial goes on once it is among the best, which may be because later
    ones turned out worse.
    """

    def __init__(self, name: str, min_steps: int | None, eta: int) -> None:
        if min_steps is not None:
            check_whole(f"{name}: min_steps", min_steps, 1)
        check_whole(f"{name}: eta", eta, 2)
        self.options: dict[str, Any] = {"min_steps": min_steps, "eta": eta}
        self._min_steps = min_steps
        self._eta = eta
        self._rungs: Rungs | None = None
        # By rung: (value, trial id) of the trials that are paused there or about to pause, best first.
        self._paused: list[list[tuple[float, int]]] = []

    @abstractmethod
    def places(self, rung: int, rungs: Rungs, trial: TrialRecord | None) -> int:
        """Return how many of the trials at the rung go on now; `trial` is the one being judged, if any."""

    @abstractmethod
    def verdict_without_place(self, trial: TrialRecord) -> Verdict:
        """Return PAUSE or STOP for a trial that does not go on."""

    def judge(self, trial: TrialRecord, history: History) -> Verdict:
        rungs = self._of(history, trial)
        rung = rungs.add_report(trial)
        if rung is None:
            return _GO_ON
        value = rungs.reached(trial.id)[rung]
        if rungs.count_better(value, rung) < self.places(rung, rungs, trial):
            return _GO_ON
        verdict = self.verdict_without_place(trial)
        if verdict is Verdict.PAUSE:
            self._add_paused(rung, value, trial.id)
        return verdict

    def promote(self, history: History, more: bool) -> int | None:
        if not history.counts[State.PAUSED]:
            return None
        rungs = self._of(history)
        for rung in reversed(range(len(self._paused))):
            paused = self._paused[rung]
            places = self.places(rung, rungs, None) if paused else 0
            i = 0
            while i < len(paused) and rungs.count_better(paused[i][0], rung) < places:
                trial = history.trials[paused[i][1]]
                if trial.state is State.PAUSED and len(rungs.reached(trial.id)) == rung + 1:
                    return trial.id
                if trial.state is State.RUNNING and trial.end_request == "pause":  # it has not stopped running yet
                    i += 1
                else:  # it was promoted, or failed
                    del paused[i]
        return None if more or history.running or history.waiting else self._leader(history)

    def _leader(self, history: History) -> int | None:
        """Return the paused trial that came furthest, if no trial has completed.

        Called when nothing else is left to run.
        """
        if history.counts[State.COMPLETED]:  # known results are not counted
            return None
        leaders = (
            trial_id
            for paused in reversed(self._paused)
            for _, trial_id in paused
            if history.trials[trial_id].state is State.PAUSED
        )
        return next(leaders, None)

    def _of(self, history: History, judged: TrialRecord | None = None) -> Rungs:
        if self._rungs is None or not self._rungs.covers(history):
            # A partial and not a method: a reference cycle would keep the history alive too long.
            first_step = self._min_steps or max(1, (history.max_steps or 0) // FIRST_RUNG_DIVISOR)
            step_of = partial(_rung_step, first_step, self._eta, history.max_steps)
            self._rungs, self._paused = Rungs(history, step_of, judged), []
            for trial in history.trials:
                is_paused = trial.state is State.PAUSED or trial.end_request == "pause"
                if is_paused and (reached := self._rungs.reached(trial.id)):
                    self._add_paused(len(reached) - 1, reached[-1], trial.id)
        return self._rungs

    def _add_paused(self, rung: int, value: float, trial_id: int) -> None:
        while len(self._paused) <= rung:
            self._paused.append([])
        insort(self._paused[rung], (value, trial_id))


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


def _rung_step(min_steps: int, eta: int, max_steps: int | None, rung: int) -> float:
    """Return the step of the rung; infinity above the last rung."""
    step = min_steps * eta**rung
    # No rung where less than eta times as many steps are left: a trial there runs to the end.
    return step if max_steps is None or step * eta <= max_steps else math.inf


class ASHA(RungRule):
    """Let the best 1 / `eta` of the trials that have reached a rung go on.

    The rungs are at steps `min_steps`, `min_steps` * `eta`, ...; `min_steps` None puts the first one at a
    twenty-fifth of `max_steps`.

    - `how="stop"`: stop a trial that is not among the best. This needs no checkpoints. All trials go on from a
      rung until `eta` have reached it.
    - `how="pause"`: pause it, and resume it from its checkpoint once it is among the best.
    """

    def __init__(
        self, *, min_steps: int | None = None, eta: int = 3, how: Literal["stop", "pause"] = "stop"
    ) -> None:
        super().__init__("asha", min_steps, eta)
        if how not in ("stop", "pause"):
            raise SettingError(f"asha: how {how!r} must be 'stop' or 'pause'")
        self.options["how"] = how
        self._how = how

    def places(self, rung: int, rungs: Rungs, trial: TrialRecord | None) -> int:  # noqa: ARG002
        reached = len(rungs.values[rung])
        return reached if reached < self._eta and self._how == "stop" else reached // self._eta

    def verdict_without_place(self, trial: TrialRecord) -> Verdict:  # noqa: ARG002
        return Verdict.STOP if self._how == "stop" else Verdict.PAUSE
