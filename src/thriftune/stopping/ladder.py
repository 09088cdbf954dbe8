"""Who goes on from its rung, and who is set aside or stopped? What ASHA and its kin share."""

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

FIRST_PART = 25
"""Of a trial's steps: where the first rung is, unless that is said. What comes earlier is mostly noise."""

_GO_ON = Verdict.GO_ON  # after most reports; Python 3.11 is slow to look a member up


class Ladder(ABC):
    """The rungs are at steps `min_steps`, `min_steps` * `eta`, ... Each has places for the best that have come
    there so far; how many is up to the rule. Where `min_steps` is None, that is a part of `max_steps`.

    Trials never wait for each other. Who is set aside goes on when it is found to be among the best, which may be
    when others have turned out worse.
    """

    def __init__(self, name: str, min_steps: int | None, eta: int) -> None:
        if min_steps is not None:
            check_whole(f"{name}: min_steps", min_steps, 1)
        check_whole(f"{name}: eta", eta, 2)
        self.options: dict[str, Any] = {"min_steps": min_steps, "eta": eta}
        self._min_steps = min_steps
        self._eta = eta
        self._rungs: Rungs | None = None
        self._aside: list[list[tuple[float, int]]] = []  # by rung: set aside there or about to be; the best first

    @abstractmethod
    def places(self, rung: int, rungs: Rungs, trial: TrialRecord | None) -> int:
        """How many of those on the rung go on, as things are; `trial` is the one that is judged."""

    @abstractmethod
    def otherwise(self, trial: TrialRecord) -> Verdict:
        """On a trial that gets no place: PAUSE or STOP."""

    def judge(self, trial: TrialRecord, history: History) -> Verdict:
        rungs = self._of(history, trial)
        rung = rungs.take_in(trial)
        if rung is None:
            return _GO_ON
        value = rungs.reached(trial.id)[rung]
        if rungs.better(value, rung) < self.places(rung, rungs, trial):
            return _GO_ON
        verdict = self.otherwise(trial)
        if verdict is Verdict.PAUSE:
            self._set_aside(rung, value, trial.id)
        return verdict

    def promote(self, history: History, more: bool) -> int | None:
        if not history.counts[State.PAUSED]:
            return None
        rungs = self._of(history)
        for rung in reversed(range(len(self._aside))):
            aside = self._aside[rung]
            places = self.places(rung, rungs, None) if aside else 0
            i = 0
            while i < len(aside) and rungs.better(aside[i][0], rung) < places:
                trial = history.trials[aside[i][1]]
                if trial.state is State.PAUSED and len(rungs.reached(trial.id)) == rung + 1:
                    return trial.id
                if trial.state is State.RUNNING and trial.end_request == "pause":  # it will be in a moment
                    i += 1
                else:  # it has gone on, or failed
                    del aside[i]
        return None if more or history.running or history.waiting else self._leader(history)

    def _leader(self, history: History) -> int | None:
        """When nothing else is left to do, and none has come to the end, the one that came furthest shall."""
        if history.counts[State.COMPLETED]:  # known results are not among them
            return None
        leaders = (
            trial_id
            for aside in reversed(self._aside)
            for _, trial_id in aside
            if history.trials[trial_id].state is State.PAUSED
        )
        return next(leaders, None)

    def _of(self, history: History, judged: TrialRecord | None = None) -> Rungs:
        if self._rungs is None or not self._rungs.covers(history):
            # Not a method: a circle of references would keep a history for longer than it is needed.
            first = self._min_steps or max(1, (history.max_steps or 0) // FIRST_PART)
            level = partial(_level, first, self._eta, history.max_steps)
            self._rungs, self._aside = Rungs(history, level, judged), []
            for trial in history.trials:
                set_aside = trial.state is State.PAUSED or trial.end_request == "pause"
                if set_aside and (reached := self._rungs.reached(trial.id)):
                    self._set_aside(len(reached) - 1, reached[-1], trial.id)
        return self._rungs

    def _set_aside(self, rung: int, value: float, trial_id: int) -> None:
        while len(self._aside) <= rung:
            self._aside.append([])
        insort(self._aside[rung], (value, trial_id))


def _level(min_steps: int, eta: int, max_steps: int | None, rung: int) -> float:
    """The step of the rung."""
    step = min_steps * eta**rung
    # Above the last rung there is less than eta times as much left to do, which is done in one go.
    return step if max_steps is None or step * eta <= max_steps else math.inf
