"""End trials that have used up the time that each may take; their values count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord

GRACE_SHARE = 0.1
MIN_GRACE_SECONDS = 5.0
"""A trial whose time is up may take this share of its time, but at least these seconds, to end its step."""

UPLOAD_SHARE, MAX_UPLOAD_GRACE_SECONDS = 2.0, 120.0
"""A trial that ends may take this many times as long as its last upload, but at most these seconds, to upload its
last state: other trials that end at the same moment upload, too."""


def upload_grace_seconds(trial: TrialRecord) -> float:
    """Return how long a trial that ends may take to upload its last state; 0 if it has uploaded none."""
    last = trial.checkpoints[-1].upload_seconds if trial.checkpoints else 0.0
    return min(UPLOAD_SHARE * last, MAX_UPLOAD_GRACE_SECONDS)


@dataclass(frozen=True, slots=True)
class TrialTime:
    """How long each trial may run, over all its attempts."""

    limit_seconds: float

    def grace_seconds(self, trial: TrialRecord) -> float:
        """Return how long a trial may take to end after its time."""
        return max(MIN_GRACE_SECONDS, GRACE_SHARE * self.limit_seconds) + upload_grace_seconds(trial)

    def due(self, running: Iterable[TrialRecord]) -> float | None:
        """Return when the first of the running trials must be asked to end, or be killed; None if none runs."""
        return min(map(self._due, running), default=None)

    def enforced(self, running: Iterable[TrialRecord], now: float) -> Iterator[ev.Decision]:
        """Yield Stop for trials whose time is up, and Kill for those that did not end within the grace."""
        for trial in running:
            if now < self._due(trial):
                continue
            if _may_be_asked(trial):
                yield ev.Stop(now, trial.id, trial.attempts, f"its time of {self.limit_seconds:g} s", expired=True)
            else:
                grace = self.grace_seconds(trial)
                why = f"did not end within {grace:.3g} s after its time of {self.limit_seconds:g} s"
                yield ev.Kill(now, trial.id, trial.attempts, why)

    def given_up(self, history: History, now: float) -> Iterator[ev.Decision]:
        """Yield GiveUp for waiting trials that have used up their time and have no value."""
        for trial in map(history.trials.__getitem__, list(history.waiting)):
            used = trial.seconds - trial.seconds_before_retry
            if trial.attempts and used >= self.limit_seconds and not history.has_values(trial):
                metrics = " and ".join(repr(each.metric) for each in history.objectives)
                why = f"no value of {metrics} within its time of {self.limit_seconds:g} s (max_trial_time)"
                yield ev.GiveUp(now, trial.id, why, "max_trial_time")

    def _due(self, trial: TrialRecord) -> float:
        began = trial.started_at or 0.0  # a running trial has it
        at = began + self.limit_seconds - (trial.seconds - trial.seconds_before_retry)
        if _may_be_asked(trial):
            return at
        return max(at, trial.end_requested_at or at) + self.grace_seconds(trial)


def _may_be_asked(trial: TrialRecord) -> bool:
    """Return whether a trial can still be asked to end: it was not asked yet, or only to move."""
    return trial.end_request in (None, "move")
