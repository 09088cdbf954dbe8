"""`thriftune show` and `thriftune best`: what came of a study so far."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from thriftune.cli.as_json import best_json, front_json, report_json, result_json, trial_json
from thriftune.cli.common import existing_store, json_option, plot_option, print_json, store_option, trial_of
from thriftune.cli.model import give_model, model_options
from thriftune.cli.screen import chart, facts_table, listed, open_console, section
from thriftune.common import formatting
from thriftune.common.command_hints import logs_hint, show_hint
from thriftune.common.formatting import format_seconds
from thriftune.common.text import escaped, printable
from thriftune.errors import NoBestTrial
from thriftune.launch.warm_start import taken
from thriftune.results.curves import best_so_far, learning_curve
from thriftune.results.ledger import Ledger
from thriftune.results.models import find_model
from thriftune.results.result import Result
from thriftune.results.trial_states import counts_line
from thriftune.show import describe as words
from thriftune.show import plot_style as pictures
from thriftune.show.figures import FIGURES
from thriftune.space.objectives import join_with_and
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.state.trial_record import State, TrialRecord
from thriftune.store.protocol import Store
from thriftune.study.ask_tell import load

_BEST_SHOWN, _RECENT_SHOWN, _FAILED_SHOWN, _WAITING_SHOWN = 5, 5, 3, 5
_FRONT_SHOWN = 20
_TRACEBACK_LINES = 4
_YES_NO = {True: "yes", False: "no", None: "-"}


@click.command("show")
@click.argument("name")
@store_option
@click.option("--trial", "number", type=int, metavar="N", help="Show one trial, with all that is known of it.")
@click.option("--system", is_flag=True, help="Show how trials use their machines: what was turned, and why.")
@plot_option
@click.option("--kind", type=click.Choice(FIGURES), help="What the picture shows; history, unless given.")
@click.option("--params", metavar="NAME,...", help="The parameters that it shows.")
@click.option("--metric", metavar="METRIC", help="The metric that it shows, instead of the first objective.")
@json_option
def show_command(
    name: str,
    store: str | None,
    number: int | None,
    system: bool,
    plot: Path | None,
    kind: str | None,
    params: str | None,
    metric: str | None,
    as_json: bool,
) -> None:
    """How a study stands: its state, its best trial, its curve, its failures."""
    if plot is not None and system and number is None:
        raise click.UsageError("--system --plot draws the profile of one trial; say which: --trial N")
    if plot is not None and number is not None and not system:
        raise click.UsageError("--plot draws the whole study; --trial N alone shows the curve of one trial")
    if (kind or params or metric) and (plot is None or system):
        raise click.UsageError("--kind, --params and --metric say what a picture of the study shows: --plot FILE")
    with existing_store(store) as opened:
        result = load(name, opened).result
        if system:
            from thriftune.cli.system import show_system  # late: few ask for it

            now = time.time() if opened.driver(name) is not None else result.history.last_at
            show_system(
                result, None if number is None else trial_of(result.history, name, number), now, plot, as_json
            )
            return
        if plot is not None:
            pictures.check(plot)
            names = None if params is None else [each.strip() for each in params.split(",")]
            pictures.save(result.plot(kind or "history", params=names, metric=metric), plot)
            click.echo(f"wrote {plot}", err=True)
        trial = None if number is None else trial_of(result.history, name, number)
        if as_json:
            print_json(_json(result, opened, trial))
            return
        if plot is not None:
            return
        console = open_console()
        if trial is None:
            _show_study(console, result, opened)
        else:
            _show_trial(console, trial, result, opened.driver(name) is not None, opened.url)


@click.command("best")
@click.argument("name")
@store_option
@model_options
@json_option
def best_command(
    name: str,
    store: str | None,
    checkpoint: bool,
    model: bool,
    to: Path | None,
    number: int | None,
    as_json: bool,
) -> None:
    """The best configuration so far; with several objectives, those on the front. Or where the best model is."""
    with existing_store(store) as opened:
        result = load(name, opened).result
        history, driven = result.history, opened.driver(name) is not None
    if checkpoint or model or to is not None or number is not None:
        trial = None if number is None else trial_of(history, name, number)
        if model and trial is not None:
            raise click.UsageError("--model finds the trial itself; leave out --trial")
        give_model(history, trial, model=model, to=to, as_json=as_json)
        return
    several = len(history.objectives) > 1
    if not history.front:
        raise NoBestTrial(history.why_no_best())
    if as_json:
        print_json(front_json(history, driven) if several else best_json(history, driven))
        return
    for number, trial in enumerate(history.front if several else [history.best]):
        if number:
            click.echo()
        values = (
            f"{each.metric} = {formatting.format_number(history.metric_of(trial, each.metric))}"
            for each in history.objectives
        )
        click.echo(f"{'  '.join(values)}  ({words.which(trial, history)})")
        for parameter, value in words.settings(trial.config):
            click.echo(f"{parameter} = {value}")


def _json(result: Result, store: Store, trial: TrialRecord | None) -> dict[str, object]:
    driven = store.driver(result.name) is not None
    if trial is not None:
        reports = [report_json(report) for report in trial.reports]
        return {**trial_json(trial, result.history, driven), "reports": reports}
    trials = [trial_json(trial, result.history, driven) for trial in result.trials]
    return {**result_json(result, store), "trials": trials}


# --- a study ----------------------------------------------------------------------------------------------


def _show_study(console: Console, result: Result, store: Store) -> None:
    spec, history = result.spec, result.history
    driver = store.driver(spec.name)
    driven = driver is not None
    facts = facts_table()
    facts.add_row("study", Text(spec.name, style="bold"))
    facts.add_row("state", Text(_state(spec, history, store)))
    facts.add_row("runs", Text(_what_runs(spec)))
    if sources := taken(spec, history):
        begun = ", ".join(f"{name} ({formatting.plural(count, 'trial')})" for name, count in sources)
        facts.add_row("warm start", Text(begun))
    facts.add_row("trials", Text(_counts(spec, history, driven)))
    if history.known_result_count:
        facts.add_row("known", Text(f"{formatting.plural(history.known_result_count, 'result')} from elsewhere"))
    for name, value in history.attrs.items():
        facts.add_row(Text(f"  {escaped(name)}"), Text(escaped(json.dumps(value))))
    if criteria := words.criteria(spec):
        facts.add_row("ends early", Text(f"by {', '.join(criteria)}"))
    found = words.found(history)
    text = found.text or words.no_value(history)
    facts.add_row(found.name or "best", Text(f"{text} {found.config}".rstrip(), style="bold"))
    if better := words.model(history):
        facts.add_row("model", Text(better))
    if spec.target.kind != "outside":
        now = time.time() if driven else history.last_at
        facts.add_row("time", Text(words.time_line(history, spec, now)))
        facts.add_row("cost", Text(words.cost_line(history, now)))
        ledger = Ledger.of(history, now)
        if ledger.joules:
            facts.add_row("energy", Text(formatting.format_energy_total(ledger.joules, ledger.estimated_joules)))
    console.print(facts)

    curve = [(float(point.trials), point.value) for point in best_so_far(history)]
    if len(curve) > 1:
        section(console, f"best {spec.metric} so far, by trials ended")
        chart(console, curve, stairs=True)
    _tables(console, spec, history, driven)
    if driven and (still := words.stands_still(history, spec)):
        console.print(f"the study {still}", markup=False)
    _show_waiting(console, spec, history, driven)
    _show_failed(console, spec, history, store)
    _show_warnings(console, history)


def _state(spec: Spec, history: History, store: Store) -> str:
    if spec.target.kind == "outside":
        return "open: its user asks and tells"
    if (driver := store.driver(spec.name)) is not None:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(driver.since))
        stopping = f", stopping ({history.stop_requested_by})" if history.stop_requested_by else ""
        return f"running by process {driver.pid} on {driver.host} since {since}{stopping}"
    if history.finish_reason:
        return f"finished: {history.finish_reason}"
    if history.driver is not None and history.stop_requested_by:
        why = f"stopped at once ({history.stop_requested_by})"
    elif history.driver is not None:
        why = f"its driver, process {history.driver.pid} on {history.driver.host}, vanished"
    elif history.disk_full and spec.disk_full == "stop":
        why = "the disk was full"
    elif history.stop_requested_by:
        why = f"stopped by {history.stop_requested_by}"
    elif history.failed_alike:
        why = f"stopped, as trials {join_with_and(history.failed_alike)} have all failed alike"
    else:
        why = "stopped" if history.trials else "not started yet"
    return f"{why}; to go on: thriftune resume {spec.name} --store {store.url}"


def _what_runs(spec: Spec) -> str:
    what = {"outside": "its user's own code", "pickled": "a function of a script"}
    rule = f", giving up early by {spec.stopping}" if spec.judged else ""
    code = what.get(spec.target.kind, printable(str(spec.target)))
    return f"{code}, to {spec.goal} by {spec.searcher} search{rule}"


def _counts(spec: Spec, history: History, driven: bool) -> str:
    of = f" of {spec.trials}" if spec.trials else ""
    return f"{words.ended(history)}{of} ended: {counts_line(history, driven)}"


def _tables(console: Console, spec: Spec, history: History, driven: bool) -> None:
    if len(spec.objectives) > 1:
        best = history.front[:_FRONT_SHOWN]
        title = f"front, {len(best)} of {len(history.front)}" if len(best) < len(history.front) else "front"
    else:
        competing = [trial for trial in history.trials if history.may_lead(trial)]
        competing.sort(key=lambda trial: trial.value or 0.0, reverse=spec.maximize)
        best, title = competing[:_BEST_SHOWN], "best trials"
    if best:
        if note := words.unfinished(best[0], history):
            title += f" ({note})"
        section(console, title)
        _table(console, spec, history, best, driven)
    shown = {trial.id for trial in best}
    recent = [trial for trial in history.trials[-_RECENT_SHOWN:][::-1] if trial.id not in shown]
    if recent:
        section(console, "most recent trials")
        _table(console, spec, history, recent, driven)


def _table(console: Console, spec: Spec, history: History, trials: Sequence[TrialRecord], driven: bool) -> None:
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
            words.state_line(trial, history, driven),
            *(formatting.format_number(history.metric_of(trial, metric)) for metric in spec.needed_metrics),
            *([_YES_NO[history.feasible(trial)]] if spec.constraints else []),
            steps,
            format_seconds(words.seconds_of(trial, driven, now)),
            Text(words.config_line(trial.config)),
        )
    console.print(table)


def _show_waiting(console: Console, spec: Spec, history: History, driven: bool) -> None:
    whys = ((trial.id, words.waits_for(trial, history, spec, driven)) for trial in history.trials)
    lines = [f"trial {number} {why}" for number, why in whys if why]
    if lines:
        section(console, "waiting")
        listed(console, lines, _WAITING_SHOWN)


def _show_failed(console: Console, spec: Spec, history: History, store: Store) -> None:
    failed = [trial for trial in history.trials if trial.state is State.FAILED]
    if not failed:
        return
    section(console, "failed trials")
    for trial in failed[-_FAILED_SHOWN:][::-1]:
        attempts = formatting.plural(trial.attempts, "attempt")
        what = f"trial {trial.id}: {trial.error_kind}, {attempts}, {words.config_line(trial.config)}"
        console.print(Text(what, style="red"))
        for line in printable(trial.error or "").splitlines()[-_TRACEBACK_LINES:]:
            console.print(Text(f"    {line}"))
    if len(failed) > _FAILED_SHOWN:
        console.print(Text(f"and {len(failed) - _FAILED_SHOWN} more", style="dim"))
    console.print(Text(f"all of it: {show_hint(spec.name, store.url, 'N')}", style="dim"))


def _show_warnings(console: Console, history: History) -> None:
    by_text: dict[str, list[int]] = {}
    for trial in history.trials:
        for warning in trial.warnings:
            by_text.setdefault(printable(warning), []).append(trial.id)
    lines = []
    for text, trials in by_text.items():
        others = f" and {formatting.plural(len(trials) - 1, 'other')}" if len(trials) > 1 else ""
        lines.append((trials[-1], f"trial {trials[-1]}{others}: {text}"))
    general = [printable(each) for each in history.all_warnings]
    if lines or general:
        section(console, "warnings")
        listed(console, general, len(general))
        listed(console, [line for _, line in sorted(lines, reverse=True)], _FAILED_SHOWN)


# --- a trial ----------------------------------------------------------------------------------------------


def _show_trial(console: Console, trial: TrialRecord, result: Result, driven: bool, store_url: str) -> None:
    spec, history = result.spec, result.history
    facts = facts_table()
    facts.add_row("trial", Text(f"{trial.id} of study {spec.name}", style="bold"))
    facts.add_row("state", Text(words.state_line(trial, history, driven)))
    if why := words.waits_for(trial, history, spec, driven):
        facts.add_row("", Text(why, style="yellow"))
    elif trial.ended_early:
        facts.add_row("", Text(f"finished after step {trial.step}: {trial.end_reason}"))
    elif trial.state in (State.STOPPED, State.PAUSED) and trial.end_reason:
        facts.add_row("", Text(f"stopped after step {trial.step}: {trial.end_reason}"))
    for metric in spec.needed_metrics:
        facts.add_row(Text(metric), Text(_value(trial, metric, history)))
    if spec.constraints:
        facts.add_row("feasible", Text(_YES_NO[history.feasible(trial)]))
    for name, value in words.settings(trial.config):
        facts.add_row(Text(f"  {name}"), Text(value))
    for name, value in trial.attrs.items():
        facts.add_row(Text(f"  attrs {escaped(name)}"), Text(escaped(json.dumps(value))))
    if trial.origin != ev.SEARCHER:
        facts.add_row("origin", Text(trial.origin))
    facts.add_row("attempts", Text(f"{trial.attempts}: {trial.failures} failed, {trial.losses} lost"))
    saved = f"the last checkpoint at step {trial.resume_step}" if trial.resume_step else "no checkpoint"
    facts.add_row("steps", Text(f"{trial.step}, {saved}"))
    facts.add_row("time", Text(format_seconds(words.seconds_of(trial, driven, time.time()))))
    console.print(facts)
    if (model := find_model(trial, verify=False)).folder is not None:
        of_step = "" if model.step is None else f" of step {model.step}"
        console.print(Text(f"model{of_step}: {model.folder}"), soft_wrap=True)  # in one piece, to be copied
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
            listed(
                console,
                [f"{escaped(name)} {formatting.format_number(value)}" for name, value in others.items()],
                len(others),
            )
    for title, text in (("error of the last failed attempt", trial.error), ("its last output", trial.output)):
        if text:
            section(console, title)
            console.print(Text(printable(text)))
    if trial.attempts_with_log:
        section(console, "all that it printed")
        console.print(Text(logs_hint(spec.name, store_url, trial.id)))
    if trial.warnings:
        section(console, "warnings")
        listed(console, [printable(warning) for warning in trial.warnings], len(trial.warnings))


def _value(trial: TrialRecord, metric: str, history: History) -> str:
    """Return the value that counts and, if it is not the last one, its step and the last one."""
    value, last = history.metric_of(trial, metric), trial.metrics.get(metric)
    if value == last:
        return formatting.format_number(value)
    shown = formatting.format_number(value)
    return f"{shown} at step {history.value_step(trial)} (last {formatting.format_number(last)})"
