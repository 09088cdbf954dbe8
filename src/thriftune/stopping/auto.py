"""Do early values foretell late ones? The default rule learns it from the trials that finish, and stops by it."""

from __future__ import annotations

import math

from thriftune.history import History
from thriftune.stopping import Verdict
from thriftune.stopping.ladder import Ladder
from thriftune.stopping.rungs import Rungs
from thriftune.trial import State, TrialRecord

WITNESSES = 4
"""Trials that must have finished before anything is stopped for good. The first ones do, and some later ones
(whose number is a power of two), so that the rule goes on to see what it would else stop."""


class Auto(Ladder):
    """ASHA, but how many go on from a rung is learned.

    Of the trials that finished, the best quarter is looked at: how far down the list was the worst placed of them
    at each rung? So many go on, and a margin for that these are few; at least 1 / `eta` of all. Where early values
    foretell late ones that is as greedy as ASHA; where curves cross, hardly anything is stopped.

    Until there is something to go by, trials that save checkpoints are set aside as ASHA would, to go on later if
    they should have; others run on.
    """

    def __init__(self, *, min_steps: int = 1, eta: int = 3) -> None:
        super().__init__("auto", min_steps, eta)
        self._best: tuple[History, int, list[int]] | None = None  # of so many that have ended, the best finished

    def places(self, rung: int, rungs: Rungs, trial: TrialRecord | None) -> int:
        there = len(rungs.values[rung])
        if trial is not None and _witness(trial.id):
            return there
        best = self._best_finished(rungs.history)
        if not best:  # nothing is known yet
            may_wait = trial is None or bool(trial.resume_step)
            return there // self._eta if may_wait else there
        ranks = [rungs.better(mine[rung], rung) for i in best if len(mine := rungs.reached(i)) > rung]
        share = (max(ranks, default=there) + 1) / there
        share += (1.0 - share) / (len(best) + 1)
        return max(there // self._eta, math.floor(share * there))

    def otherwise(self, trial: TrialRecord) -> Verdict:
        return Verdict.PAUSE if trial.resume_step else Verdict.STOP

    def _best_finished(self, history: History) -> list[int]:
        """The best quarter of the trials that finished, at least two; none, while these are too few."""
        if self._best is None or self._best[0] is not history or self._best[1] != len(history.ended):
            sign = -1.0 if history.maximize else 1.0
            done = [trial for trial in history.ended if trial.state is State.COMPLETED]
            done.sort(key=lambda trial: (sign * (trial.value or 0.0), trial.id))
            found = done[: max(2, len(done) // 4)] if len(done) >= WITNESSES else []
            self._best = (history, len(history.ended), [trial.id for trial in found])
        return self._best[2]


def _witness(trial_id: int) -> bool:
    return trial_id < WITNESSES or trial_id & (trial_id - 1) == 0
