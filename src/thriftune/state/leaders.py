"""Which trial is the best? With several objectives, which trials are on the front?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, isfinite, nan
from operator import gt, le
from typing import NamedTuple

from thriftune.common.text import last_line
from thriftune.space.objectives import (
    Constraint,
    Objective,
    feasible,
    join_with_and,
    nearest_to_feasible,
    needed_metrics,
    undominated,
)
from thriftune.state.reports import last_value_until, step_of_values
from thriftune.state.trial_record import State, TrialRecord

_Losses = tuple[float, ...]
"""A trial's values, in the order of the objectives, with the sign that makes lower better."""


class _Standing(NamedTuple):
    """What decides who leads. Only trials with the most `progress` compete with each other."""

    progress: float  # math.inf for a finished trial, else the step of its values
    losses: _Losses


class Leaders:
    """Keeps the best trial, or the front, up to date as trials change.

    `best` answers which configuration to use, so it compares like with like. While an eligible trial has finished,
    only finished ones compete. Until then, those compete whose values are of the furthest step.

    The history calls changed() after every change and leading() when somebody asks. All state is a cache of the
    trials. A leader stays ahead of every unchanged trial unless it got worse or fell back itself, so only leaders
    and changed trials are compared again.
    """

    def __init__(
        self, trials: Sequence[TrialRecord], objectives: Sequence[Objective], constraints: Sequence[Constraint]
    ) -> None:
        self._trials = trials  # the history's own list, which grows
        self._objectives = objectives
        self._constraints = constraints
        self._progress = -inf  # of the leaders
        self._leading: dict[int, _Losses] = {}  # by trial id, the best first; all have self._progress
        self._changed: dict[int, None] = {}  # ids of trials that changed since leading() was computed
        self._stale = False  # a leader got worse or fell back: compare all trials again

    def eligible(self, trial: TrialRecord) -> bool:
        """Tell whether it has not failed, has a finite value for every objective, and meets every constraint."""
        values = trial.values
        if values is None or trial.state is State.FAILED or not all(map(isfinite, values)):
            return False
        return not self._constraints or feasible(trial.metrics, self._constraints) is True

    def may_lead(self, trial: TrialRecord) -> bool:
        """Tell whether it competes to be the best: eligible, and trained as far as the leaders are."""
        self.leading()
        standing = self._standing(trial)
        return standing is not None and standing.progress == self._progress

    def changed(self, trial: TrialRecord) -> None:
        """Note that its values, constrained metrics or state changed. Called on every report."""
        self._changed[trial.id] = None
        if (before := self._leading.get(trial.id)) is not None:
            now = self._standing(trial)
            if now is None or now.progress < self._progress:
                self._stale = True
            if now is not None and now.progress == self._progress and any(map(gt, now.losses, before)):
                self._stale = True

    def leading(self) -> list[TrialRecord]:
        """Return the best trial, the earliest of equals; with several objectives, those that none dominates.

        The best by the first objective comes first, the earliest of equals before the others.
        """
        if self._stale or self._changed:
            ids = range(len(self._trials)) if self._stale else {**self._leading, **self._changed}
            self._progress, self._leading = self._chosen(ids)
            self._stale = False
            self._changed.clear()
        return [self._trials[number] for number in self._leading]

    def _chosen(self, ids: Iterable[int]) -> tuple[float, dict[int, _Losses]]:
        found = [(number, each) for number in ids if (each := self._standing(self._trials[number])) is not None]
        progress = max((each.progress for _, each in found), default=-inf)
        ranked = [(each.losses, number) for number, each in found if each.progress == progress]
        if len(self._objectives) == 1:
            ranked = [min(ranked)] if ranked else []
        else:
            ranked = [ranked[i] for i in undominated([losses for losses, _ in ranked])]
            ranked.sort(key=lambda each: (each[0][0], each[1]))
        return progress, {number: losses for losses, number in ranked}

    def _standing(self, trial: TrialRecord) -> _Standing | None:
        """Return None for a trial that is not eligible."""
        if trial.values is None or not self.eligible(trial):
            return None
        progress: float = inf
        values: Sequence[float | None] = trial.values
        if not trial.finished:
            step = progress = step_of_values(trial, [each.metric for each in self._objectives])
            if len(values) > 1:  # some may be of later steps, which others have not come to
                values = [last_value_until(trial, step, each.metric) for each in self._objectives]
        signed = zip(values, trial.values, self._objectives, strict=True)
        told = [(last if value is None else value, objective) for value, last, objective in signed]
        if not all(isfinite(value) for value, _ in told):  # that of an earlier step, which cannot be compared
            return None
        return _Standing(progress, tuple(-value if each.maximize else value for value, each in told))

    def validate(self) -> None:
        """Raise AssertionError if the cache differs from a comparison of all trials with all."""
        standings = {trial.id: each for trial in self._trials if (each := self._standing(trial)) is not None}
        furthest = max((each.progress for each in standings.values()), default=-inf)
        losses = {number: each.losses for number, each in standings.items() if each.progress == furthest}
        front = [a for a, mine in losses.items() if not any(_dominates(each, mine) for each in losses.values())]
        front.sort(key=lambda number: (losses[number][0], number))
        leading = [trial.id for trial in self.leading()]
        assert leading == (front[:1] if len(self._objectives) == 1 else front)

    # --- when nobody is

    def why_infeasible(self) -> str:
        """That there are values but none meets the constraints, and which is nearest; empty if that is not so."""
        if not self._constraints:
            return ""
        told = [
            trial
            for trial in self._trials
            if trial.state is not State.FAILED
            and all(isfinite(trial.metrics.get(name, nan)) for name in self._needed)
        ]
        if not told or any(map(self.eligible, told)):
            return ""
        best = told[nearest_to_feasible([trial.metrics for trial in told], self._constraints)]
        missed = [each for each in self._constraints if not each.met_by(best.metrics[each.metric])]
        values = [f"{each.metric} {best.metrics[each.metric]:.6g}" for each in missed]
        if len(self._constraints) == 1:
            values = [values[0].removeprefix(f"{missed[0].metric} ")]
        trials = "1 trial" if len(told) == 1 else f"{len(told)} trials"
        return (
            f"none of {trials} meets {join_with_and(self._constraints)}; "
            f"the nearest is trial {best.id} with {join_with_and(values)}"
        )

    def why_no_best(self) -> str:
        """Why nobody leads."""
        if infeasible := self.why_infeasible():
            return infeasible
        what = join_with_and(map(repr, self._needed))
        failed = [trial for trial in self._trials if trial.state is State.FAILED]
        told = any(all(isfinite(trial.metrics.get(name, nan)) for name in self._needed) for trial in failed)
        why = f"all trials that reported {what} have failed" if told else f"no trial has reported {what} yet"
        return f"{why}; {len(failed)} failed, the first with: {last_line(failed[0].error)}" if failed else why

    @property
    def _needed(self) -> tuple[str, ...]:
        return needed_metrics(self._objectives, self._constraints)


def _dominates(a: _Losses, b: _Losses) -> bool:
    return a != b and all(map(le, a, b))
