"""Do early values foretell late ones? The default rule learns it from the trials that finish, and stops by it."""

from __future__ import annotations

import math

from thriftune.state.events import KNOWN
from thriftune.state.history import History
from thriftune.state.trial_record import State, TrialRecord
from thriftune.stopping.ladder import Ladder
from thriftune.stopping.protocol import Verdict
from thriftune.stopping.rungs import Rungs

WITNESSES = 4
"""Trials that must have finished before anything is learned from them; the first ones do. Until then no others are
stopped, as that could not be undone; those that save checkpoints are set aside."""

MARGIN = 2.0
"""So many times as far down a rung as the best stood there on average, trials go on from it: all, if these stood
anywhere."""


class Auto(Ladder):
    """ASHA, but how many go on from a rung is learned.

    Of the trials that finished, the best quarter is looked at: how far down the list did they stand at each rung?
    Where they were well among the best 1 / `eta`, only so many go on, as with ASHA. Where they were further down,
    more do; where curves cross, nearly all.

    Trials that save checkpoints are set aside, and go on later if they should have; others are stopped.
    """

    def __init__(self, *, min_steps: int | None = None, eta: int = 2) -> None:
        super().__init__("auto", min_steps, eta)
        self._best: tuple[History, int, list[int]] | None = None  # of so many that have ended, the best finished

    def places(self, rung: int, rungs: Rungs, trial: TrialRecord | None) -> int:
        there = len(rungs.values[rung])
        best = self._best_finished(rungs.history)
        first = trial is not None and rungs.history.created_before(trial.id) < WITNESSES
        if trial is not None and (first or (not best and not trial.resume_step)):
            return there
        ranks = [rungs.better(mine[rung], rung) for i in best if len(mine := rungs.reached(i)) > rung]
        share = MARGIN * sum(ranks) / (len(ranks) * there) if ranks else 0.0
        return max(there // self._eta, math.floor(min(1.0, share) * there))

    def otherwise(self, trial: TrialRecord) -> Verdict:
        return Verdict.PAUSE if trial.resume_step else Verdict.STOP

    def _best_finished(self, history: History) -> list[int]:
        """The best quarter of the trials that finished; none, while these are too few."""
        if self._best is None or self._best[0] is not history or self._best[1] != len(history.ended):
            sign = -1.0 if history.maximize else 1.0
            # A known result tells nothing of the steps that led to it.
            ended = (trial for trial in history.ended if trial.state is State.COMPLETED)
            done = [trial for trial in ended if trial.origin != KNOWN]
            done.sort(key=lambda trial: (sign * (trial.value or 0.0), trial.id))
            found = done[: len(done) // 4] if len(done) >= WITNESSES else []
            self._best = (history, len(history.ended), [trial.id for trial in found])
        return self._best[2]
