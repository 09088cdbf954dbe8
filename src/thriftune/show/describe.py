"""Describe studies and trials in short texts, for the progress display and the command line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from thriftune.common.formatting import (
    format_number,
    format_unfinished,
    plural,
)
from thriftune.common.text import escaped
from thriftune.errors import NoBestTrial
from thriftune.results.models import find_best_model
from thriftune.results.trial_states import state_of, state_word
from thriftune.state import events as ev
from thriftune.state.history import History
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

    Examples are "unfinished, step 3 of 10" and, in a finished study, "stopped at step 3 of 10". The text is empty
    for a finished trial.
    """
    if trial.finished:
        return ""
    study_finished = history.finish_reason is not None
    return format_unfinished(history.step_of_values(trial), history.max_steps, stopped=study_finished)


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
