"""Is it among the best that have come to its rung so far? ASHA (Li et al. 2020), halving without waiting."""

from __future__ import annotations

import math
from bisect import insort
from typing import Literal

from thriftune.errors import SettingError
from thriftune.history import History
from thriftune.stopping import Verdict
from thriftune.stopping.checks import check_whole
from thriftune.stopping.rungs import Rungs
from thriftune.trial import State, TrialRecord


class ASHA:
    """At steps `min_steps`, `min_steps` * `eta`, ... only the best 1 / `eta` of the trials there so far go on.

    - `how="stop"`: a trial that is not among them is stopped, at once; it needs no checkpoints.
    - `how="pause"`: every trial is set aside at each of these steps, and goes on from its checkpoint when it is
      found to be among the best, which may be when others have turned out worse.
    """

    def __init__(self, *, min_steps: int = 1, eta: int = 3, how: Literal["stop", "pause"] = "stop") -> None:
        check_whole("asha: min_steps", min_steps, 1)
        check_whole("asha: eta", eta, 2)
        if how not in ("stop", "pause"):
            raise SettingError(f"asha: how {how!r} must be 'stop' or 'pause'")
        self.options = {"min_steps": min_steps, "eta": eta, "how": how}
        self._min_steps = min_steps
        self._eta = eta
        self._how = how
        self._rungs: Rungs | None = None
        self._aside: list[list[tuple[float, int]]] = []  # by rung: set aside there or about to be; the best first

    def judge(self, trial: TrialRecord, history: History) -> Verdict:
        rungs = self._of(history, trial)
        rung = rungs.take_in(trial)
        if rung is None:
            return Verdict.GO_ON
        value = rungs.reached(trial.id)[rung]
        if self._how == "pause":
            self._set_aside(rung, value, trial.id)
            return Verdict.PAUSE
        there = len(rungs.values[rung])
        if there < self._eta:  # too few to tell
            return Verdict.GO_ON
        return Verdict.GO_ON if rungs.better(value, rung) < there // self._eta else Verdict.STOP

    def promote(self, history: History, more: bool) -> int | None:
        if self._how == "stop":
            return None
        rungs = self._of(history)
        for rung in reversed(range(len(self._aside))):
            aside, places = self._aside[rung], len(rungs.values[rung]) // self._eta
            i = 0
            while i < len(aside) and rungs.better(aside[i][0], rung) < places:
                trial = history.trials[aside[i][1]]
                if trial.state is State.PAUSED and len(rungs.reached(trial.id)) == rung + 1:
                    return trial.id
                if trial.state is State.RUNNING and trial.asked == "pause":  # it will be in a moment
                    i += 1
                else:  # it has gone on, or failed
                    del aside[i]
        return None if more or history.running or history.waiting else self._leader(history)

    def _leader(self, history: History) -> int | None:
        """When nothing else is left to do, and none has come to the end, the one that came furthest shall."""
        if history.counts[State.COMPLETED]:
            return None
        leaders = (
            trial_id
            for aside in reversed(self._aside)
            for _, trial_id in aside
            if history.trials[trial_id].state is State.PAUSED
        )
        return next(leaders, None)

    def _of(self, history: History, judged: TrialRecord | None = None) -> Rungs:
        if self._rungs is None or self._rungs.history is not history:
            self._rungs, self._aside = Rungs(history, lambda k: self._level(k, history.max_steps), judged), []
            for trial in history.trials:
                if self._how == "pause" and (reached := self._rungs.reached(trial.id)):
                    self._set_aside(len(reached) - 1, reached[-1], trial.id)
        return self._rungs

    def _level(self, rung: int, max_steps: int | None) -> float:
        step = self._min_steps * self._eta**rung
        # Above the last rung there is less than eta times as much left to do, which is done in one go.
        return step if max_steps is None or step * self._eta <= max_steps else math.inf

    def _set_aside(self, rung: int, value: float, trial_id: int) -> None:
        while len(self._aside) <= rung:
            self._aside.append([])
        insort(self._aside[rung], (value, trial_id))
