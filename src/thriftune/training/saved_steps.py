"""Ranks the saved steps of a trial; workers that save and readers of the log use the same order.

A step is saved if its checkpoint was complete when the step was reported. Its value is the objective at this step.
Feasible steps rank before others, judged by each constrained metric's last value up to that step. Then the better
value ranks first, and among equal values the earlier step. Every worker imports this module, so it is light.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from thriftune.space.objectives import Constraint, Objective, feasible, parse_constraints

if TYPE_CHECKING:
    from thriftune.state.trial_record import Report, TrialRecord
    from thriftune.training.run import Run


_NEWEST_KNOWN = 10
"""How many of the newest saved steps an attempt gets besides the best; a command's environment has little room."""


class SavedStep(NamedTuple):
    """A saved step, the attempt that reported it last, its value, and whether it meets all constraints."""

    step: int
    attempt: int
    value: float | None
    feasible: bool

    def rank(self, *, maximize: bool) -> tuple[bool, float, int]:
        """Return a sort key; the best saved step has the lowest. The step must have a value."""
        assert self.value is not None
        return not self.feasible, -self.value if maximize else self.value, self.step


def saved_steps(reports: Iterable[Report], metric: str, constraints: Sequence[Constraint] = ()) -> list[SavedStep]:
    """Return the saved steps that have a finite value of the metric, in order."""
    steps = []
    last_values: dict[str, float] = {}  # by metric
    for report in reports:
        if constraints:
            last_values.update(report.metrics)
        if report.saved and (value := _finite(report.metrics.get(metric))) is not None:
            steps.append(SavedStep(report.step, report.attempt, value, feasible(last_values, constraints) is True))
    return steps


def best_saved(steps: Iterable[SavedStep], *, maximize: bool) -> SavedStep | None:
    """Return the best of these steps; None if none has a value."""
    with_value = [each for each in steps if each.value is not None]
    return min(with_value, key=lambda each: each.rank(maximize=maximize), default=None)


def known_saves(
    trial: TrialRecord, objectives: Sequence[Objective], constraints: Sequence[Constraint]
) -> dict[str, Any] | None:
    """Return what an attempt needs to keep the trial's best checkpoint, as a JSON value.

    Called when the attempt starts. Returns None with several objectives, since no single step is the best then.
    """
    if len(objectives) > 1:
        return None
    objective = objectives[0]
    steps = saved_steps(trial.reports, objective.metric, constraints)
    before_resume = [each for each in steps if each.step <= trial.resume_step]
    best = [best_saved(group, maximize=objective.maximize) for group in (steps, before_resume)]
    known = dict.fromkeys([*best, *before_resume[-_NEWEST_KNOWN:]])
    metrics: dict[str, float] = {}  # the constrained metrics at the step to resume from
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
    """The saved steps of a live trial that still have checkpoints; decides which checkpoints to keep.

    A step counts as saved once it is reported, as in the log. So a kill between a save and its report never costs
    the best checkpoint in the log.
    """

    def __init__(self, run: Run) -> None:
        known = run.known_saves
        self._active = known is not None
        self._attempt = run.attempt
        self._resume_step = run.resume_step
        self._keep = run.keep
        known = known or {"metric": "", "maximize": False, "constraints": [], "metrics": {}, "saved": []}
        self._metric: str = known["metric"]
        self._maximize: bool = known["maximize"]
        self._constraints = parse_constraints(known["constraints"])
        self._metrics: dict[str, float] = dict(known["metrics"])  # last values of the constrained metrics
        self._steps = {saved[0]: SavedStep(*saved) for saved in known["saved"]}  # by step
        self._last: tuple[int, float | None] = (0, None)  # the last reported step, and its value

    def to_keep(self, step: int) -> list[tuple[int, int]]:
        """Return the step and attempt of each checkpoint that must not be removed when `step` is saved.

        Usually that is the best one. An attempt that repeats the saved steps of a lost attempt keeps up to three:

        - the best of all steps, which the log still has;
        - the best without this step, whose value may change;
        - the best before this step, which counts once this attempt has ended.
        """
        steps = list(self._steps.values())  # a copy, since another thread may report at the same time
        others = [each for each in steps if each.step != step]
        earlier = [each for each in others if each.step < step]
        candidates = [best_saved(group, maximize=self._maximize) for group in (steps, others, earlier)]
        best = [each for each in dict.fromkeys(candidates) if each is not None]
        newest = sorted(earlier, reverse=True)[: self._keep - 1]
        remaining = {each.step for each in (*best, *newest)}
        for removed in (each.step for each in steps if each.step not in remaining):
            self._steps.pop(removed, None)
        return [(each.step, each.attempt) for each in best]

    def reported(self, step: int, metrics: Mapping[str, float], *, saved: bool) -> None:
        """Add a report that has been sent."""
        if not self._active:
            return
        value = _finite(metrics.get(self._metric))
        if value is None and self._metric not in metrics and self._last[0] == step:
            value = self._last[1]  # from an earlier report of the same step
        self._last = step, value
        for constraint in self._constraints:
            if constraint.metric in metrics:
                self._metrics[constraint.metric] = metrics[constraint.metric]
        before = self._steps.pop(step, None)
        # A step of an earlier attempt is replaced, unless this attempt has resumed from it or from a later one.
        if before is not None and (before.attempt == self._attempt or step <= self._resume_step):
            saved = True
            value = before.value if self._metric not in metrics and value is None else value
        if saved:
            meets = feasible(self._metrics, self._constraints) is True
            self._steps[step] = SavedStep(step, self._attempt, value, meets)


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None
