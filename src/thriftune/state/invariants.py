"""Check that the state of a study does not contradict itself.

Tests run these checks after every event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isfinite

from thriftune.state import events as ev
from thriftune.state.reports import counted_reports, current_value, latest_metrics
from thriftune.state.study_state import StudyState
from thriftune.state.trial_record import Report, State, TrialRecord


def check_invariants(state: StudyState) -> None:
    """Raise AssertionError if an invariant of the state does not hold."""
    assert [trial.id for trial in state.trials] == list(range(len(state.trials)))
    assert state.created_ids == [trial.id for trial in state.trials if trial.origin != ev.KNOWN]
    assert +state.counts == Counter(state.trials[i].state for i in state.created_ids)
    assert sum(state.tried.values()) == len(state.trials)
    assert {state.space.key(config) for config in state.queue} <= state.enqueued_keys
    created_from_queue = sum(trial.origin == ev.ENQUEUED for trial in state.trials)
    assert len(state.queue) + created_from_queue == len(state.enqueued_keys)
    assert sorted(trial.id for trial in state.ended) == [t.id for t in state.trials if t.state.ended]
    for trial in state.trials:
        if trial.origin == ev.KNOWN:
            _check_known_result(state, trial)
        else:
            _check_state(state, trial)
            _check_values(state, trial)
    for machine in state.machines.values():
        assert all(state.trials[i].workers[machine.id] == count for i, count in machine.running.items())
    state.fleet.validate()
    state.leaders.validate()


def _check_known_result(state: StudyState, trial: TrialRecord) -> None:
    assert trial.state is (State.FAILED if trial.error else State.COMPLETED)
    assert not trial.attempts
    assert not trial.reports
    assert trial.value == trial.metrics.get(state.metric)


def _check_state(state: StudyState, trial: TrialRecord) -> None:
    running = trial.state is State.RUNNING
    assert (trial.id in state.waiting) == (trial.state is State.WAITING)
    assert (trial.id in state.running) == running
    assert (trial.machine is not None) == running
    failed_last = trial.state is State.WAITING and trial.failed_at is not None
    assert (trial.id in state.retrying) == failed_last
    assert running or (trial.end_request is None and trial.kill_reason is None)
    assert (trial.ended_at is not None) == trial.state.ended
    assert trial.attempts >= trial.failures + trial.losses
    assert trial.state is not State.COMPLETED or state.has_values(trial)
    assert trial.state is State.COMPLETED or not trial.ended_early
    assert trial.ended_early or not trial.converged
    assert trial.state is not State.FAILED or trial.error
    if running and trial.machine != ev.OUTSIDE:
        assert trial.machine in trial.workers
    for machine_id, count in trial.workers.items():
        assert state.machines[machine_id].running[trial.id] == count


def _check_values(state: StudyState, trial: TrialRecord) -> None:
    running = trial.state is State.RUNNING
    reports = counted_reports(trial) if trial.state is State.COMPLETED else trial.reports
    best_counts = state.value_rule.best
    assert trial.value is (current_value(reports) if best_counts else trial.metrics.get(state.metric))
    assert not best_counts or trial.value == _best_value(state, reports) or not isfinite(trial.value or 0.0)
    assert (trial.values is None) == any(each.metric not in trial.metrics for each in state.objectives)
    if running or trial.state is State.COMPLETED:
        assert trial.metrics == latest_metrics(trial.reports if running else counted_reports(trial))
    steps = [report.step for report in trial.reports]
    assert steps == sorted(set(steps))
    assert not trial.resume_step or trial.resume_step in steps
    _check_checkpoints(trial)


def _check_checkpoints(trial: TrialRecord) -> None:
    names = [each.name for each in trial.checkpoints]
    assert len(names) == len(set(names))
    steps = {report.step for report in trial.reports}
    assert all(each.step in steps or (each.partial and each.step == 0) for each in trial.checkpoints)
    newest = trial.checkpoints[-1] if trial.checkpoints else None
    assert not trial.resume_partial or (newest is not None and newest.partial)
    assert not trial.resume_partial or (newest is not None and newest.step == trial.resume_step)


def _best_value(state: StudyState, reports: Sequence[Report]) -> float | None:
    values = (report.metrics.get(state.metric) for report in reports)
    finite = [value for value in values if value is not None and isfinite(value)]
    return (max if state.maximize else min)(finite) if finite else None
