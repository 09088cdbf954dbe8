"""What has a trial told? Its reports, one a step, and what they say of each metric."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from thriftune.state.events import Reported
from thriftune.state.trial_record import Report, TrialRecord, ValueRule


def add_report(trial: TrialRecord, event: Reported, counting: ValueRule) -> Iterable[str]:
    """Add what was reported to the trial's reports and metrics; return which metrics may have changed.

    A step told before by this attempt, or by one it builds on, is added to; by one that was lost, replaced.
    """
    reports = trial.reports
    if not reports or reports[-1].step < event.step:
        value = counting.value(event.metrics, current_value(reports) if counting.best else None)
        reports.append(Report(event.step, event.metrics, event.at, event.attempt, event.saved, value))
        trial.metrics.update(event.metrics)
        return event.metrics
    report = Report(event.step, event.metrics, event.at, event.attempt, event.saved)
    place = bisect_left(reports, event.step, key=_step)
    before = reports[place]
    changed = event.metrics
    if before.step != event.step:
        reports.insert(place, report)
    else:
        changed = {**before.metrics, **event.metrics}  # what was replaced is told no more
        if before.attempt == event.attempt or event.step <= trial.resumed_from:
            report = report._replace(metrics=changed, saved=event.saved or before.saved)
        reports[place] = report
    _count_again(reports, place, counting)
    return _look_up(trial, changed)


def _count_again(reports: list[Report], place: int, counting: ValueRule) -> None:
    """Bring the counted values up to date from a report on that has changed."""
    before = current_value(reports[:place])
    for i in range(place, len(reports) if counting.best else place + 1):
        value = counting.value(reports[i].metrics, before)
        reports[i] = reports[i]._replace(value=value)
        before = before if value is None else value


def current_value(reports: Sequence[Report]) -> float | None:
    """Return the objective as it counts after these reports; None if they have none."""
    for i in range(len(reports) - 1, -1, -1):
        if (value := reports[i].value) is not None:
            return value
    return None


def _look_up(trial: TrialRecord, names: Iterable[str]) -> Iterable[str]:
    """Brings these of its metrics up to date, from the last report backwards: seldom a look at many."""
    for name in names:
        value = next((report.metrics[name] for report in reversed(trial.reports) if name in report.metrics), None)
        if value is None:
            trial.metrics.pop(name, None)
        else:
            trial.metrics[name] = value
    return names


def value_at(trial: TrialRecord, step: int, metric: str) -> float | None:
    """Return what it last told of the metric at exactly this step."""
    place = bisect_left(trial.reports, step, key=_step)
    there = place < len(trial.reports) and trial.reports[place].step == step
    return trial.reports[place].metrics.get(metric) if there else None


def first_value_from(trial: TrialRecord, step: int) -> float | None:
    """Return the objective as it counts after the first step, from this one on, that reported it."""
    reports = trial.reports
    for place in range(bisect_left(reports, step, key=_step), len(reports)):
        if (value := reports[place].value) is not None:
            return value
    return None


def last_value_until(trial: TrialRecord, step: int, metric: str) -> float | None:
    """Return the last value of the metric that it told at this step or before."""
    reports = trial.reports
    for place in range(bisect_right(reports, step, key=_step) - 1, -1, -1):
        if (value := reports[place].metrics.get(metric)) is not None:
            return value
    return None


def step_of_values(trial: TrialRecord, metrics: Iterable[str]) -> int:
    """Return the step of the last values of these metrics; where the steps differ, the lowest."""
    return min(
        next((report.step for report in reversed(trial.reports) if metric in report.metrics), 0)
        for metric in metrics
    )


def latest_metrics(reports: Iterable[Report]) -> dict[str, float]:
    """Each metric at the last step that reported it."""
    metrics: dict[str, float] = {}
    for report in reports:
        metrics.update(report.metrics)
    return metrics


def counted_reports(trial: TrialRecord) -> Sequence[Report]:
    """The reports that count once an attempt has come to its own end: those up to its last one.

    An attempt that was lost may have gone further than it, but what that one made is gone. One that said nothing
    had nothing left to do, so that what those before it told stands.
    """
    return trial.reports[: _by_this_attempt(trial) or len(trial.reports)]


def last_step_of_attempt(trial: TrialRecord) -> int:
    """The last step of the current attempt, or that it began with."""
    last = _by_this_attempt(trial)
    return trial.reports[last - 1].step if last else trial.resumed_from


def timed_steps_of_attempt(trial: TrialRecord) -> tuple[int, float]:
    """Steps, and the seconds that they took: those between its first report and its last."""
    reports = trial.reports
    own = reports[bisect_right(reports, trial.resumed_from, key=_step) : _by_this_attempt(trial)]
    first = next((report for report in own if report.attempt == trial.attempts), None)
    if first is None:
        return 0, 0.0
    return own[-1].step - first.step, max(0.0, own[-1].at - first.at)


def _by_this_attempt(trial: TrialRecord) -> int:
    """How many reports there are up to the last one of the current attempt; 0: it has made none."""
    reports = trial.reports
    # All of them, unless an attempt before it was lost.
    return next((i for i in range(len(reports), 0, -1) if reports[i - 1].attempt == trial.attempts), 0)


def _step(report: Report) -> int:
    return report.step
