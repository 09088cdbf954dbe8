"""Synchronous halving in brackets: the best trials of a stage go on once all have reached its end."""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from thriftune.state.history import History
from thriftune.state.reports import first_value_from
from thriftune.state.trial_record import State, TrialRecord

ALL = sys.maxsize  # the number of trials in a stage that takes every trial

Score = Callable[[TrialRecord, int, History], float]
"""(trial, last step of a stage, history) -> how good the trial is at that step; lower is better."""


@dataclass(frozen=True, slots=True)
class BracketStage:
    """A stage in which `trials` trials train from step `start` to step `end`."""

    trials: int  # ALL for every trial of the study
    start: int
    end: int


def value_at_step(trial: TrialRecord, step: int, history: History) -> float:
    """Return the first value reported at the step or later, else the last value; lower is better."""
    value = first_value_from(trial, step)
    if value is None:
        value = trial.value
    if value is None or math.isnan(value):
        return math.inf
    return -value if history.maximize else value


def reaches_stage_end(trial: TrialRecord, stages: Sequence[BracketStage]) -> bool:
    """Return whether the trial's last report has its first value at the end of a stage but the last."""
    reports = trial.reports
    if reports[-1].value is None:
        return False
    last = reports[-1].step
    previous = next((reports[i].step for i in range(len(reports) - 2, -1, -1) if reports[i].value is not None), 0)
    return any(previous < stage.end <= last for stage in stages[:-1])


@dataclass(slots=True)
class _Bracket:
    """Trials that compete, in the order in which the study created them from position `first` on.

    Caches the progress of their stages, which only grows.
    """

    first: int
    stages: Sequence[BracketStage]
    stage: int = 0  # index of the current stage
    survivors: list[int] | None = None  # trials in the stage, best first; None in the first stage
    arrived: int = 0  # this many members, from the first on, have ended or reached the stage's end

    def trial_to_promote(self, history: History, score: Score, *, complete: bool) -> int | None:
        while self.stage < len(self.stages) - 1 and self._all_arrived(history, complete):
            self._advance(history, score)
        end = self.stages[self.stage].end
        for trial_id in self.survivors or ():
            trial = history.trials[trial_id]
            if trial.state is State.PAUSED and trial.step < end:
                return trial_id
        return None

    def is_over(self, history: History) -> bool:
        """Return whether all trials of the last stage have ended."""
        last = self.stage == len(self.stages) - 1
        return last and self.survivors is not None and all(history.trials[i].state.ended for i in self.survivors)

    def _members(self, history: History) -> Sequence[int]:
        if self.survivors is not None:
            return self.survivors
        return history.created_ids[self.first : self.first + self.stages[0].trials]

    def _all_arrived(self, history: History, complete: bool) -> bool:
        members, end = self._members(history), self.stages[self.stage].end
        if self.survivors is None and len(members) < self.stages[0].trials and not complete:
            return False
        while self.arrived < len(members):
            trial = history.trials[members[self.arrived]]
            # The step alone is not enough: a value that came after the decision would change it on a replay.
            if not trial.state.ended and first_value_from(trial, end) is None:
                return False
            self.arrived += 1
        return bool(members)

    def _advance(self, history: History, score: Score) -> None:
        stage, next_stage = self.stages[self.stage], self.stages[self.stage + 1]
        members = self._members(history)
        # A trial that finished before the end of the stage still competes: it may be the best without more steps.
        trials = (history.trials[i] for i in members)
        candidates = [
            trial for trial in trials if trial.finished or first_value_from(trial, stage.end) is not None
        ]
        candidates.sort(key=lambda trial: (score(trial, stage.end, history), trial.id))
        # A bracket that was not filled promotes the same share of its trials.
        planned = len(members) if stage.trials == ALL else stage.trials
        self.survivors = [trial.id for trial in candidates[: max(1, next_stage.trials * len(members) // planned)]]
        self.stage += 1
        self.arrived = 0


@dataclass(slots=True)
class Brackets:
    """The trials of a history in brackets, by order of creation; the kinds of brackets alternate. A cache."""

    history: History
    kinds: Sequence[Sequence[BracketStage]]
    score: Score = value_at_step
    _brackets: list[_Bracket] = field(default_factory=list)
    _first_open: int = 0
    _rewrites: int = field(init=False)

    def __post_init__(self) -> None:
        self._rewrites = self.history.rewritten_values

    def covers(self, history: History) -> bool:
        """Return whether this cache is of that history, and no value in it has changed since."""
        return self.history is history and self._rewrites == history.rewritten_values

    def stages_of(self, trial_id: int) -> Sequence[BracketStage]:
        ends = list(accumulate(stages[0].trials for stages in self.kinds))
        return self.kinds[bisect_right(ends, self.history.created_before(trial_id) % ends[-1])]

    def trial_to_promote(self, more: bool) -> int | None:
        history, brackets = self.history, self._brackets
        while not brackets or brackets[-1].first + brackets[-1].stages[0].trials < len(history.created_ids):
            first = brackets[-1].first + brackets[-1].stages[0].trials if brackets else 0
            brackets.append(_Bracket(first, self.kinds[len(brackets) % len(self.kinds)]))
        while self._first_open < len(brackets) - 1 and brackets[self._first_open].is_over(history):
            self._first_open += 1
        for bracket in brackets[self._first_open :]:
            trial_id = bracket.trial_to_promote(history, self.score, complete=not more)
            if trial_id is not None:
                return trial_id
        return None
