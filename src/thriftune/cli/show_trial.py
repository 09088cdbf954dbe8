"""Print one trial in full: its state, values, configuration, learning curve, error and warnings."""

from __future__ import annotations

import json
import time

from rich.console import Console
from rich.table import Table
from rich.text import Text

from thriftune.cli.screen import YES_NO, chart, facts_table, listed, section
from thriftune.common.command_hints import logs_hint
from thriftune.common.formatting import format_number, format_seconds
from thriftune.common.text import escaped, printable
from thriftune.results.curves import learning_curve
from thriftune.results.models import find_model
from thriftune.show import cost_and_limits, describe, waiting
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.trial_record import State, TrialRecord
from thriftune.study.result import Result


def show_trial(console: Console, trial: TrialRecord, result: Result, has_driver: bool, store_url: str) -> None:
    """Print all that is known about a trial."""
    spec = result.spec
    console.print(_facts(trial, result, has_driver))
    if (model := find_model(trial, verify=False)).folder is not None:
        of_step = "" if model.step is None else f" of step {model.step}"
        # On one line, so that the path can be copied.
        console.print(Text(f"model{of_step}: {model.where}"), soft_wrap=True)
    curve = learning_curve(trial, spec.metric)
    if len(curve) > 1:
        section(console, f"{spec.metric} by step")
        chart(console, curve, stairs=False)
    if trial.reports:
        others = {
            name: value for name, value in trial.reports[-1].metrics.items() if name not in spec.needed_metrics
        }
        if others:
            section(console, f"other metrics at step {trial.step}")
            lines = [f"{escaped(name)} {format_number(value)}" for name, value in others.items()]
            listed(console, lines, len(lines))
    for title, text in (
        ("error of the last failed attempt", trial.error),
        ("last output of the last failed attempt", trial.output),
    ):
        if text:
            section(console, title)
            console.print(Text(printable(text)))
    if trial.attempts_with_log:
        section(console, "full output")
        console.print(Text(logs_hint(spec.name, store_url, trial.id)))
    if trial.warnings:
        section(console, "warnings")
        listed(console, [printable(warning) for warning in trial.warnings], len(trial.warnings))


def _facts(trial: TrialRecord, result: Result, has_driver: bool) -> Table:
    spec, history = result.spec, result.history
    facts = facts_table()
    facts.add_row("trial", Text(f"{trial.id} of study {spec.name}", style="bold"))
    facts.add_row("state", Text(describe.state_label(trial, history, has_driver)))
    if reason := waiting.wait_reason(trial, history, spec, has_driver):
        facts.add_row("", Text(reason, style="yellow"))
    elif trial.ended_early:
        facts.add_row("", Text(f"finished after step {trial.step}: {trial.end_reason}"))
    elif trial.state in (State.STOPPED, State.PAUSED) and trial.end_reason:
        rule = trial.end_reason.removeprefix("by ")
        is_rule = rule != trial.end_reason
        why = f" by the stopping rule ({rule})" if is_rule else f": {trial.end_reason}"
        facts.add_row("", Text(f"stopped after step {trial.step}{why}"))
    for metric in spec.needed_metrics:
        facts.add_row(Text(metric), Text(_value_line(trial, metric, history)))
    if spec.constraints:
        facts.add_row("feasible", Text(YES_NO[history.feasible(trial)]))
    for name, value in describe.config_items(trial.config):
        facts.add_row(Text(f"  {name}"), Text(value))
    for name, value in trial.attrs.items():
        facts.add_row(Text(f"  attrs {escaped(name)}"), Text(escaped(json.dumps(value))))
    if trial.origin != ev.SEARCHER:
        facts.add_row("origin", Text(trial.origin))
    facts.add_row("attempts", Text(f"{trial.attempts}: {trial.failures} failed, {trial.losses} lost"))
    saved = f"the last checkpoint at step {trial.resume_step}" if trial.resume_step else "no checkpoint"
    facts.add_row("steps", Text(f"{trial.step}, {saved}"))
    seconds = cost_and_limits.machine_seconds(trial, has_driver, time.time())
    facts.add_row("time", Text(format_seconds(seconds)))
    return facts


def _value_line(trial: TrialRecord, metric: str, history: History) -> str:
    """Return the value that counts.

    If a later step reported another value, add the step of the one and the value of the other.
    """
    value, last = history.metric_of(trial, metric), trial.metrics.get(metric)
    if value == last:
        return format_number(value)
    return f"{format_number(value)} at step {history.value_step(trial)} (last {format_number(last)})"
