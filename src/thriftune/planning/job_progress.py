"""The progress of a job: its current stage, and the start of each stage.

Both follow from the history alone. The trials of a stage begin together. A stage is over when enough of its trials
have reached its last step or have ended before it. What is known about a stage does not change after the next
stage has begun.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from thriftune.planning.job import JobSpec
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord


@dataclass(frozen=True, slots=True)
class StageSpan:
    """The steps of a stage, and the trials of its bracket.

    Only trials of the bracket can be in the stage. `first` and `last` are positions in the order in which the
    study creates trials; `last` is excluded.
    """

    first: int
    last: int
    begins: int  # the step at which its trials start
    ends: int  # the step at which they are done
    trials: int


def stage_spans(job: JobSpec) -> list[StageSpan]:
    """Return the span of each stage of a job."""
    spans: list[StageSpan] = []
    first = last = 0
    for stage, begins in zip(job.stages, job.begins, strict=True):
        if begins == 0:
            first, last = last, last + stage.trials
        spans.append(StageSpan(first, last, begins, begins + stage.steps, stage.trials))
    return spans


class _StageEnd(NamedTuple):
    """The end of a stage for one trial."""

    at: float
    reached_end: bool  # the trial is at the stage's last step, and may be in the next stage


class JobProgress:
    """The progress of a job: a cache of facts that follow from the history."""

    def __init__(self, job: JobSpec) -> None:
        self._spans = stage_spans(job)
        self._history: History | None = None
        self._starts: list[float] = []  # of each stage that has begun, and the end of the last stage if it is over
        self._trials: list[int] = []  # the number of trials of each stage that has begun
        self._seen = (-1, -1)  # the numbers of past attempts and of trials of the history at the last update
        self._begin_stage(0)

    def _begin_stage(self, first: int) -> None:
        self._next = first  # position of the next trial to look at
        self._open: list[int] = []  # trials that have not ended the stage
        self._done: list[_StageEnd] = []  # one for each trial that has ended the stage

    def stage_starts(self, history: History) -> list[float]:
        """Return the start of each stage that has begun.

        If the last stage is over, its end is the last element.
        """
        if self._history is not history:
            assert history.started_at is not None, "the driver must record its start before it calls this"
            self._history, self._starts, self._trials = history, [history.started_at], [self._spans[0].trials]
            self._seen = -1, -1
            self._begin_stage(0)
        if self._seen == (history.past_attempt_count, len(history.trials)):
            return self._starts
        self._seen = history.past_attempt_count, len(history.trials)
        while len(self._starts) <= len(self._spans):
            needed = self._trials[-1]
            self._find_done_trials(history)
            if len(self._done) < needed:
                break
            ends = sorted(self._done, key=lambda end: end.at)[:needed]
            if len(self._starts) < len(self._spans):
                next_span = self._spans[len(self._starts)]
                ready = sum(end.reached_end for end in ends) if next_span.begins else next_span.trials
                self._trials.append(min(next_span.trials, ready))
                self._begin_stage(next_span.first)
            self._starts.append(max([self._starts[-1], *(end.at for end in ends)]))
        return self._starts

    def stage_trials(self, history: History) -> list[int]:
        """Return the number of trials of each stage that has begun.

        Only trials that reached the stage count.
        """
        self.stage_starts(history)
        return self._trials

    def trials_left(self, history: History) -> int:
        """Return how many trials have yet to end the current stage.

        The stage must not be over.
        """
        return self.stage_trials(history)[-1] - len(self._done)

    def _find_done_trials(self, history: History) -> None:
        """Move trials that have ended the current stage from `_open` to `_done`."""
        span = self._spans[len(self._starts) - 1]
        last = min(span.last, len(history.created_ids))
        still_open = []
        for trial_id in (*self._open, *history.created_ids[self._next : last]):
            end = _stage_end(history.trials[trial_id], span)
            if end is None:
                still_open.append(trial_id)
            else:
                self._done.append(end)
        self._open, self._next = still_open, max(self._next, last)


def _stage_end(trial: TrialRecord, span: StageSpan) -> _StageEnd | None:
    """Return the end of this stage for the trial.

    Returns None if the trial never reached the stage or has not ended it.
    """
    if span.begins and _reached_at(trial, span.begins) is None:
        return None
    at = _reached_at(trial, span.ends)
    if at is not None:
        return _StageEnd(at, reached_end=True)
    return None if trial.ended_at is None else _StageEnd(trial.ended_at, reached_end=False)


def _reached_at(trial: TrialRecord, step: int) -> float | None:
    """Return the end of the first attempt that reached this step; None if none has."""
    if trial.step < step:
        return None
    return next((attempt.ended_at for attempt in trial.past_attempts if attempt.last_step >= step), None)
