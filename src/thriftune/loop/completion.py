"""Tell whether a study is complete before its limits: by its target, its patience or convergence."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from thriftune.errors import NoBestTrial
from thriftune.state.events import SEARCHER
from thriftune.state.trial_record import State, TrialRecord

if TYPE_CHECKING:
    from thriftune.state.history import History
    from thriftune.state.spec import Spec

CONVERGED_SHARE = 0.01
"""A trial is worth its cost if its expected gain is this share of the distance from median to best value."""

CONVERGED_TRIALS = 5
"""A search has converged after this many ended trials in a row with too little expected gain."""


class Completion:
    """Tells the conductor whether a study is complete. Keeps caches only; everything follows from the history."""

    def __init__(self, spec: Spec, history: History) -> None:
        self._spec = spec
        self._history = history
        self._checked_best = False  # whether the best trial of the history was compared with the target
        self._reached_by: int | None = None
        self._seen: tuple[int, int] | None = None  # how many trials there were, and had ended, for _converged
        self._converged = False

    def reaches(self, trial: TrialRecord) -> bool:
        """Return whether the trial's value reaches the target and the trial meets all constraints."""
        target, value = self._spec.target_value, trial.value
        if target is None or value is None:
            return False
        return (value >= target if self._spec.maximize else value <= target) and self._history.eligible(trial)

    def take_in(self, trial: TrialRecord) -> None:
        """Record that the trial has reached the target."""
        self._reached_by = trial.id

    @property
    def reached(self) -> bool:
        """Whether a trial has reached the target."""
        if self._spec.target_value is None:
            return False
        if not self._checked_best:
            self._checked_best = True
            best = self._best()
            if best is not None and self.reaches(best):
                self._reached_by = best.id
        return self._reached_by is not None

    @property
    def by_whom(self) -> str:
        """The best trial that has reached the target, such as "trial 3"."""
        best = self._best()
        return f"trial {best.id if best is not None and self.reaches(best) else self._reached_by}"

    def _best(self) -> TrialRecord | None:
        try:
            best = self._history.best
        except NoBestTrial:
            return None
        return best if best.finished else None

    @property
    def why_no_more(self) -> str | None:
        """Why no further trial is made, although a limit allows it, as a sentence; None if there is no reason."""
        patience, streak = self._spec.patience, len(self._history.trials_since_best.trials)
        if patience is not None and streak >= patience:
            trials = "trial" if streak == 1 else f"{streak} trials"
            return f"no better value in the last {trials} (patience {patience})"
        if self._spec.stop_when_converged and self._is_converged():
            return "converged: the searcher expects no improvement worth another trial"
        return None

    def _is_converged(self) -> bool:
        seen = len(self._history.trials), len(self._history.ended)
        if seen != self._seen:
            self._seen, self._converged = seen, converged(self._history)
        return self._converged


def converged(history: History) -> bool:
    """Return whether the searcher expected too little gain from the last trials that it suggested.

    Running trials do not count, as their values may change what the searcher expects.
    """
    worth = CONVERGED_SHARE * spread(history)
    ended = 0
    for trial in reversed(history.trials):
        if trial.origin != SEARCHER:
            continue
        if trial.expected_gain is None or not trial.expected_gain < worth:
            break
        ended += trial.state.ended or trial.state is State.PAUSED
        if ended >= CONVERGED_TRIALS:
            return True
    return False


def spread(history: History) -> float:
    """Return the distance from the median to the best value of the finished trials; 0 without finished trials."""
    finished = (trial for trial in history.ended if trial.state is State.COMPLETED and history.eligible(trial))
    values = [trial.value for trial in finished if trial.value is not None]
    if not values:
        return 0.0
    return abs((max if history.maximize else min)(values) - median(values))
