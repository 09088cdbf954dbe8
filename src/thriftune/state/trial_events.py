"""Apply events about trials to a study's state: what workers report, and what the conductor decides.

Each function applies one kind of event, or all requests to end an attempt. It returns False if the event changes
nothing and need not be recorded, because it arrived twice or its attempt is not running any more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

from thriftune.space.objectives import join_with_and
from thriftune.state import events as ev
from thriftune.state.metrics import missing_metrics_error
from thriftune.state.reports import current_value, value_at
from thriftune.state.study_state import StudyState
from thriftune.state.trial_changes import (
    complete,
    count_all_reports,
    cut_attempt,
    end_trial,
    fail_attempt,
    lose_attempt,
    running_trial,
    set_state,
    set_values,
)
from thriftune.state.trial_record import (
    Report,
    State,
    StoredCheckpoint,
    TrialRecord,
    UsageWindow,
    ValueRule,
)

# --- events from workers ----------------------------------------------------------------------------------


def _apply_reported(state: StudyState, event: ev.Reported) -> bool:
    trial = running_trial(state, event)
    if trial is None or event.number <= trial.last_report_number:
        return False
    if trial.end_request == "reach" and not state.value_rule.best:
        return False  # the value that reached the target stays the trial's value
    trial.last_report_number = event.number
    if trial.stalled_losses and event.step > trial.step:
        trial.stalled_losses = 0
    if trial.reports and event.step <= trial.reports[-1].step:
        before = value_at(trial, event.step, state.metric)
        changed = _add_report(trial, event, state.value_rule)
        # Stopping rules judge the first value at a new step as usual. They must learn of every other change.
        is_first = before is None and trial.step_before_attempt < event.step == trial.step
        state.rewritten_values += not is_first and value_at(trial, event.step, state.metric) != before
    else:
        changed = _add_report(trial, event, state.value_rule)
    if event.saved:
        trial.resume_step, trial.resume_partial = event.step, False
    if not state.needed_metrics.isdisjoint(changed):
        set_values(state, trial, trial.reports)
    return True


def _add_report(trial: TrialRecord, event: ev.Reported, rule: ValueRule) -> Iterable[str]:
    """Add a report to the trial's reports and metrics; return the metrics that may have changed.

    If the trial has a report of the same step, the metrics of both are merged when the earlier one comes from this
    attempt, or from before the step at which this attempt resumed. Otherwise it comes from a lost attempt, and the
    new report replaces it.
    """
    reports = trial.reports
    if not reports or reports[-1].step < event.step:
        value = rule.value(event.metrics, current_value(reports) if rule.best else None)
        reports.append(Report(event.step, event.metrics, event.at, event.attempt, event.saved, value))
        trial.metrics.update(event.metrics)
        return event.metrics
    report = Report(event.step, event.metrics, event.at, event.attempt, event.saved)
    index = bisect_left(reports, event.step, key=attrgetter("step"))
    before = reports[index]
    changed = event.metrics
    if before.step != event.step:
        reports.insert(index, report)
    else:
        changed = {**before.metrics, **event.metrics}  # a replaced report may have metrics that the new one lacks
        if before.attempt == event.attempt or event.step <= trial.resumed_from:
            report = report._replace(metrics=changed, saved=event.saved or before.saved)
        reports[index] = report
    _update_report_values(reports, index, rule)
    _update_metrics(trial, changed)
    return changed


def _update_report_values(reports: list[Report], index: int, rule: ValueRule) -> None:
    """Compute Report.value again from the report at `index` on, which has changed."""
    before = current_value(reports[:index])
    for i in range(index, len(reports) if rule.best else index + 1):
        value = rule.value(reports[i].metrics, before)
        reports[i] = reports[i]._replace(value=value)
        before = before if value is None else value


def _update_metrics(trial: TrialRecord, names: Iterable[str]) -> None:
    """Look up the last report of each of these metrics again."""
    for name in names:
        value = next((report.metrics[name] for report in reversed(trial.reports) if name in report.metrics), None)
        if value is None:
            trial.metrics.pop(name, None)
        else:
            trial.metrics[name] = value


def _apply_checkpoint_saved(state: StudyState, event: ev.CheckpointSaved) -> bool:
    trial = running_trial(state, event)
    if trial is None:
        return False
    stored = event.name, event.attempt, event.step, event.partial, event.size_bytes, event.upload_seconds
    checkpoint, last = StoredCheckpoint(*stored), trial.checkpoints[-1] if trial.checkpoints else None
    # One that comes after a later one of its attempt is known already, or the server was late to create it.
    if last is not None and last.attempt == event.attempt and checkpoint.number <= last.number:
        return False
    index = bisect_left(trial.reports, event.step, key=attrgetter("step"))
    reported = index < len(trial.reports) and trial.reports[index].step == event.step
    # Before the first report there is nothing to resume from, unless the first step was saved in its middle.
    if not reported and (event.step > 0 or not event.partial):
        return False
    trial.checkpoints.append(checkpoint)
    trial.resume_step, trial.resume_partial = event.step, event.partial
    if not event.partial:
        trial.reports[index] = trial.reports[index]._replace(saved=True)
    return True


def _apply_ended(state: StudyState, event: ev.Ended) -> bool:
    trial = running_trial(state, event)
    if trial is None:
        return False
    state.unread.add_attempt(trial.config, event.unread, cut=event.cut)
    if event.cut:
        cut_attempt(state, trial, event.at)
        return True
    if complete(state, trial, event.at):
        return True
    missing = state.missing_metrics(trial)
    if unreported := [name for name in missing if name not in trial.metrics]:
        error, output = missing_metrics_error(unreported, trial.metrics), ""
        if trial.error_kind == "no_value" and trial.error and trial.error.startswith(error):
            error, output = trial.error, trial.output  # the same error as before, which has more details
        fail_attempt(state, trial, event.at, "no_value", error, output)
    else:
        error = join_with_and(f"{name} ended as {trial.metrics[name]}" for name in missing)
        fail_attempt(state, trial, event.at, "nan", error)
    return True


def _apply_failed(state: StudyState, event: ev.Failed) -> bool:
    trial = running_trial(state, event)
    if trial is None:
        return False
    fail_attempt(state, trial, event.at, event.kind, event.error, event.output)
    return True


def _apply_killed(state: StudyState, event: ev.Killed) -> bool:
    trial = running_trial(state, event)
    if trial is None:
        return False
    if trial.end_request:
        cut_attempt(state, trial, event.at)
    else:
        fail_attempt(state, trial, event.at, "timeout", trial.kill_reason or "killed", event.output)
    return True


def _apply_lost(state: StudyState, event: ev.Lost) -> bool:
    trial = running_trial(state, event)
    if trial is None:
        return False
    lose_attempt(state, trial, event.at)
    return True


def _apply_warned(state: StudyState, event: ev.Warned) -> bool:
    trial = running_trial(state, event)
    if trial is None:
        return False
    warnings = state.warnings if event.once else trial.warnings
    if event.message in warnings:
        return False
    warnings.append(event.message)
    return True


def _apply_disk_full(state: StudyState, event: ev.DiskFull) -> bool:
    trial = running_trial(state, event)
    if trial is None or (state.disk_full and event.error in trial.warnings):
        return False
    if event.error not in trial.warnings:
        trial.warnings.append(event.error)
    state.disk_full = event.error
    return True


def _apply_usage_measured(state: StudyState, event: ev.UsageMeasured) -> bool:
    trial = running_trial(state, event)
    if trial is None:
        return False
    last = trial.windows[-1].usage if trial.windows else None
    if last is not None and (event.attempt, event.step) <= (last.attempt, last.step):
        return False
    if not trial.windows:
        state.measured_trials.append(trial)
    machine = state.machines.get(trial.machine or "")
    trial.windows.append(UsageWindow(event, len(machine.running) if machine else 1))
    return True


# --- decisions of the conductor ---------------------------------------------------------------------------


def _apply_create(state: StudyState, event: ev.Create) -> bool:
    if event.trial != len(state.trials):
        return False
    if event.origin == ev.ENQUEUED:
        state.queue.pop(0)
    state.created_ids.append(event.trial)
    folder = f"{state.folder}/trials/{event.trial}" if state.folder else ""
    config = state.space.restored(event.config)
    trial = TrialRecord(event.trial, config, event.at, folder=folder, files=state.files, origin=event.origin)
    trial.value_rule, trial.expected_gain = state.value_rule, event.expected_gain
    state.trials.append(trial)
    state.counts[State.WAITING] += 1
    state.waiting[event.trial] = None
    state.tried[state.space.key(event.config)] += 1
    return True


def _apply_place(state: StudyState, event: ev.Place) -> bool:
    trial = state.trials[event.trial]
    if trial.state is not State.WAITING:
        return False
    if event.machine != ev.OUTSIDE:
        workers = event.workers or {event.machine: 1}
        if not state.fleet.place_trial(workers, trial.id):
            return False
        trial.workers, trial.save_every = workers, event.save_every
    trial.attempts, trial.end_reason, trial.failed_at = event.attempt, None, None
    trial.machine = event.machine
    trial.started_at = event.at
    trial.resumed_from, trial.step_before_attempt = event.resume_step, trial.step
    if trial.failures_since_retry:
        count_all_reports(state, trial)
    set_state(state, trial, State.RUNNING)
    return True


def _apply_end_request(state: StudyState, event: ev.Move | ev.Pause | ev.Stop) -> bool:
    """Note that the running attempt was asked to end after its next step, and why.

    The first request stays, with two exceptions: any request replaces "move", and "reach" replaces any request.
    """
    trial, request = running_trial(state, event), event.end_request
    if trial is None or trial.end_request == request:
        return False
    if trial.end_request not in (None, "move") and request != "reach":
        return False
    trial.end_request, trial.end_requested_at, trial.end_reason = request, event.at, event.why
    return True


def _apply_promote(state: StudyState, event: ev.Promote) -> bool:
    trial = state.trials[event.trial]
    if trial.state is not State.PAUSED:
        return False
    set_state(state, trial, State.WAITING)
    return True


def _apply_kill(state: StudyState, event: ev.Kill) -> bool:
    trial = running_trial(state, event)
    if trial is None or trial.kill_reason is not None:
        return False
    trial.kill_reason = event.why
    return True


def _apply_give_up(state: StudyState, event: ev.GiveUp) -> bool:
    trial = state.trials[event.trial]
    if trial.state not in (State.WAITING, State.PAUSED):
        return False
    if event.kind:
        trial.error_kind, trial.error = event.kind, event.why
    elif trial.stalled_losses:  # losses after its last failure, if it had one
        earlier = f"; before that: {trial.error}" if trial.error else ""
        trial.error_kind, trial.error = "lost", event.why + earlier
    elif not trial.error:
        trial.error = event.why
    set_state(state, trial, State.FAILED)
    end_trial(state, trial, event.at)
    state.leaders.note_change(trial)
    return True


def _apply_retry(state: StudyState, event: ev.Retry) -> bool:
    trial = state.trials[event.trial]
    has_failed = trial.state is State.FAILED and trial.origin != ev.KNOWN
    if not has_failed and not (trial.state is State.WAITING and trial.failures_since_retry):
        return False
    if trial.state is State.FAILED:
        state.ended.remove(trial)
        trial.ended_at = None
    count_all_reports(state, trial)
    trial.failures_before_retry, trial.stalled_losses = trial.failures, 0
    trial.failed_at, trial.seconds_before_retry = None, trial.seconds
    set_state(state, trial, State.WAITING)
    return True


def _apply_set_knobs(state: StudyState, event: ev.SetKnobs) -> bool:
    trial = state.trials[event.trial]
    # A decision to keep a probed setting is news, although the setting stays the same.
    keeps_probed = bool(trial.knob_changes) and trial.knob_changes[-1][1].by == ev.PROBE and event.by != ev.PROBE
    if trial.state.ended or (event.setting == trial.knob_setting and not keeps_probed):
        return False
    trial.knob_setting = event.setting
    trial.knob_changes.append((len(trial.windows), event))
    return True


HANDLERS: dict[type[ev.Event], Callable[[StudyState, Any], bool]] = {
    ev.Reported: _apply_reported,
    ev.CheckpointSaved: _apply_checkpoint_saved,
    ev.Ended: _apply_ended,
    ev.Failed: _apply_failed,
    ev.Killed: _apply_killed,
    ev.Lost: _apply_lost,
    ev.Warned: _apply_warned,
    ev.DiskFull: _apply_disk_full,
    ev.UsageMeasured: _apply_usage_measured,
    ev.Create: _apply_create,
    ev.Place: _apply_place,
    ev.Move: _apply_end_request,
    ev.Pause: _apply_end_request,
    ev.Stop: _apply_end_request,
    ev.Promote: _apply_promote,
    ev.Kill: _apply_kill,
    ev.GiveUp: _apply_give_up,
    ev.Retry: _apply_retry,
    ev.SetKnobs: _apply_set_knobs,
}
