"""How many trials have ended since the best value last improved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from thriftune.space.objectives import Objective
from thriftune.state.trial_record import State, TrialRecord


@dataclass
class TrialsSinceBest:
    """Counts the trials that have ended since the best value last improved. For a single objective only."""

    objectives: Sequence[Objective]
    best: float | None = None  # of the finished trials that may be the best; None: there is none yet
    trials: dict[int, None] = field(
        default_factory=dict
    )  # ids of those that have ended since, failed ones left out

    def take_in(self, trial: TrialRecord, eligible: bool) -> None:
        """Count a trial whose attempt is over. `eligible`: it may be the best.

        Trials that a rule has stopped or set aside count, too; those that a limit has stopped do not.
        """
        if len(self.objectives) > 1:
            return
        value, maximize = trial.value, self.objectives[0].maximize
        if trial.state is State.COMPLETED and eligible and value is not None:
            if self.best is None or (value > self.best if maximize else value < self.best):
                self.best = value
                self.trials.clear()
                return
        elif trial.state is State.STOPPED and not (trial.end_reason or "").startswith("by "):
            return
        if self.best is not None and trial.state in (State.COMPLETED, State.STOPPED, State.PAUSED):
            self.trials[trial.id] = None
