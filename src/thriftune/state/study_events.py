"""Apply events about a whole study, and about its user's additions, to its state.

Each function applies one kind of event. It returns False if the event changes nothing and need not be recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thriftune.space.objectives import join_with_and
from thriftune.space.space import Space
from thriftune.state import events as ev
from thriftune.state.attributes import set_attribute
from thriftune.state.earlier_results import EarlierStudy
from thriftune.state.study_state import StudyState
from thriftune.state.trial_changes import end_trial, running_trial, set_values
from thriftune.state.trial_record import State, TrialRecord


def _apply_warm_started(state: StudyState, event: ev.WarmStarted) -> bool:
    if state.trials or any((earlier.id, earlier.study) == (event.id, event.study) for earlier in state.earlier):
        return False
    trials = tuple((config, value) for config, value in event.trials)
    space = Space.from_json(event.space)
    variances = tuple(event.variances)
    if len(variances) not in (0, len(trials)):
        raise ValueError(f"{len(variances)} variances of {len(trials)} trials")
    definition = event.study, space, event.metric, event.maximize
    state.earlier.append(EarlierStudy(*definition, trials, event.id, variances, event.step))
    return True


def _apply_stop_requested(state: StudyState, event: ev.StopRequested) -> bool:
    if state.stop_requested_by:
        return False
    state.stop_requested_by = event.by
    return True


def _apply_trial_requested(state: StudyState, event: ev.TrialRequested) -> bool:  # noqa: ARG001 (the Create decision that answers it changes the state)
    return True


def _apply_enqueued(state: StudyState, event: ev.Enqueued) -> bool:
    config = state.space.check_part(event.config)
    if not state.is_new(config):
        return False
    state.queue.append(config)
    state.enqueued_keys.add(state.space.key(config))
    return True


def _apply_result_added(state: StudyState, event: ev.ResultAdded) -> bool:
    config = state.space.restored(state.space.check(event.config))
    result = state.space.key(config), tuple(sorted(event.metrics.items())), event.error
    if result in state.known_results:
        return False
    trial_state = State.FAILED if event.error else State.COMPLETED
    trial = TrialRecord(len(state.trials), config, event.at, trial_state, origin=ev.KNOWN)
    trial.metrics = dict(event.metrics)
    if event.error:
        trial.error, trial.error_kind = event.error, "told"
    elif missing := state.missing_metrics(trial):
        raise ValueError(f"a known result has no number for {join_with_and(missing)}")
    state.known_results.add(result)
    state.tried[state.space.key(config)] += 1
    state.trials.append(trial)
    set_values(state, trial, ())
    end_trial(state, trial, event.at)
    return True


def _apply_attribute_set(state: StudyState, event: ev.AttributeSet) -> bool:
    if event.trial is None:
        return set_attribute(state.attrs, event.name, event.value)
    if event.attempt is not None:
        trial = running_trial(state, event)
    else:
        trial = state.trials[event.trial] if event.trial < len(state.trials) else None
    return trial is not None and set_attribute(trial.attrs, event.name, event.value)


def _apply_stop_after_failures(state: StudyState, event: ev.StopAfterFailures) -> bool:
    if state.failed_alike:
        return False
    state.failed_alike = tuple(event.trials)
    return True


def _apply_limit_trials(state: StudyState, event: ev.LimitTrialsPerMachine) -> bool:
    if event.slots in state.trial_limits:
        return False
    state.trial_limits[event.slots] = event
    return True


def _apply_finish(state: StudyState, event: ev.Finish) -> bool:
    state.finish_reason = event.why
    return True


HANDLERS: dict[type[ev.Event], Callable[[StudyState, Any], bool]] = {
    ev.WarmStarted: _apply_warm_started,
    ev.StopRequested: _apply_stop_requested,
    ev.TrialRequested: _apply_trial_requested,
    ev.Enqueued: _apply_enqueued,
    ev.ResultAdded: _apply_result_added,
    ev.AttributeSet: _apply_attribute_set,
    ev.StopAfterFailures: _apply_stop_after_failures,
    ev.LimitTrialsPerMachine: _apply_limit_trials,
    ev.Finish: _apply_finish,
}
