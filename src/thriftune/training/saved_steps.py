"""Which of a trial's saved steps is the best one? Workers that save and readers of the log decide alike.

A step is saved if its checkpoint was complete when it was reported. Its value is the objective at exactly this
step. Steps that meet all constraints, by the metrics of that step or before, come before those that do not; then
the better value counts, and of equals the earlier step. This module is loaded by every worker, so it is light.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from thriftune.space.objectives import Constraint, Objective, feasible, parse_constraints

if TYPE_CHECKING:
    from thriftune.state.trial_record import Report, TrialRecord
    from thriftune.training.run import Run


_NEWEST_TOLD = 10
"""The newest saved steps that an attempt is told of besides the best, as a command has them in its environment."""


class Saved(NamedTuple):
    """A saved step, the attempt that reported it last, its value, and whether it meets all constraints."""

    step: int
    attempt: int
    value: float | None
    feasible: bool

    def rank(self, *, maximize: bool) -> tuple[bool, float, int]:
        """Return a key that is lowest for the best saved step; the step must have a value."""
        assert self.value is not None
        return not self.feasible, -self.value if maximize else self.value, self.step


def saved_steps(reports: Iterable[Report], metric: str, constraints: Sequence[Constraint] = ()) -> list[Saved]:
    """Return the saved steps that have a finite value of the metric, in order."""
    found = []
    known: dict[str, float] = {}  # what was told of each metric so far
    for report in reports:
        if constraints:
            known.update(report.metrics)
        if report.saved and (value := _finite(report.metrics.get(metric))) is not None:
            found.append(Saved(report.step, report.attempt, value, feasible(known, constraints) is True))
    return found


def best_saved(steps: Iterable[Saved], *, maximize: bool) -> Saved | None:
    """Return the best of these steps; None if none has a value."""
    with_value = [each for each in steps if each.value is not None]
    return min(with_value, key=lambda each: each.rank(maximize=maximize), default=None)


def known_saves(
    trial: TrialRecord, objectives: Sequence[Objective], constraints: Sequence[Constraint]
) -> dict[str, Any] | None:
    """Return what an attempt must know to keep the trial's best checkpoint, as JSON; None: there is no best step.

    Called as the attempt starts. With several objectives no step is the best.
    """
    if len(objectives) > 1:
        return None
    objective = objectives[0]
    steps = saved_steps(trial.reports, objective.metric, constraints)
    built_on = [each for each in steps if each.step <= trial.resume_step]
    best = [best_saved(some, maximize=objective.maximize) for some in (steps, built_on)]
    known = dict.fromkeys([*best, *built_on[-_NEWEST_TOLD:]])
    metrics: dict[str, float] = {}  # those that are constrained, as the attempt finds them
    for report in trial.reports if constraints else ():
        if report.step <= trial.resume_step:
            metrics |= {
                each.metric: report.metrics[each.metric] for each in constraints if each.metric in report.metrics
            }
    return {
        "metric": objective.metric,
        "maximize": objective.maximize,
        "constraints": [str(each) for each in constraints],
        "metrics": metrics,
        "saved": [tuple(each) for each in known if each is not None],
    }


class SavedSteps:
    """The saved steps of a live trial, as far as they have checkpoints; tells which of these to keep.

    Follows the log: a step counts as saved once it was reported, so that a kill between a save and its report
    never costs the best checkpoint that the log knows.
    """

    def __init__(self, run: Run) -> None:
        known = run.saves
        self._active = known is not None
        self._attempt = run.attempt
        self._resume_step = run.resume_step
        self._keep = run.keep
        known = known or {"metric": "", "maximize": False, "constraints": [], "metrics": {}, "saved": []}
        self._metric: str = known["metric"]
        self._maximize: bool = known["maximize"]
        self._constraints = parse_constraints(known["constraints"])
        self._metrics: dict[str, float] = dict(known["metrics"])  # those that are constrained, as last told
        self._steps = {saved[0]: Saved(*saved) for saved in known["saved"]}  # by step
        self._last: tuple[int, float | None] = (0, None)  # the step that was reported last, and its value

    def to_keep(self, step: int) -> list[tuple[int, int]]:
        """Return the step and attempt of each checkpoint that saving `step` must leave in place.

        That is the best one. Where an attempt began anew, and repeats what one that was lost had saved, there are
        more: the best of all, which the log still counts; the best of the other steps, as this one's value may
        change; and the best of those before, which counts once this attempt has come to its end.
        """
        steps = list(self._steps.values())  # a copy: another thread may report meanwhile
        others = [each for each in steps if each.step != step]
        earlier = [each for each in others if each.step < step]
        found = [best_saved(some, maximize=self._maximize) for some in (steps, others, earlier)]
        best = [each for each in dict.fromkeys(found) if each is not None]
        newest = sorted(earlier, reverse=True)[: self._keep - 1]
        left = {each.step for each in (*best, *newest)}
        for gone in (each.step for each in steps if each.step not in left):
            self._steps.pop(gone, None)
        return [(each.step, each.attempt) for each in best]

    def reported(self, step: int, metrics: Mapping[str, float], *, saved: bool) -> None:
        """Take in a report, once it is safe."""
        if not self._active:
            return
        value = _finite(metrics.get(self._metric))
        if value is None and self._metric not in metrics and self._last[0] == step:
            value = self._last[1]  # told in an earlier part of the step's report
        self._last = step, value
        for constraint in self._constraints:
            if constraint.metric in metrics:
                self._metrics[constraint.metric] = metrics[constraint.metric]
        before = self._steps.pop(step, None)
        # A step that an attempt before this one had told is replaced, unless this one builds on it.
        if before is not None and (before.attempt == self._attempt or step <= self._resume_step):
            saved = True
            value = before.value if self._metric not in metrics and value is None else value
        if saved:
            meets = feasible(self._metrics, self._constraints) is True
            self._steps[step] = Saved(step, self._attempt, value, meets)


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None
