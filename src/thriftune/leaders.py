"""Who is ahead? The best trial, or with several objectives the front, kept up to date as trials change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite, nan
from operator import gt, le

from thriftune.objectives import Constraint, Objective, conjunction, feasible, nearest, needed, undominated
from thriftune.printed import last_line
from thriftune.trial import State, TrialRecord

_Losses = tuple[float, ...]
"""A trial's values, in the order of the objectives, with the sign that makes lower better."""


class Leaders:
    """Told of every change, asked now and then. All it keeps is a cache: the trials alone decide.

    Who leads stays ahead of all that has not changed since, unless it got worse itself; so only leaders and what
    has changed are compared again.
    """

    def __init__(
        self, trials: Sequence[TrialRecord], objectives: Sequence[Objective], constraints: Sequence[Constraint]
    ) -> None:
        self._trials = trials  # of the history, which adds to it
        self._objectives = objectives
        self._constraints = constraints
        self._leading: dict[int, _Losses] = {}  # by trial: the best first
        self._changed: dict[int, None] = {}  # since then
        self._unsure = False  # a leader has become worse
        self._settled = False  # an eligible trial has come to its end

    def eligible(self, trial: TrialRecord) -> bool:
        """It has not failed, has a number for every objective, and is known to meet every constraint."""
        values = trial.values
        if values is None or trial.state is State.FAILED or not all(map(isfinite, values)):
            return False
        return not self._constraints or feasible(trial.metrics, self._constraints) is True

    def may_lead(self, trial: TrialRecord) -> bool:
        """Eligible; and once an eligible one has come to its end, none that a rule gave up on: its last value is
        that of an early step, which may be lower than that of a better trial at its end."""
        return self.eligible(trial) and not (self._settled and trial.given_up)

    def changed(self, trial: TrialRecord) -> None:
        """Its values, its constrained metrics, or its state. On the way of every report."""
        self._changed[trial.id] = None
        if not self._settled and trial.state is State.COMPLETED and self.eligible(trial):
            self._settled = self._unsure = True
        if (before := self._leading.get(trial.id)) is not None:
            losses = self._losses(trial)
            if losses is None or any(map(gt, losses, before)):
                self._unsure = True

    def leading(self) -> list[TrialRecord]:
        """Of a single objective the best trial, the earliest of equals; of several, those that none dominates.

        The best by the first objective first, the earliest of equals.
        """
        if self._unsure or self._changed:
            ids = range(len(self._trials)) if self._unsure else {**self._leading, **self._changed}
            self._leading = self._chosen(ids)
            self._unsure = False
            self._changed.clear()
        return [self._trials[number] for number in self._leading]

    def _chosen(self, ids: Iterable[int]) -> dict[int, _Losses]:
        found = ((number, self._losses(self._trials[number])) for number in ids)
        ranked = [(losses, number) for number, losses in found if losses is not None]
        if len(self._objectives) == 1:
            ranked = [min(ranked)] if ranked else []
        else:
            ranked = [ranked[i] for i in undominated([losses for losses, _ in ranked])]
            ranked.sort(key=lambda each: (each[0][0], each[1]))
        return {number: losses for losses, number in ranked}

    def _losses(self, trial: TrialRecord) -> _Losses | None:
        """None: it does not count."""
        if trial.values is None or not self.may_lead(trial):
            return None
        signed = zip(trial.values, self._objectives, strict=True)
        return tuple(-value if objective.maximize else value for value, objective in signed)

    def validate(self) -> None:
        """Raises AssertionError where it differs from what a comparison of all with all tells."""
        ended = (trial for trial in self._trials if trial.state is State.COMPLETED)
        assert self._settled == any(map(self.eligible, ended))
        losses = {trial.id: each for trial in self._trials if (each := self._losses(trial)) is not None}
        front = [a for a, mine in losses.items() if not any(_dominates(each, mine) for each in losses.values())]
        front.sort(key=lambda number: (losses[number][0], number))
        leading = [trial.id for trial in self.leading()]
        assert leading == (front[:1] if len(self._objectives) == 1 else front)

    # --- when nobody is

    def misses(self) -> str:
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
        best = told[nearest([trial.metrics for trial in told], self._constraints)]
        missed = [each for each in self._constraints if not each.met_by(best.metrics[each.metric])]
        values = [f"{each.metric} {best.metrics[each.metric]:.6g}" for each in missed]
        if len(self._constraints) == 1:
            values = [values[0].removeprefix(f"{missed[0].metric} ")]
        trials = "1 trial" if len(told) == 1 else f"{len(told)} trials"
        return (
            f"none of {trials} meets {conjunction(self._constraints)}; "
            f"the nearest is trial {best.id} with {conjunction(values)}"
        )

    def why_none(self) -> str:
        """Why nobody leads."""
        if misses := self.misses():
            return misses
        what = conjunction(map(repr, self._needed))
        failed = [trial for trial in self._trials if trial.state is State.FAILED]
        told = any(all(isfinite(trial.metrics.get(name, nan)) for name in self._needed) for trial in failed)
        why = f"all trials that reported {what} have failed" if told else f"no trial has reported {what} yet"
        return f"{why}; {len(failed)} failed, the first with: {last_line(failed[0].error)}" if failed else why

    @property
    def _needed(self) -> tuple[str, ...]:
        return needed(self._objectives, self._constraints)


def _dominates(a: _Losses, b: _Losses) -> bool:
    return a != b and all(map(le, a, b))
