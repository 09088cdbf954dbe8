"""How is it said? Numbers, configurations and states as people read them, for the live view and the CLI alike."""

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


def config_line(config: Mapping[str, Any]) -> str:
    """Return a configuration on one line, with numbers to four digits, such as "lr=0.1235 act=relu"."""
    rounded = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in config.items()}
    return " ".join(f"{name}={value}" for name, value in settings(rounded))


def settings(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the names and values of a configuration in full, without characters that control a terminal."""
    return [(escaped(name), escaped(str(value))) for name, value in config.items()]


def state_line(trial: TrialRecord, history: History, driven: bool) -> str:
    """Return its state for a table: "converged" where a rule found that, "known" for a known result."""
    if trial.origin == ev.KNOWN and trial.finished:
        return "known"
    return (
        "converged" if trial.converged else state_word(state_of(trial, driven), history.finish_reason is not None)
    )


def seconds_of(trial: TrialRecord, driven: bool, now: float) -> float:
    """What a trial has spent on machines so far, the attempt that runs now included."""
    if not driven or trial.state is not State.RUNNING or trial.started_at is None:
        return trial.seconds
    return trial.seconds + max(0.0, now - trial.started_at)


def waits_for(trial: TrialRecord, history: History, spec: Spec, driven: bool) -> str | None:
    """What a trial that is not running and has not ended is waiting for; nothing, once the study has finished."""
    state = state_of(trial, driven)
    if state is State.PAUSED:
        return None if history.finish_reason else f"waits to be promoted by {spec.stopping}"
    if state is not State.WAITING:
        return None
    if not driven:
        what = "for the study to be resumed"
    elif history.stop_requested_by or history.failed_alike or (history.disk_full and spec.disk_full == "stop"):
        what = "for the study to be resumed: it is stopping"
    else:
        what = _what_is_missing(history, spec)
    notes = []
    if trial.failures_since_retry:
        notes.append(f"retry {trial.failures_since_retry} of {spec.retries} after {last_line(trial.error)}")
    elif trial.losses:
        notes.append("its worker was lost")
    if trial.attempts:
        anew = "starts from the beginning"
        if spec.target.kind == "command":
            anew = "starts its command again, which may have saved its own state"
        notes.append(f"goes on after step {trial.resume_step}" if trial.resume_step else anew)
    return "; ".join([f"waits {what}", *notes])


def stands_still(history: History, spec: Spec) -> str:
    """What a study waits for that can begin nothing, as no machine has room for its workers; empty if it can."""
    where = engine_of({"name": spec.engine, **spec.engine_options})
    if not isinstance(where, Ray) or history.running or history.finish_reason or history.stop_requested_by:
        return ""
    slots = sum(machine.slots for machine in history.machines.values() if not machine.is_leaving)
    if slots >= where.gang:
        return ""
    if history.fleet.renting:
        return f"waits for {_asked_for(history)}"
    each = f"{format_resources(where.worker)} each" if where.gang > 1 else format_resources(where.worker)
    there = f"there is room for {slots}" if slots else "no machine that is there has room for one"
    return f"waits for {plural(where.gang, 'worker')} of {each}: {there}"


def _with_room(spec: Spec) -> str:
    where = engine_of({"name": spec.engine, **spec.engine_options})
    return f" with {format_resources(where.worker)}" if isinstance(where, Ray) else ""


def _asked_for(history: History) -> str:
    offers = Counter(rent.offer for rent in history.fleet.renting.values())
    return f"a machine: {', '.join(f'{count} {offer}' for offer, count in offers.items())} asked for"


def _what_is_missing(history: History, spec: Spec) -> str:
    share = history.machine_share
    if history.fleet.renting:
        return f"for {_asked_for(history)}"
    if not history.machines:
        return f"for a machine{_with_room(spec)}"
    if share is not None and share.workers is not None:
        have = f"{plural(share.workers, 'worker')} {'is' if share.workers == 1 else 'are'}"
        return f"for a free worker: {have} its share, because of {share.why}"
    if all(machine.is_leaving for machine in history.machines.values()):
        return "for a machine: those that are there will be taken away"
    return "for a free worker"


class Found(NamedTuple):
    """What a study has found so far, in words."""

    name: str  # "best"; with several objectives "front"; none for a sentence that says why there is neither
    text: str  # empty if there is nothing to tell yet
    config: str = ""  # of the best trial

    def __str__(self) -> str:
        return " ".join(filter(None, self)) if self.text else ""


def found(history: History) -> Found:
    if front := history.front if len(history.objectives) > 1 else []:
        note = unfinished(front[0], history)
        ranges = [_ranges(front, history), *([note] if note else [])]
        return Found("front", f"{plural(len(front), 'trial')}, {', '.join(ranges)}")
    try:
        best = history.best
    except NoBestTrial:
        return Found("", history.why_infeasible())
    text = f"{history.metric} {format_number(best.value)} ({which(best, history)})"
    return Found("best", text, config_line(best.config))


def model(history: History) -> str:
    """Return which saved model has another value than the best trial, in words; empty where there is none."""
    try:
        best = history.best
    except NoBestTrial:
        return ""
    found, _ = find_best_model(history, verify=False)
    if found is None or found.value == best.value or best.value is None:
        return ""
    saved = f"trial {found.trial.id} at step {found.step} has the best saved model: {history.metric}"
    saved = f"{saved} {format_number(found.value)}"
    lost = "" if history.better(found.value, best.value) else f", at step {history.value_step(best)}, not saved"
    if found.trial is best:
        return f"{saved}; the trial's own value is {format_number(best.value)}{lost}"
    which_one = "the best finished one" if best.finished else "the best so far"
    return f"{saved}; trial {best.id}, {which_one}, has {format_number(best.value)}{lost}"


def no_value(history: History) -> str:
    """Return what stands in the place of the best trial while there is none, such as "all 4 trials failed"."""
    trials = len(history.trials)
    if trials and history.counts[State.FAILED] == trials:
        return "the only trial failed" if trials == 1 else f"all {trials} trials failed"
    return "no trial has a value" if history.finish_reason else "no value yet"


def unfinished(trial: TrialRecord, history: History) -> str:
    """Return "unfinished, step 3 of 10" for a leading trial that has not finished, else nothing."""
    return "" if trial.finished else format_unfinished(history.step_of_values(trial), history.max_steps)


def values_and_progress(trial: TrialRecord, history: History) -> str:
    """Return its objectives, and how far it has come if it leads without having finished."""
    note = unfinished(trial, history)
    return values_line(trial, history) + (f" ({note})" if note else "")


def which(trial: TrialRecord, history: History) -> str:
    """Return "trial 7", the step of its value unless that is its last, and how far an unfinished one has come."""
    note, step = unfinished(trial, history), history.value_step(trial)
    at = f"at step {step}" if step < history.step_of_values(trial) else ""
    known = "known" if trial.origin == ev.KNOWN else ""
    return ", ".join(part for part in (f"trial {trial.id}", known, at, note) if part)


def _ranges(trials: Sequence[TrialRecord], history: History) -> str:
    """From where to where each objective goes."""
    ranges = []
    for objective in history.objectives:
        values = [trial.metrics[objective.metric] for trial in trials]
        ends = dict.fromkeys((format_number(min(values)), format_number(max(values))))
        ranges.append(f"{objective.metric} {' to '.join(ends)}")
    return ", ".join(ranges)


def values_line(trial: TrialRecord, history: History) -> str:
    """Its objectives, such as "loss 0.3, latency_ms 12"."""
    values = (
        f"{each.metric} {format_number(history.metric_of(trial, each.metric))}" for each in history.objectives
    )
    return ", ".join(values)


def cost_line(history: History, now: float) -> str:
    """Return the dollars so far and what they are for.

    They are an estimate unless providers have billed all machines: for a machine of one's own, what a similar one
    rents for; for rented machines, by list prices.
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
    spent = history.driven_seconds(now)
    if spec.deadline_at is not None:
        left = format_seconds(max(0.0, spec.deadline_at - now))
        return f"{format_seconds(spent)}, until {format_time(spec.deadline_at)}, {left} left"
    if spec.deadline_seconds is None:
        return format_seconds(spent)
    left = format_seconds(max(0.0, spec.deadline_seconds - spent))
    return f"{format_seconds(spent)} of {format_seconds(spec.deadline_seconds)}, {left} left"


def limits(spec: Spec) -> list[str]:
    """Return when a study ends at the latest, such as ["100 trials", "until 2026-11-20 09:00 CET"]."""
    found = [
        plural(spec.trials, "trial") if spec.trials else "",
        format_seconds(spec.deadline_seconds) if spec.deadline_seconds else "",
        f"until {format_time(spec.deadline_at)}" if spec.deadline_at else "",
        format_dollars(spec.budget_dollars) if spec.budget_dollars else "",
    ]
    return [each for each in found if each]


def criteria(spec: Spec) -> list[str]:
    """Return what may end a study before its limits, such as ["target 0.95", "patience 20"]."""
    found = [
        "" if spec.target_value is None else f"target {spec.target_value:g}",
        "" if spec.patience is None else f"patience {spec.patience}",
        "convergence" if spec.stop_when_converged else "",
    ]
    return [each for each in found if each]


def ended(history: History) -> int:
    """Return how many trials have ended; those that are paused have, once nothing is left to do."""
    over = {state for state in State if state.ended} | ({State.PAUSED} if history.finish_reason else set())
    return sum(history.counts[state] for state in over)


def finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
