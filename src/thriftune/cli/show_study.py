"""Print the state of a study: its facts, its best and recent trials, and its failures."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from thriftune.cli.screen import YES_NO, chart, facts_table, listed, section
from thriftune.common import formatting
from thriftune.common.command_hints import resume_hint, show_hint
from thriftune.common.formatting import format_seconds
from thriftune.common.text import escaped, printable
from thriftune.launch.warm_start import taken
from thriftune.results.cost_ledger import Ledger
from thriftune.results.curves import best_so_far
from thriftune.results.trial_states import counts_line
from thriftune.show import cost_and_limits, describe, waiting
from thriftune.space.objectives import join_with_and
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.state.trial_record import State, TrialRecord
from thriftune.store.protocol import Store
from thriftune.study.result import Result

_MAX_BEST, _MAX_RECENT, _MAX_FAILED, _MAX_WAITING, _MAX_WARNINGS = 5, 5, 3, 5, 3
_MAX_FRONT = 20
_TRACEBACK_LINES = 4
"""Last lines of a traceback that are shown: the error and where it was raised."""


def show_study(console: Console, result: Result, store: Store) -> None:
    """Print the state of a study."""
    spec, history = result.spec, result.history
    has_driver = store.driver(spec.name) is not None
    console.print(_facts(result, store, has_driver))
    curve = [(float(point.trials), point.value) for point in best_so_far(history)]
    if len(curve) > 1:
        section(console, f"best {spec.metric} so far, by trials ended")
        chart(console, curve, stairs=True)
    _show_trials(console, spec, history, has_driver)
    if has_driver and (reason := waiting.no_room_reason(history, spec)):
        console.print(f"the study {reason}", markup=False)
    _show_waiting(console, spec, history, has_driver)
    _show_failed(console, spec, history, store)
    _show_warnings(console, history)


def _facts(result: Result, store: Store, has_driver: bool) -> Table:
    spec, history = result.spec, result.history
    facts = facts_table()
    facts.add_row("study", Text(spec.name, style="bold"))
    facts.add_row("state", Text(_state_line(spec, history, store)))
    facts.add_row("runs", Text(_target_line(spec)))
    if sources := taken(spec, history):
        used = ", ".join(f"{name} ({formatting.plural(count, 'trial')})" for name, count in sources)
        facts.add_row("warm start", Text(used))
    limit = f" of {spec.trials}" if spec.trials else ""
    counts = counts_line(history, has_driver)
    facts.add_row("trials", Text(f"{describe.count_ended(history)}{limit} ended: {counts}"))
    if history.known_result_count:
        facts.add_row("known", Text(f"{formatting.plural(history.known_result_count, 'result')} from elsewhere"))
    for name, value in history.attrs.items():
        facts.add_row(Text(f"  {escaped(name)}"), Text(escaped(json.dumps(value))))
    if early_ends := cost_and_limits.early_end_texts(spec):
        facts.add_row("ends early", Text(f"by {', '.join(early_ends)}"))
    best = describe.best_or_front(history)
    text = best.text or describe.no_best_line(history)
    facts.add_row(best.label or "best", Text(f"{text} {best.config}".rstrip(), style="bold"))
    if model := describe.better_model_line(history):
        facts.add_row("model", Text(model))
    if spec.target.kind != "outside":
        now = time.time() if has_driver else history.last_at
        facts.add_row("time", Text(cost_and_limits.time_line(history, spec, now)))
        facts.add_row("cost", Text(cost_and_limits.cost_line(history, now)))
        ledger = Ledger.of(history, now)
        if ledger.joules:
            facts.add_row("energy", Text(formatting.format_energy_total(ledger.joules, ledger.estimated_joules)))
    return facts


def _state_line(spec: Spec, history: History, store: Store) -> str:
    """Return whether the study runs, and if not, why it stopped and how to resume it."""
    if spec.target.kind == "outside":
        return "open: its user asks and tells"
    if (driver := store.driver(spec.name)) is not None:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(driver.since))
        stopping = f", stopping ({history.stop_requested_by})" if history.stop_requested_by else ""
        return f"running by process {driver.pid} on {driver.host} since {since}{stopping}"
    if history.finish_reason:
        return f"finished: {history.finish_reason}"
    if history.driver is not None and history.stop_requested_by:
        reason = f"stopped at once ({history.stop_requested_by})"
    elif history.driver is not None:
        reason = f"interrupted: process {history.driver.pid} on {history.driver.host} has ended"
    elif history.disk_full and spec.disk_full == "stop":
        reason = "the disk was full"
    elif history.stop_requested_by:
        reason = f"stopped by {history.stop_requested_by}"
    elif history.failed_alike:
        reason = f"stopped because trials {join_with_and(history.failed_alike)} all failed in the same way"
    else:
        reason = "stopped" if history.trials else "not started yet"
    return f"{reason}; to resume: {resume_hint(spec.name, store.url)}"


def _target_line(spec: Spec) -> str:
    """Return what a study trains, its goal, its searcher and its stopping rule."""
    texts = {"outside": "its user's own code", "pickled": "a function of a script"}
    target = texts.get(spec.target.kind, printable(str(spec.target)))
    goal = spec.goal.replace("minimize ", "minimizes ").replace("maximize ", "maximizes ")
    rule = f", stopping rule {spec.stopping}" if spec.judged else ""
    return f"{target}; {goal}; searcher {spec.searcher}{rule}"


def _show_trials(console: Console, spec: Spec, history: History, has_driver: bool) -> None:
    if len(spec.objectives) > 1:
        best = history.front[:_MAX_FRONT]
        title = f"front, {len(best)} of {len(history.front)}" if len(best) < len(history.front) else "front"
    else:
        competing = [trial for trial in history.trials if history.may_lead(trial)]
        competing.sort(key=lambda trial: trial.value or 0.0, reverse=spec.maximize)
        best, title = competing[:_MAX_BEST], "best trials"
    if best:
        if note := describe.unfinished_note(best[0], history):
            title += f" ({note})"
        section(console, title)
        console.print(_trial_table(spec, history, best, has_driver))
    shown = {trial.id for trial in best}
    recent = [trial for trial in history.trials[-_MAX_RECENT:][::-1] if trial.id not in shown]
    if recent:
        section(console, "most recent trials")
        console.print(_trial_table(spec, history, recent, has_driver))


def _trial_table(spec: Spec, history: History, trials: Sequence[TrialRecord], has_driver: bool) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("trial", justify="right")
    table.add_column("state", no_wrap=True)
    for metric in spec.needed_metrics:
        table.add_column(Text(metric), justify="right", no_wrap=True)
    if spec.constraints:
        table.add_column("feasible", no_wrap=True)
    table.add_column("steps", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("configuration", overflow="fold")
    now = time.time()
    for trial in trials:
        steps = f"{trial.step}/{spec.max_steps}" if spec.max_steps else str(trial.step)
        table.add_row(
            str(trial.id),
            describe.state_label(trial, history, has_driver),
            *(formatting.format_number(history.metric_of(trial, metric)) for metric in spec.needed_metrics),
            *([YES_NO[history.feasible(trial)]] if spec.constraints else []),
            steps,
            format_seconds(cost_and_limits.machine_seconds(trial, has_driver, now)),
            Text(describe.config_line(trial.config)),
        )
    return table


def _show_waiting(console: Console, spec: Spec, history: History, has_driver: bool) -> None:
    reasons = ((trial.id, waiting.wait_reason(trial, history, spec, has_driver)) for trial in history.trials)
    lines = [f"trial {number} {reason}" for number, reason in reasons if reason]
    if lines:
        section(console, "waiting")
        listed(console, lines, _MAX_WAITING)


def _show_failed(console: Console, spec: Spec, history: History, store: Store) -> None:
    failed = [trial for trial in history.trials if trial.state is State.FAILED]
    if not failed:
        return
    section(console, "failed trials")
    for trial in failed[-_MAX_FAILED:][::-1]:
        attempts = formatting.plural(trial.attempts, "attempt")
        line = f"trial {trial.id}: {trial.error_kind}, {attempts}, {describe.config_line(trial.config)}"
        console.print(Text(line, style="red"))
        for error_line in printable(trial.error or "").splitlines()[-_TRACEBACK_LINES:]:
            console.print(Text(f"    {error_line}"))
    if len(failed) > _MAX_FAILED:
        console.print(Text(f"and {len(failed) - _MAX_FAILED} more", style="dim"))
    console.print(Text(f"for the full error: {show_hint(spec.name, store.url, 'N')}", style="dim"))


def _show_warnings(console: Console, history: History) -> None:
    """Print the study's warnings, then those of its trials.

    Each text is printed once. Texts of later trials come first.
    """
    trials_by_text: dict[str, list[int]] = {}
    for trial in history.trials:
        for warning in trial.warnings:
            trials_by_text.setdefault(printable(warning), []).append(trial.id)
    lines = []
    for text, trials in trials_by_text.items():
        others = f" and {formatting.plural(len(trials) - 1, 'other')}" if len(trials) > 1 else ""
        lines.append((trials[-1], f"trial {trials[-1]}{others}: {text}"))
    study_warnings = [printable(warning) for warning in history.all_warnings]
    if lines or study_warnings:
        section(console, "warnings")
        listed(console, study_warnings, len(study_warnings))
        listed(console, [line for _, line in sorted(lines, reverse=True)], _MAX_WARNINGS)
