"""Values and steps that are computed from the reports of a trial."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from thriftune.state.trial_record import Report, TrialRecord


def current_value(reports: Sequence[Report]) -> float | None:
    """Return the value of the first objective after these reports.

    Returns None if none of them has one.
    """
    for i in range(len(reports) - 1, -1, -1):
        if (value := reports[i].value) is not None:
            return value
    return None


def value_at(trial: TrialRecord, step: int, metric: str) -> float | None:
    """Return the metric that the trial reported at exactly this step.

    Returns None if it did not.
    """
    index = bisect_left(trial.reports, step, key=_step)
    exists = index < len(trial.reports) and trial.reports[index].step == step
    return trial.reports[index].metrics.get(metric) if exists else None


def first_value_from(trial: TrialRecord, step: int) -> float | None:
    """Return Report.value of the first report, at this step or later, that has one."""
    reports = trial.reports
    for index in range(bisect_left(reports, step, key=_step), len(reports)):
        if (value := reports[index].value) is not None:
            return value
    return None


def last_value_until(trial: TrialRecord, step: int, metric: str) -> float | None:
    """Return the metric of the last report, at this step or earlier, that has it."""
    reports = trial.reports
    for index in range(bisect_right(reports, step, key=_step) - 1, -1, -1):
        if (value := reports[index].metrics.get(metric)) is not None:
            return value
    return None


def step_of_values(trial: TrialRecord, metrics: Iterable[str]) -> int:
    """Return the step of the last report of each of these metrics; the lowest if they differ."""
    return min(
        next((report.step for report in reversed(trial.reports) if metric in report.metrics), 0)
        for metric in metrics
    )


def latest_metrics(reports: Iterable[Report]) -> dict[str, float]:
    """Return each metric's value in the last of these reports that has it."""
    metrics: dict[str, float] = {}
    for report in reports:
        metrics.update(report.metrics)
    return metrics


def counted_reports(trial: TrialRecord) -> Sequence[Report]:
    """Return the trial's valid reports once its current attempt has ended by itself.

    They end with the last report of this attempt. Reports of later steps come from a lost attempt. If this attempt
    made no report, the trial had no steps left, so all earlier reports count.
    """
    return trial.reports[: _count_until_attempt(trial) or len(trial.reports)]


def last_step_of_attempt(trial: TrialRecord) -> int:
    """Return the last step that the current attempt reported, or the step at which it resumed."""
    count = _count_until_attempt(trial)
    return trial.reports[count - 1].step if count else trial.resumed_from


def timed_steps_of_attempt(trial: TrialRecord) -> tuple[int, float]:
    """Return the steps between the current attempt's first and last report, and the seconds they took."""
    reports = trial.reports
    own = reports[bisect_right(reports, trial.resumed_from, key=_step) : _count_until_attempt(trial)]
    first = next((report for report in own if report.attempt == trial.attempts), None)
    if first is None:
        return 0, 0.0
    return own[-1].step - first.step, max(0.0, own[-1].at - first.at)


def _count_until_attempt(trial: TrialRecord) -> int:
    """Return the number of reports up to the last one of the current attempt.

    Returns 0 if it has made none.

    These are all reports, unless an earlier attempt was lost after a later step.
    """
    reports = trial.reports
    return next((i for i in range(len(reports), 0, -1) if reports[i - 1].attempt == trial.attempts), 0)


def _step(report: Report) -> int:
    return report.step
