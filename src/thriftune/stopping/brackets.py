"""Who goes on to the next stage, once all have come to the end of this one? Synchronous halving, in brackets."""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from thriftune.state.history import History
from thriftune.state.reports import value_from
from thriftune.state.trial_record import State, TrialRecord

ALL = sys.maxsize

Score = Callable[[TrialRecord, int, History], float]
"""How good a trial is at the end of a stage, a step; lower is better."""


@dataclass(frozen=True, slots=True)
class Stage:
    """So many trials are trained from step `start` to step `end`."""

    trials: int  # ALL: as many as the study has
    start: int
    end: int


def value_there(trial: TrialRecord, step: int, history: History) -> float:
    """Return the first value that it told at the step or later, if any, else its last; lower is better."""
    value = value_from(trial, step)
    if value is None:
        value = trial.value
    if value is None or math.isnan(value):
        return math.inf
    return -value if history.maximize else value


def crosses(trial: TrialRecord, stages: Sequence[Stage]) -> bool:
    """Return whether its last report has its first value at the end of a stage, other than the last stage's."""
    reports = trial.reports
    if reports[-1].value is None:
        return False
    last = reports[-1].step
    before = next((reports[i].step for i in range(len(reports) - 2, -1, -1) if reports[i].value is not None), 0)
    return any(before < stage.end <= last for stage in stages[:-1])


@dataclass(slots=True)
class _Bracket:
    """Trials that compete: the `first` that the study made and those after it.

    Holds what is known of their stages, which only grows.
    """

    first: int
    stages: Sequence[Stage]
    stage: int = 0  # that they are in
    alive: list[int] | None = None  # the trials in it, the best first; None: all, of the first stage
    arrived: int = 0  # so many of them, from the first on, have come to its end or to their own

    def promotable(self, history: History, score: Score, *, complete: bool) -> int | None:
        while self.stage < len(self.stages) - 1 and self._all_arrived(history, complete):
            self._advance(history, score)
        end = self.stages[self.stage].end
        for trial_id in self.alive or ():
            trial = history.trials[trial_id]
            if trial.state is State.PAUSED and trial.step < end:
                return trial_id
        return None

    def over(self, history: History) -> bool:
        """Nothing more will come of it."""
        last = self.stage == len(self.stages) - 1
        return last and self.alive is not None and all(history.trials[i].state.ended for i in self.alive)

    def _members(self, history: History) -> Sequence[int]:
        if self.alive is not None:
            return self.alive
        return history.created_ids[self.first : self.first + self.stages[0].trials]

    def _all_arrived(self, history: History, complete: bool) -> bool:
        members, end = self._members(history), self.stages[self.stage].end
        if self.alive is None and len(members) < self.stages[0].trials and not complete:
            return False
        while self.arrived < len(members):
            trial = history.trials[members[self.arrived]]
            # Not just its step: a value that came after the decision would change it for whoever decides anew.
            if not trial.state.ended and value_from(trial, end) is None:
                return False
            self.arrived += 1
        return bool(members)

    def _advance(self, history: History, score: Score) -> None:
        stage, after = self.stages[self.stage], self.stages[self.stage + 1]
        members = self._members(history)
        # A trial that finished before the end of the stage keeps its place: it needs no more steps to be the best.
        arrived = (history.trials[i] for i in members)
        came = [trial for trial in arrived if trial.finished or value_from(trial, stage.end) is not None]
        came.sort(key=lambda trial: (score(trial, stage.end, history), trial.id))
        # Of a bracket that could not be filled, the same part goes on.
        of = len(members) if stage.trials == ALL else stage.trials
        self.alive = [trial.id for trial in came[: max(1, after.trials * len(members) // of)]]
        self.stage += 1
        self.arrived = 0


@dataclass(slots=True)
class Brackets:
    """The trials of a history in brackets, by their numbers; the kinds of brackets take turns. A cache."""

    history: History
    kinds: Sequence[Sequence[Stage]]
    score: Score = value_there
    _brackets: list[_Bracket] = field(default_factory=list)
    _first_open: int = 0
    _rewrites: int = field(init=False)

    def __post_init__(self) -> None:
        self._rewrites = self.history.rewrites

    def covers(self, history: History) -> bool:
        """Tell whether this cache is of that history, and no value in it has changed since."""
        return self.history is history and self._rewrites == history.rewrites

    def stages_of(self, trial_id: int) -> Sequence[Stage]:
        ends = list(accumulate(stages[0].trials for stages in self.kinds))
        return self.kinds[bisect_right(ends, self.history.created_before(trial_id) % ends[-1])]

    def promotable(self, more: bool) -> int | None:
        history, brackets = self.history, self._brackets
        while not brackets or brackets[-1].first + brackets[-1].stages[0].trials < len(history.created_ids):
            first = brackets[-1].first + brackets[-1].stages[0].trials if brackets else 0
            brackets.append(_Bracket(first, self.kinds[len(brackets) % len(self.kinds)]))
        while self._first_open < len(brackets) - 1 and brackets[self._first_open].over(history):
            self._first_open += 1
        for bracket in brackets[self._first_open :]:
            found = bracket.promotable(history, self.score, complete=not more)
            if found is not None:
                return found
        return None
