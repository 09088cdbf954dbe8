"""Apply the conductor's decisions about trials to a study's state.

Each function applies one kind of decision. It returns False if the decision changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thriftune.state import events as ev
from thriftune.state.study_state import StudyState
from thriftune.state.trial_changes import count_all_reports, end_trial, running_trial, set_state
from thriftune.state.trial_record import State, TrialRecord


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
