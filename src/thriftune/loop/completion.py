"""Is a study done before its limits are reached? By its target, its patience, its searcher.

All of it follows from the log: `Streak` is part of the history, and `Completion` keeps only caches.
"""

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
"""A trial is worth its cost if it promises this share of the distance between the median value and the best."""

CONVERGED_TRIALS = 5
"""Trials in a row, all ended, of which the searcher must have expected no more."""


class Completion:
    """Decides whether a study has come to what it was for. Asked by the conductor."""

    def __init__(self, spec: Spec, history: History) -> None:
        self._spec = spec
        self._history = history
        self._looked = False  # whether trials of earlier drives have reached the target
        self._reached_by: int | None = None
        self._seen: tuple[int, int] | None = None  # trials and ended ones when _converged was computed
        self._converged = False

    # --- the target

    def reaches(self, trial: TrialRecord) -> bool:
        """Return whether the trial's value is as good as the target, and meets all constraints."""
        target, value = self._spec.target_value, trial.value
        if target is None or value is None:
            return False
        return (value >= target if self._spec.maximize else value <= target) and self._history.eligible(trial)

    def take_in(self, trial: TrialRecord) -> None:
        """Note that the trial has reached the target."""
        self._reached_by = trial.id

    @property
    def reached(self) -> bool:
        if self._spec.target_value is None:
            return False
        if not self._looked:
            self._looked = True
            best = self._best()
            if best is not None and self.reaches(best):
                self._reached_by = best.id
        return self._reached_by is not None

    @property
    def by_whom(self) -> str:
        """Return "trial 3", the best of those that have reached the target."""
        best = self._best()
        return f"trial {best.id if best is not None and self.reaches(best) else self._reached_by}"

    def _best(self) -> TrialRecord | None:
        try:
            best = self._history.best
        except NoBestTrial:
            return None
        return best if best.finished else None

    # --- whether further trials are worth their cost

    @property
    def why_no_more(self) -> str | None:
        """Return why no further trial shall be suggested, as a sentence; None if there is no such reason."""
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
    """Return whether the searcher expected next to nothing of the last trials that it suggested.

    Those that run do not count yet: their values may change what it expects.
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
    """Return how far the best value of the finished trials is from their median; 0 if there is none."""
    there = (trial for trial in history.ended if trial.state is State.COMPLETED and history.eligible(trial))
    values = [trial.value for trial in there if trial.value is not None]
    if not values:
        return 0.0
    return abs((max if history.maximize else min)(values) - median(values))
