"""The default rule: ASHA that learns how far early values predict late ones."""

from __future__ import annotations

import math

from thriftune.state.events import KNOWN
from thriftune.state.history import History
from thriftune.state.trial_record import State, TrialRecord
from thriftune.stopping.asha import RungRule, Rungs
from thriftune.stopping.protocol import Verdict

MIN_WITNESSES = 4
"""Learn nothing until this many trials have finished.

The first this many trials run to the end. Until they have, other trials are only paused, if they save checkpoints,
because a stop cannot be undone.
"""

RANK_MARGIN = 2.0
"""The share of trials that go on from a rung is the average rank share of the best trials there, times this."""


class Auto(RungRule):
    """ASHA that learns how many trials go on from a rung.

    It looks up where the best quarter of the finished trials ranked at each rung. If they were well among the best
    1 / `eta`, that share goes on, as in ASHA. If they ranked lower, more trials go on; where curves cross, nearly
    all.

    A trial that saves checkpoints is paused and can go on later. Another trial is stopped.
    """

    def __init__(self, *, min_steps: int | None = None, eta: int = 2) -> None:
        super().__init__("auto", min_steps, eta)
        self._best: tuple[History, int, list[int]] | None = None  # history, its number of ended trials, the best

    def places(self, rung: int, rungs: Rungs, trial: TrialRecord | None) -> int:
        reached = len(rungs.values[rung])
        best = self._best_finished(rungs.history)
        is_witness = trial is not None and rungs.history.created_before(trial.id) < MIN_WITNESSES
        if trial is not None and (is_witness or (not best and not trial.resume_step)):
            return reached
        ranks = [
            rungs.count_better(trial_values[rung], rung)
            for i in best
            if len(trial_values := rungs.reached(i)) > rung
        ]
        share = RANK_MARGIN * sum(ranks) / (len(ranks) * reached) if ranks else 0.0
        return max(reached // self._eta, math.floor(min(1.0, share) * reached))

    def verdict_without_place(self, trial: TrialRecord) -> Verdict:
        return Verdict.PAUSE if trial.resume_step else Verdict.STOP

    def _best_finished(self, history: History) -> list[int]:
        """Return the ids of the best quarter of the finished trials; none while too few have finished."""
        if self._best is None or self._best[0] is not history or self._best[1] != len(history.ended):
            sign = -1.0 if history.maximize else 1.0
            # A known result has no reports at the rungs.
            ended = (trial for trial in history.ended if trial.state is State.COMPLETED)
            finished = [trial for trial in ended if trial.origin != KNOWN]
            finished.sort(key=lambda trial: (sign * (trial.value or 0.0), trial.id))
            best = finished[: len(finished) // 4] if len(finished) >= MIN_WITNESSES else []
            self._best = (history, len(history.ended), [trial.id for trial in best])
        return self._best[2]
