"""Which stage is a job in, and since when? It follows from the history alone.

A stage's trials begin together, and it is over when all of them have come to its end, or to their own. What is
told of a stage does not change any more once the next one has begun.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from thriftune.planning.job import JobSpec
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord


@dataclass(frozen=True, slots=True)
class StageSpan:
    """A stage, from step to step, and which trials may be in it: those of its bracket.

    `first`, `last`: by their place among the trials that the study makes.
    """

    first: int
    last: int
    begins: int
    ends: int
    trials: int


def stage_spans(job: JobSpec) -> list[StageSpan]:
    found: list[StageSpan] = []
    first = last = 0
    for stage, begins in zip(job.stages, job.begins, strict=True):
        if begins == 0:
            first, last = last, last + stage.trials
        found.append(StageSpan(first, last, begins, begins + stage.steps, stage.trials))
    return found


class _Through(NamedTuple):
    """A trial that is through with a stage: since when, and whether it may be in the next."""

    at: float
    came: bool


class JobProgress:
    """Where a job is. What it keeps is a cache."""

    def __init__(self, job: JobSpec) -> None:
        self._turns = stage_spans(job)
        self._of: History | None = None
        self._began: list[float] = []
        self._trials: list[int] = []  # by stage that has begun
        self._seen = (-1, -1)  # how much of the history is in
        self._enter(0)

    def _enter(self, first: int) -> None:
        """A stage, of which nothing is known yet."""
        self._next = first  # the place of the next trial to look at
        self._open: list[int] = []  # trials that are not through with it
        self._through: list[_Through] = []

    def began(self, history: History) -> list[float]:
        """When each stage began that has; and when the last one was over, if it is."""
        if self._of is not history:
            assert history.started_at is not None, "who asks is a driver"
            self._of, self._began, self._trials = history, [history.started_at], [self._turns[0].trials]
            self._seen = -1, -1
            self._enter(0)
        if self._seen == (history.past_attempt_count, len(history.trials)):
            return self._began
        self._seen = history.past_attempt_count, len(history.trials)
        while len(self._began) <= len(self._turns):
            need = self._trials[-1]
            self._look(history)
            if len(self._through) < need:
                break
            first = sorted(self._through, key=lambda each: each.at)[:need]
            if len(self._began) < len(self._turns):
                coming = self._turns[len(self._began)]
                came = sum(each.came for each in first) if coming.begins else coming.trials
                self._trials.append(min(coming.trials, came))
                self._enter(coming.first)
            self._began.append(max([self._began[-1], *(each.at for each in first)]))
        return self._began

    def trials(self, history: History) -> list[int]:
        """How many really are in each stage that has begun: all, but for those that did not come so far."""
        self.began(history)
        return self._trials

    def left(self, history: History) -> int:
        """How many of the stage's trials have yet to come to its end; of one that is not over."""
        return self.trials(history)[-1] - len(self._through)

    def _look(self, history: History) -> None:
        """Who has come to the end of the stage that it is. What was found once stays so."""
        turn = self._turns[len(self._began) - 1]
        last = min(turn.last, len(history.created_ids))
        still_open = []
        for trial_id in (*self._open, *history.created_ids[self._next : last]):
            end = _end_of(history.trials[trial_id], turn)
            if end is None:
                still_open.append(trial_id)
            else:
                self._through.append(end)
        self._open, self._next = still_open, max(self._next, last)


def _end_of(trial: TrialRecord, turn: StageSpan) -> _Through | None:
    if turn.begins and _came(trial, turn.begins) is None:  # it never was in this stage
        return None
    at = _came(trial, turn.ends)
    if at is not None:
        return _Through(at, came=True)
    return None if trial.ended_at is None else _Through(trial.ended_at, came=False)


def _came(trial: TrialRecord, step: int) -> float | None:
    """The end of the attempt in which it came to this step."""
    if trial.step < step:
        return None
    return next((stay.ended_at for stay in trial.past_attempts if stay.last_step >= step), None)
