"""Describe studies and trials in short texts, for the progress display and the command line."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from thriftune.common.formatting import (
    format_dollars,
    format_number,
    format_resources,
    format_seconds,
    format_time,
    format_unfinished,
    plural,
)
from thriftune.common.text import escaped, last_line
from thriftune.errors import NoBestTrial
from thriftune.results.ledger import SPOT_PRICE_UNKNOWN
from thriftune.results.models import find_best_model
from thriftune.results.trial_states import state_of, state_word
from thriftune.settings.engine_options import Ray, engine_of
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.state.trial_record import State, TrialRecord

# In this module, `has_driver` says whether a process drives the study now.

# --- configurations and values ----------------------------------------------------------------------------


def config_line(config: Mapping[str, Any]) -> str:
    """Return a configuration on one line, with numbers to four digits.

    An example is "lr=0.1235 act=relu".
    """
    rounded = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in config.items()}
    return " ".join(f"{name}={value}" for name, value in config_items(rounded))


def config_items(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the names and full values of a configuration.

    Control characters are escaped.
    """
    return [(escaped(name), escaped(str(value))) for name, value in config.items()]


def values_line(trial: TrialRecord, history: History) -> str:
    """Return the trial's objective values, such as "loss 0.3, latency_ms 12"."""
    values = (
        f"{each.metric} {format_number(history.metric_of(trial, each.metric))}" for each in history.objectives
    )
    return ", ".join(values)


def values_and_progress(trial: TrialRecord, history: History) -> str:
    """Return the trial's objective values, and its progress if it has not finished."""
    note = unfinished_note(trial, history)
    return values_line(trial, history) + (f" ({note})" if note else "")


def unfinished_note(trial: TrialRecord, history: History) -> str:
    """Return the progress of a trial that has not finished.

    An example is "unfinished, step 3 of 10". The text is empty for a finished trial.
    """
    return "" if trial.finished else format_unfinished(history.step_of_values(trial), history.max_steps)


def trial_label(trial: TrialRecord, history: History) -> str:
    """Return a trial's number and progress, such as "trial 7".

    The step of its value is added if that is not the last one, and its progress if it has not finished.
    """
    note, step = unfinished_note(trial, history), history.value_step(trial)
    at_step = f"at step {step}" if step < history.step_of_values(trial) else ""
    known = "known" if trial.origin == ev.KNOWN else ""
    return ", ".join(part for part in (f"trial {trial.id}", known, at_step, note) if part)


def is_finite(value: float | None) -> bool:
    """Return whether the value exists and is neither NaN nor infinite."""
    return value is not None and math.isfinite(value)


# --- states -----------------------------------------------------------------------------------------------


def state_label(trial: TrialRecord, history: History, has_driver: bool) -> str:
    """Return the trial's state for a table.

    This includes "converged", and "known" for a known result.
    """
    if trial.origin == ev.KNOWN and trial.finished:
        return "known"
    if trial.converged:
        return "converged"
    return state_word(state_of(trial, has_driver), history.finish_reason is not None)


def count_ended(history: History) -> int:
    """Count the trials that have ended.

    In a finished study, paused trials have ended too.
    """
    ended = {state for state in State if state.ended} | ({State.PAUSED} if history.finish_reason else set())
    return sum(history.counts[state] for state in ended)


# --- waiting ----------------------------------------------------------------------------------------------


def wait_reason(trial: TrialRecord, history: History, spec: Spec, has_driver: bool) -> str | None:
    """Return what a waiting or paused trial waits for, such as "waits for a free worker".

    None for a trial in another state, and for a paused trial of a finished study.
    """
    state = state_of(trial, has_driver)
    if state is State.PAUSED:
        return None if history.finish_reason else f"waits to be promoted by {spec.stopping}"
    if state is not State.WAITING:
        return None
    if not has_driver:
        reason = "for the study to be resumed"
    elif history.stop_requested_by or history.failed_alike or (history.disk_full and spec.disk_full == "stop"):
        reason = "for the study to be resumed: it is stopping"
    else:
        reason = _missing_resource(history, spec)
    notes = []
    if trial.failures_since_retry:
        notes.append(f"retry {trial.failures_since_retry} of {spec.retries} after {last_line(trial.error)}")
    elif trial.losses:
        notes.append("its worker was lost")
    if trial.attempts:
        restart = "starts from the beginning"
        if spec.target.kind == "command":
            restart = "starts its command again, which may have saved its own state"
        notes.append(f"goes on after step {trial.resume_step}" if trial.resume_step else restart)
    return "; ".join([f"waits {reason}", *notes])


def no_room_reason(history: History, spec: Spec) -> str:
    """Return what a study waits for when no machine has room for a trial.

    The text is empty if there is room. Only a study on a Ray cluster that runs no trial now can be without
    room.
    """
    engine = engine_of({"name": spec.engine, **spec.engine_options})
    if not isinstance(engine, Ray) or history.running or history.finish_reason or history.stop_requested_by:
        return ""
    slots = sum(machine.slots for machine in history.machines.values() if not machine.is_leaving)
    if slots >= engine.gang:
        return ""
    if history.fleet.renting:
        return f"waits for {_requested_machines(history)}"
    each = f"{format_resources(engine.worker)} each" if engine.gang > 1 else format_resources(engine.worker)
    room = f"the machines have room for {slots}" if slots else "no machine has room for one"
    return f"waits for {plural(engine.gang, 'worker')} of {each}: {room}"


def _missing_resource(history: History, spec: Spec) -> str:
    share = history.machine_share
    if history.fleet.renting:
        return f"for {_requested_machines(history)}"
    if not history.machines:
        return f"for a machine{_worker_resources(spec)}"
    if share is not None and share.workers is not None:
        workers = f"{plural(share.workers, 'worker')} {'is' if share.workers == 1 else 'are'}"
        return f"for a free worker: {workers} its share, because of {share.why}"
    if all(machine.is_leaving for machine in history.machines.values()):
        return "for another machine: the present ones are being preempted or released"
    return "for a free worker"


def _requested_machines(history: History) -> str:
    offers = Counter(rent.offer for rent in history.fleet.renting.values())
    return f"a machine: {', '.join(f'{count} {offer}' for offer, count in offers.items())} requested"


def _worker_resources(spec: Spec) -> str:
    engine = engine_of({"name": spec.engine, **spec.engine_options})
    return f" with {format_resources(engine.worker)}" if isinstance(engine, Ray) else ""


# --- results ----------------------------------------------------------------------------------------------


class BestOrFront(NamedTuple):
    """The best trial of a study, or its front if it has several objectives, as text."""

    label: str  # "best" or "front"; empty if `text` says why there is neither
    text: str  # empty if no trial has a value yet
    config: str = ""  # of the best trial

    def __str__(self) -> str:
        return " ".join(filter(None, self)) if self.text else ""


def best_or_front(history: History) -> BestOrFront:
    """Return a description of the best trial or of the front."""
    if front := history.front if len(history.objectives) > 1 else []:
        note = unfinished_note(front[0], history)
        ranges = [_value_ranges(front, history), *([note] if note else [])]
        return BestOrFront("front", f"{plural(len(front), 'trial')}, {', '.join(ranges)}")
    try:
        best = history.best
    except NoBestTrial:
        return BestOrFront("", history.why_infeasible())
    text = f"{history.metric} {format_number(best.value)} ({trial_label(best, history)})"
    return BestOrFront("best", text, config_line(best.config))


def no_best_line(history: History) -> str:
    """Return the text to show while the study has no best trial.

    An example is "all 4 trials failed".
    """
    trials = len(history.trials)
    if trials and history.counts[State.FAILED] == trials:
        return "the only trial failed" if trials == 1 else f"all {trials} trials failed"
    return "no trial has a value" if history.finish_reason else "no value yet"


def better_model_line(history: History) -> str:
    """Return a sentence about the best saved model.

    The text is empty if the model has the best trial's value.
    """
    try:
        best = history.best
    except NoBestTrial:
        return ""
    saved, _ = find_best_model(history, verify=False)
    if saved is None or saved.value == best.value or best.value is None:
        return ""
    text = f"trial {saved.trial.id} at step {saved.step} has the best saved model: {history.metric}"
    text = f"{text} {format_number(saved.value)}"
    not_saved = (
        "" if history.better(saved.value, best.value) else f", at step {history.value_step(best)}, not saved"
    )
    if saved.trial is best:
        return f"{text}; the trial's own value is {format_number(best.value)}{not_saved}"
    description = "the best finished one" if best.finished else "the best so far"
    return f"{text}; trial {best.id}, {description}, has {format_number(best.value)}{not_saved}"


def _value_ranges(trials: Sequence[TrialRecord], history: History) -> str:
    """Return each objective's lowest and highest value.

    An example is "loss 0.25 to 0.5, speed 1 to 3".
    """
    ranges = []
    for objective in history.objectives:
        values = [trial.metrics[objective.metric] for trial in trials]
        ends = dict.fromkeys((format_number(min(values)), format_number(max(values))))
        ranges.append(f"{objective.metric} {' to '.join(ends)}")
    return ", ".join(ranges)


# --- time, cost and limits --------------------------------------------------------------------------------


def machine_seconds(trial: TrialRecord, has_driver: bool, now: float) -> float:
    """Return the seconds that the trial has spent on machines.

    The running attempt is included.
    """
    if not has_driver or trial.state is not State.RUNNING or trial.started_at is None:
        return trial.seconds
    return trial.seconds + max(0.0, now - trial.started_at)


def cost_line(history: History, now: float) -> str:
    """Return the study's dollars until `now`, and what they are based on.

    The dollars are an estimate unless providers have billed every machine. The user's own machine counts with the
    list price of a similar machine; a rented machine counts with its list price.
    """
    dollars, fleet = format_dollars(history.dollars(now)), history.fleet
    offers = ", ".join(fleet.offers())
    if not offers:
        return format_dollars(0)
    if fleet.all_billed:
        return f"{dollars} ({offers})"
    if all(machine.id == ev.THIS_MACHINE for machine in (*fleet.past, *fleet.present.values())):
        return f"{dollars} if rented ({offers} on demand)"
    unknown = "" if fleet.prices_known else f"; {SPOT_PRICE_UNKNOWN}"
    return f"{dollars} (estimate from list prices: {offers}{unknown})"


def time_line(history: History, spec: Spec, now: float) -> str:
    """Return how long the study has run, and the time that is left until its deadline."""
    spent = history.driven_seconds(now)
    if spec.deadline_at is not None:
        left = format_seconds(max(0.0, spec.deadline_at - now))
        return f"{format_seconds(spent)}, until {format_time(spec.deadline_at)}, {left} left"
    if spec.deadline_seconds is None:
        return format_seconds(spent)
    left = format_seconds(max(0.0, spec.deadline_seconds - spent))
    return f"{format_seconds(spent)} of {format_seconds(spec.deadline_seconds)}, {left} left"


def limit_texts(spec: Spec) -> list[str]:
    """Return the limits of a study, such as ["100 trials", "until 2026-11-20 09:00 CET"]."""
    texts = [
        plural(spec.trials, "trial") if spec.trials else "",
        format_seconds(spec.deadline_seconds) if spec.deadline_seconds else "",
        f"until {format_time(spec.deadline_at)}" if spec.deadline_at else "",
        format_dollars(spec.budget_dollars) if spec.budget_dollars else "",
    ]
    return [text for text in texts if text]


def early_end_texts(spec: Spec) -> list[str]:
    """Return what may end a study before its limits.

    An example is ["target 0.95", "patience 20"].
    """
    texts = [
        "" if spec.target_value is None else f"target {spec.target_value:g}",
        "" if spec.patience is None else f"patience {spec.patience}",
        "convergence" if spec.stop_when_converged else "",
    ]
    return [text for text in texts if text]
