"""The base of rules that let the best trials at each rung go on: ASHA and Auto."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import insort
from functools import partial
from typing import Any

from thriftune.common.checks import check_whole
from thriftune.state.history import History
from thriftune.state.trial_record import State, TrialRecord
from thriftune.stopping.protocol import Verdict
from thriftune.stopping.rungs import Rungs

FIRST_RUNG_DIVISOR = 25
"""Without `min_steps`, the first rung is at `max_steps` divided by this. Earlier values are mostly noise."""

_GO_ON = Verdict.GO_ON  # most reports need it, and Python 3.11 looks enum members up slowly


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


def _rung_step(min_steps: int, eta: int, max_steps: int | None, rung: int) -> float:
    """Return the step of the rung; infinity above the last rung."""
    step = min_steps * eta**rung
    # No rung where less than eta times as many steps are left: a trial there runs to the end.
    return step if max_steps is None or step * eta <= max_steps else math.inf
