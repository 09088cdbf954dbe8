"""Count the trials that have ended since the best value last improved.

A study's patience limits this number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from thriftune.space.objectives import Objective
from thriftune.state.trial_record import State, TrialRecord


@dataclass
class TrialsSinceBest:
    """The trials that have ended since the best value last improved.

    It has no trials if the study has several objectives.
    """

    objectives: Sequence[Objective]
    best: float | None = None  # the best value of a finished, eligible trial; None if no trial has one
    trials: dict[int, None] = field(
        default_factory=dict
    )  # ids of trials that have ended since, except failed ones

    def add(self, trial: TrialRecord, eligible: bool) -> None:
        """Add a trial whose attempt has just ended.

        A trial that a stopping rule has stopped or paused counts. A trial that a limit of the study has stopped
        does not count.

        `eligible`: the trial may be the best one.
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
