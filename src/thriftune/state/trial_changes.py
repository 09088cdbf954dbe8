"""Change the state and the values of a trial, for several kinds of events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thriftune.state import events as ev
from thriftune.state.reports import (
    counted_reports,
    current_value,
    last_step_of_attempt,
    latest_metrics,
    timed_steps_of_attempt,
)
from thriftune.state.study_state import StudyState
from thriftune.state.trial_record import FINISHING_REQUESTS, PastAttempt, Report, State, TrialRecord

_STATE_AFTER_REQUEST = {
    "stop": State.STOPPED,
    "converge": State.STOPPED,
    "reach": State.STOPPED,
    "pause": State.PAUSED,
}
"""The state of a trial whose attempt was cut and that did not complete, by its end request.

After any other end request, or without one, the trial waits again. An expired trial waits until the conductor
fails it.
"""


def running_trial(state: StudyState, event: Any) -> TrialRecord | None:
    """Return the trial of an event about an attempt.

    Returns None if that attempt is not running.
    """
    trial: TrialRecord | None = state.trials[event.trial] if 0 <= event.trial < len(state.trials) else None
    if trial is None or trial.machine is None or trial.attempts != event.attempt:
        return None
    return trial


def set_state(state: StudyState, trial: TrialRecord, new: State) -> None:
    """Set a trial's state, and update all collections of trials by state."""
    state.counts[trial.state] -= 1
    state.counts[new] += 1
    state.waiting.pop(trial.id, None)
    state.running.pop(trial.id, None)
    state.retrying.pop(trial.id, None)
    trial.state = new
    if new is State.RUNNING:
        state.running[trial.id] = None
        return
    if new is State.WAITING:
        state.waiting[trial.id] = None
        if trial.failed_at is not None:
            state.retrying[trial.id] = None
    state.leaders.note_change(trial)  # only trials in some states may lead


def set_values(state: StudyState, trial: TrialRecord, reports: Sequence[Report]) -> None:
    """Compute a trial's values again after its metrics have changed.

    `reports`: the trial's reports that count.
    """
    from_reports = state.value_rule.best and trial.origin != ev.KNOWN
    value = trial.value = current_value(reports) if from_reports else trial.metrics.get(state.metric)
    if len(state.objectives) == 1:  # the usual case, handled first because every report comes here
        trial.values = None if value is None else (value,)
    else:
        values = [trial.metrics.get(objective.metric) for objective in state.objectives]
        trial.values = None if None in values else tuple(values)  # type: ignore[arg-type]
    state.leaders.note_change(trial)


def count_all_reports(state: StudyState, trial: TrialRecord) -> None:
    """Let all reports of a trial count again.

    Called after complete(), which may have excluded some.
    """
    trial.metrics = latest_metrics(trial.reports)
    set_values(state, trial, trial.reports)


def end_trial(state: StudyState, trial: TrialRecord, at: float) -> None:
    """Record the end of a trial whose state was already set."""
    trial.ended_at = at
    state.ended.append(trial)


def end_attempt(state: StudyState, trial: TrialRecord, at: float, new: State) -> None:
    """End the running attempt of a trial and give the trial its new state."""
    state.fleet.remove_trial(trial.workers, trial.id)
    if trial.started_at is not None:
        trial.seconds += max(0.0, at - trial.started_at)
        if trial.workers:
            trial.past_attempts.append(_past_attempt(trial, at, new))
            state.past_attempt_count += 1
    trial.workers = {}
    trial.machine = trial.end_request = trial.end_requested_at = trial.kill_reason = None
    trial.last_report_number = 0
    set_state(state, trial, new)
    state.trials_since_best.add(trial, state.eligible(trial))
    if new.ended:
        end_trial(state, trial, at)


def _past_attempt(trial: TrialRecord, at: float, new: State) -> PastAttempt:
    """Return the record of the running attempt, which ends at `at`."""
    last_step = last_step_of_attempt(trial)
    # A trial that completed or was stopped loses no steps, because no later attempt repeats them.
    resumable_step = last_step if new in (State.COMPLETED, State.STOPPED) else trial.resume_step
    start = at if trial.started_at is None else trial.started_at
    return PastAttempt(
        trial.attempts,
        trial.workers,
        start,
        max(start, at),
        trial.resumed_from,
        last_step,
        resumable_step,
        *timed_steps_of_attempt(trial),
    )


def fail_attempt(
    state: StudyState, trial: TrialRecord, at: float, kind: str, error: str, output: str = ""
) -> None:
    """End the running attempt as failed.

    The trial then waits until a decision to retry it or to give it up.
    """
    trial.failures += 1
    trial.stalled_losses = 0
    if trial.knob_setting:
        if not trial.failed_settings:
            state.failed_with_knobs.append(trial)
        trial.failed_settings.append(trial.knob_setting)
    trial.failed_at, trial.error_kind, trial.error, trial.output = at, kind, error, output
    if state.missing_metrics(trial):
        end_attempt(state, trial, at, State.WAITING)
    else:
        cut_attempt(state, trial, at)


def lose_attempt(state: StudyState, trial: TrialRecord, at: float, *, stalls: bool = True) -> None:
    """End the running attempt as lost. `stalls`: the trial itself may be the cause."""
    trial.losses += 1
    trial.stalled_losses += stalls
    cut_attempt(state, trial, at)


def cut_attempt(state: StudyState, trial: TrialRecord, at: float) -> None:
    """End the running attempt before its training was complete.

    The attempt's end request, if it has one, decides the trial's new state.
    """
    request = trial.end_request
    finishes = request in FINISHING_REQUESTS
    stopped_at_last_step = request == "stop" and state.max_steps is not None and trial.step >= state.max_steps
    if (finishes or stopped_at_last_step) and complete(state, trial, at):
        trial.ended_early, trial.converged = finishes, request == "converge"
        return
    end_attempt(state, trial, at, _STATE_AFTER_REQUEST.get(trial.end_request or "", State.WAITING))


def complete(state: StudyState, trial: TrialRecord, at: float) -> bool:
    """Complete the trial if it has all needed metrics; return whether it did."""
    reports = counted_reports(trial)
    if len(reports) < len(trial.reports):
        trial.metrics = latest_metrics(reports)
        set_values(state, trial, reports)
    if state.missing_metrics(trial):
        return False
    end_attempt(state, trial, at, State.COMPLETED)
    return True
