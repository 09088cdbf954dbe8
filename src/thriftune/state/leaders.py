"""Find the best trial of a study, or its front if it has several objectives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, isfinite, nan
from operator import gt
from typing import NamedTuple

from thriftune.common.text import last_line
from thriftune.space.objectives import (
    Constraint,
    Objective,
    feasible,
    join_with_and,
    nearest_to_feasible,
    needed_metrics,
)
from thriftune.space.pareto import dominates, undominated
from thriftune.state.reports import last_value_until, step_of_values
from thriftune.state.trial_record import State, TrialRecord

_Losses = tuple[float, ...]
"""A trial's values in the order of the objectives, negated where they are maximised, so that lower is better."""


class _Standing(NamedTuple):
    """The numbers that decide whether a trial is a leader.

    Only trials with the highest `progress` compete.
    """

    progress: float  # math.inf for a finished trial, else the step of its values
    losses: _Losses


class Leaders:
    """The leaders of a study: the best trial, or the front with several objectives.

    Only trials that were trained equally far compete. If any eligible trial has finished, only finished trials
    compete. Otherwise only the trials compete that have reported their values at the highest step.

    The history calls note_change() after every change of a trial. All attributes are caches, computed from the
    trials. current() usually compares only the leaders and the trials that have changed. It compares all trials
    if a leader got worse or lost progress, because only then can an unchanged trial become a leader.
    """

    def __init__(
        self, trials: Sequence[TrialRecord], objectives: Sequence[Objective], constraints: Sequence[Constraint]
    ) -> None:
        """Start without leaders.

        `trials`: the history's own list, to which it appends later trials.
        """
        self._trials = trials
        self._objectives = objectives
        self._constraints = constraints
        self._progress = -inf  # the progress that all leaders have
        self._leading: dict[int, _Losses] = {}  # losses of the leaders by trial id, the best first
        self._changed: dict[int, None] = {}  # ids of trials that changed since _leading was computed
        self._stale = False  # a leader got worse or lost progress, so that all trials must be compared again

    def eligible(self, trial: TrialRecord) -> bool:
        """Return whether a trial may be the best or on the front.

        It must not have failed, must have a finite value for every objective, and must meet every constraint.
        """
        values = trial.values
        if values is None or trial.state is State.FAILED or not all(map(isfinite, values)):
            return False
        return not self._constraints or feasible(trial.metrics, self._constraints) is True

    def may_lead(self, trial: TrialRecord) -> bool:
        """Return whether a trial is eligible and was trained as far as the leaders."""
        self.current()
        standing = self._standing(trial)
        return standing is not None and standing.progress == self._progress

    def note_change(self, trial: TrialRecord) -> None:
        """Note that a trial's values, constrained metrics or state changed.

        Called on every report.
        """
        self._changed[trial.id] = None
        if (before := self._leading.get(trial.id)) is not None:
            now = self._standing(trial)
            if now is None or now.progress < self._progress:
                self._stale = True
            if now is not None and now.progress == self._progress and any(map(gt, now.losses, before)):
                self._stale = True

    def current(self) -> list[TrialRecord]:
        """Return the leaders, sorted by the first objective, then by id.

        With one objective, this is the best trial, and the earliest one among equal trials. With several
        objectives, these are all trials that no other trial dominates.
        """
        if self._stale or self._changed:
            ids = range(len(self._trials)) if self._stale else {**self._leading, **self._changed}
            self._progress, self._leading = self._compare(ids)
            self._stale = False
            self._changed.clear()
        return [self._trials[trial_id] for trial_id in self._leading]

    def _compare(self, ids: Iterable[int]) -> tuple[float, dict[int, _Losses]]:
        """Find the leaders among these trials.

        Returns their progress, and their losses by trial id.
        """
        standings = [(i, standing) for i in ids if (standing := self._standing(self._trials[i])) is not None]
        progress = max((each.progress for _, each in standings), default=-inf)
        ranked = [(each.losses, trial_id) for trial_id, each in standings if each.progress == progress]
        if len(self._objectives) == 1:
            ranked = [min(ranked)] if ranked else []
        else:
            ranked = [ranked[i] for i in undominated([losses for losses, _ in ranked])]
            ranked.sort(key=lambda each: (each[0][0], each[1]))
        return progress, {trial_id: losses for losses, trial_id in ranked}

    def _standing(self, trial: TrialRecord) -> _Standing | None:
        """Return the numbers of a trial; None if it is not eligible."""
        if trial.values is None or not self.eligible(trial):
            return None
        progress: float = inf
        values: Sequence[float | None] = trial.values
        if not trial.finished:
            step = progress = step_of_values(trial, [each.metric for each in self._objectives])
            if len(values) > 1:  # some values may come from later steps, which other trials have not reached
                values = [last_value_until(trial, step, each.metric) for each in self._objectives]
        pairs = [
            (last if value is None else value, objective)
            for value, last, objective in zip(values, trial.values, self._objectives, strict=True)
        ]
        if not all(isfinite(value) for value, _ in pairs):  # the value at an earlier step was not finite
            return None
        return _Standing(progress, tuple(-value if each.maximize else value for value, each in pairs))

    def validate(self) -> None:
        """Raise AssertionError if the caches differ from a comparison of all trials."""
        standings = {trial.id: each for trial in self._trials if (each := self._standing(trial)) is not None}
        highest = max((each.progress for each in standings.values()), default=-inf)
        losses = {trial_id: each.losses for trial_id, each in standings.items() if each.progress == highest}
        front = [a for a, mine in losses.items() if not any(dominates(each, mine) for each in losses.values())]
        front.sort(key=lambda trial_id: (losses[trial_id][0], trial_id))
        leading = [trial.id for trial in self.current()]
        assert leading == (front[:1] if len(self._objectives) == 1 else front)

    # --- messages for studies without a leader ------------------------------------------------------------

    def why_infeasible(self) -> str:
        """Return why no trial with values meets the constraints, as a sentence.

        Returns an empty string if a trial meets them, or no trial has values.
        """
        if not self._constraints:
            return ""
        measured = [
            trial
            for trial in self._trials
            if trial.state is not State.FAILED
            and all(isfinite(trial.metrics.get(name, nan)) for name in self._needed)
        ]
        if not measured or any(map(self.eligible, measured)):
            return ""
        nearest = measured[nearest_to_feasible([trial.metrics for trial in measured], self._constraints)]
        missed = [each for each in self._constraints if not each.met_by(nearest.metrics[each.metric])]
        values = [f"{each.metric} {nearest.metrics[each.metric]:.6g}" for each in missed]
        if len(self._constraints) == 1:
            values = [values[0].removeprefix(f"{missed[0].metric} ")]
        trials = "1 trial" if len(measured) == 1 else f"{len(measured)} trials"
        return (
            f"none of {trials} meets {join_with_and(self._constraints)}; "
            f"the nearest is trial {nearest.id} with {join_with_and(values)}"
        )

    def why_none(self) -> str:
        """Return a sentence that says why the study has no leader."""
        if infeasible := self.why_infeasible():
            return infeasible
        metrics = join_with_and(map(repr, self._needed))
        failed = [trial for trial in self._trials if trial.state is State.FAILED]
        if failed and len(failed) == len(self._trials):
            error = last_line(failed[0].error)
            if len(failed) == 1:
                return f"the only trial failed with: {error}"
            return f"all {len(failed)} trials failed, the first with: {error}"
        reported = any(all(isfinite(trial.metrics.get(name, nan)) for name in self._needed) for trial in failed)
        why = (
            f"all trials that reported {metrics} have failed"
            if reported
            else f"no trial has reported {metrics} yet"
        )
        return f"{why}; {len(failed)} failed, the first with: {last_line(failed[0].error)}" if failed else why

    @property
    def _needed(self) -> tuple[str, ...]:
        return needed_metrics(self._objectives, self._constraints)
