"""Choose the checkpoints of a trial that are kept in the object store, and those that an attempt may resume from.

Kept are the newest ones, those of the best saved steps, and those that the running attempt was given when it
started. All other objects of the trial's checkpoints are garbage; see garbage.py. Workers rank the saved steps in
the same way, and so do readers of models.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from thriftune.space.objectives import Constraint, Objective
from thriftune.state.reports import counted_reports
from thriftune.state.trial_record import Report, State, StoredCheckpoint, TrialRecord
from thriftune.training.saved_steps import SavedStep, best_saved, saved_steps


def resumable(trial: TrialRecord, keep: int) -> list[StoredCheckpoint]:
    """Return the newest checkpoints from which the trial's next attempt can resume, the newest first.

    These are the last `keep` complete ones, and before them a partial one if it is the newest of all. Those of
    steps after the last one to resume from are left out: an attempt has found them damaged and repeated the steps.
    """
    chosen: list[StoredCheckpoint] = []
    steps: set[int] = set()
    for each in reversed(trial.checkpoints):
        if each.step > trial.resume_step or (each.partial and chosen) or each.step in steps:
            continue
        if each.partial and not trial.resume_partial:
            continue
        chosen.append(each)
        if not each.partial:
            steps.add(each.step)
            if len(steps) == keep:
                break
    return chosen


def kept_checkpoints(
    trial: TrialRecord, keep: int, objectives: Sequence[Objective], constraints: Sequence[Constraint] = ()
) -> list[StoredCheckpoint]:
    """Return all checkpoints of the trial to keep, except those that the running attempt was given.

    The best saved step is also that of the steps up to the one to resume from, since the reports of later steps
    may be replaced. With several objectives, no single step is the best.
    """
    found = dict.fromkeys(resumable(trial, keep))
    reports = counted_reports(trial) if trial.state is State.COMPLETED else trial.reports
    for saved in _models(trial, reports, objectives, constraints):
        if (checkpoint := checkpoint_of(trial, saved.step, saved.attempt)) is not None:
            found[checkpoint] = None
    return list(found)


def _models(
    trial: TrialRecord,
    reports: Sequence[Report],
    objectives: Sequence[Objective],
    constraints: Sequence[Constraint],
) -> Iterable[SavedStep | Report]:
    """Yield the saved steps that may become the model of the trial or of the study."""
    last = next((report for report in reversed(reports) if report.saved), None)
    if last is not None:  # of a completed trial, later ones may not count
        yield last
    if len(objectives) > 1:
        return
    objective = objectives[0]
    for group in (trial.reports,) if reports is trial.reports else (trial.reports, reports):
        steps = saved_steps(group, objective.metric, constraints)
        before_resume = [each for each in steps if each.step <= trial.resume_step]
        for candidates in (steps, before_resume):
            if (best := best_saved(candidates, maximize=objective.maximize)) is not None:
                yield best


def checkpoint_of(trial: TrialRecord, step: int, attempt: int) -> StoredCheckpoint | None:
    """Return the complete checkpoint of a saved step. `attempt`: the one that reported the step last.

    A checkpoint of a later attempt does not belong to that report. Return None if the log has none: it may be in
    the trial's folder.
    """
    for each in reversed(trial.checkpoints):
        if each.step == step and not each.partial and each.attempt <= attempt:
            return each
    return None
