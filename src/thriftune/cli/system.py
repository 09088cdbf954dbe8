"""`thriftune show --system`: shows how trials used their machines, the decisions, and what they brought."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from thriftune.cli.common import print_json
from thriftune.cli.screen import facts_table, listed, open_console, section, table
from thriftune.cli.system_json import profile_json, study_json, why_nothing
from thriftune.common.formatting import format_energy, format_energy_total, format_seconds, plural
from thriftune.errors import ThriftuneError
from thriftune.results.heat_map import draw, heat_map
from thriftune.results.system_decisions import KnobDecision, Pace, StudyUsage, TrialUsage, explain
from thriftune.state.events import PROBE
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord
from thriftune.study.result import Result
from thriftune.system.energy import NO_METER
from thriftune.system.knob_settings import describe

_SURE = 1.5
"""A saving of fewer standard errors than this cannot be distinguished from noise."""

_FIRST_STEPS = "contains an attempt's first step, which often takes longer"
_MOST_TRIALS = 20  # shown in the table
_WIDTH = 80  # characters, of a heat map


def show_system(result: Result, trial: TrialRecord | None, now: float, plot: Path | None, as_json: bool) -> None:
    """Show how a study, or one of its trials, used its machines until `now`."""
    explained = explain(result.history, now)
    usage = None
    if trial is not None:
        usage = next((each for each in explained.trials if each.trial == trial.id), None)
    if plot is not None and trial is not None:
        _plot(result, trial, usage, plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        print_json(study_json(result, explained) if trial is None else profile_json(result, trial, usage))
    elif plot is None:
        console = open_console()
        if trial is None:
            _show_study(console, result, explained)
        else:
            _show_trial(console, result, trial, usage)


def _plot(result: Result, trial: TrialRecord, usage: TrialUsage | None, path: Path) -> None:
    from thriftune.show.system_plot import plot_profile  # late: it needs matplotlib

    if usage is None:
        raise ThriftuneError(f"there is nothing to plot: {why_nothing(result.spec, trial.attempts > 0)}")
    plot_profile(result.name, result.history, usage, path)


# --- a study ----------------------------------------------------------------------------------------------


def _show_study(console: Console, result: Result, explained: StudyUsage) -> None:
    if not explained.trials:
        began = any(trial.attempts for trial in result.trials)
        console.print(Text(f"{result.name}: {why_nothing(result.spec, began)}"))
        return
    sentences = list(_sentences(result, explained))
    listed(console, sentences, len(sentences))
    count, shown = len(explained.trials), explained.trials[-_MOST_TRIALS:]
    section(console, f"trials, the last {_MOST_TRIALS} of {count}" if count > _MOST_TRIALS else "trials")
    table(
        console,
        ("trial", "setting now", "s/step without", "now", "gain", "basis", "energy"),
        [_cells(usage) for usage in shown],
        left=2,
    )
    if any(usage.by_others for usage in shown):
        console.print(Text("~ the gain of the same setting in other trials", style="dim"))
    paces = [pace for usage in shown for pace in (usage.pace_without_knobs, usage.pace_now)]
    if any(pace is not None and pace.cold for pace in paces):
        console.print(Text(f"* {_FIRST_STEPS}", style="dim"))


def _sentences(result: Result, explained: StudyUsage) -> Iterator[str]:
    counts, windows = explained.counts, explained.windows
    trials = f"{len(explained.trials)} of {plural(len(result.trials), 'trial')}"
    steps = plural(explained.steps, "step")
    yield f"{result.name}: {steps} of {trials} were measured, in {plural(windows, 'window')}."
    if windows:
        yield (
            f"{plural(counts.probes, 'window')} ({counts.probes / windows:.0%}) probed settings; {counts.used} "
            f"had the setting that was chosen, and {counts.undecided} came before any decision."
        )
    compared = explained.compared
    took, saved, error = sum(usage.seconds for usage in compared), explained.saved_seconds, explained.saved_error
    which = "these trials" if len(compared) == len(explained.trials) else f"{len(compared)} of these trials"
    if saved and abs(saved) < _SURE * error:
        yield f"The time that {which} would have taken without knobs cannot be distinguished from noise."
    elif saved and took + saved > 0.0:
        rather = "less" if saved > 0 else "more"
        yield (
            f"Without knobs, {which} would have taken {format_seconds(took + saved)} instead of "
            f"{format_seconds(took)}: {abs(saved) / (took + saved):.0%} {rather}, probes included "
            f"(estimate, error {error / (took + saved):.0%})."
        )
    for limit in explained.trial_limits:
        yield f"At most {limit.at_a_time} at a time on machines with {limit.slots} slots: {limit.why}."
    if explained.kinds:
        yield f"Measured on: {'; '.join(explained.kinds)}."
    if explained.joules.total:
        meters = [meter for meter in explained.meters if meter not in NO_METER]
        by = f"; the meter is {', '.join(meters)}" if meters else ""
        yield f"Energy: {format_energy_total(*explained.joules)}{by}."


def _cells(usage: TrialUsage) -> tuple[str, ...]:
    return (
        str(usage.trial),
        describe(usage.setting),
        _seconds(usage.pace_without_knobs),
        _seconds(usage.pace_now),
        _gain(usage),
        "a probe" if usage.basis == PROBE else usage.basis or "-",  # a trial may end during a probe
        format_energy(usage.joules.total),
    )


def _seconds(pace: Pace | None) -> str:
    return "-" if pace is None else f"{pace.seconds_a_step:.3g}{'*' if pace.cold else ''}"


def _gain(usage: TrialUsage) -> str:
    if usage.gain is None or usage.gain_error is None:
        return "-"
    return f"{'~' if usage.by_others else ''}{round(usage.gain, 2) + 0.0:.0%} ±{usage.gain_error:.0%}"


# --- a trial ----------------------------------------------------------------------------------------------


def _show_trial(console: Console, result: Result, trial: TrialRecord, usage: TrialUsage | None) -> None:
    if usage is None:
        why = why_nothing(result.spec, trial.attempts > 0)
        console.print(Text(f"trial {trial.id} of study {result.name}: {why}"))
        return
    facts = facts_table()
    facts.add_row("trial", Text(f"{usage.trial} of study {result.name}", style="bold"))
    basis = ", a probe" if usage.basis == PROBE else f", by {usage.basis}" if usage.basis else ""
    facts.add_row("setting now", Text(f"{describe(usage.setting)}{basis}"))
    facts.add_row("time", Text(_time(usage)))
    facts.add_row("energy", Text(format_energy_total(*usage.joules)))
    undecided, probes, used = usage.counts
    counts = f"{probes} probed settings, {used} had the chosen one, {undecided} came before any decision"
    facts.add_row("windows", Text(f"{len(usage.windows)} of {plural(usage.steps, 'step')}: {counts}"))
    if usage.windows and (rest := trial.step - usage.windows[-1].step) > 0:
        facts.add_row("", Text(f"the last {plural(rest, 'step')} were too short for a window"))
    for kind in dict.fromkeys(window.kind for window in usage.windows):
        facts.add_row("measured on", Text(kind or "-"))
    console.print(facts)
    if usage.paces:
        section(console, "by setting")
        base = usage.pace_without_knobs
        rows = [(describe(setting), *_compared(pace, base)) for setting, pace in usage.paces]
        table(console, ("setting", "windows", "s/step", "spread", "relative"), rows)
        if any(pace.cold for _, pace in usage.paces):
            console.print(Text(f"* {_FIRST_STEPS}", style="dim"))
    if usage.decisions:
        section(console, "decisions")
        for number, decision in enumerate(usage.decisions, 1):
            listed(console, list(_decision(number, decision)), 4)
    if usage.windows:
        _show_heat_map(console, result.history, usage)


def _time(usage: TrialUsage) -> str:
    took = format_seconds(usage.seconds)
    if usage.seconds_without_knobs is None or not usage.saved_seconds:
        return took
    by = ", by what other trials gained" if usage.by_others else ""
    if abs(usage.saved_seconds) < _SURE * usage.saved_error:
        return f"{took}; the time without knobs cannot be distinguished from noise"
    error = f"error {format_seconds(usage.saved_error)}"
    return f"{took}; without knobs {format_seconds(usage.seconds_without_knobs)} (estimate{by}, {error})"


def _compared(pace: Pace, base: Pace | None) -> tuple[str, ...]:
    spread = "-" if pace.spread is None else f"{pace.spread:.1%}"
    relative = f"{pace.seconds_a_step / base.seconds_a_step:.2f}" if base and base.seconds_a_step else "-"
    return str(pace.windows), _seconds(pace), spread, relative


def _decision(number: int, decision: KnobDecision) -> Iterator[str]:
    when = f"after step {decision.step}" if decision.step else "at the start"
    yield f"{number}. {when}: {describe(decision.setting)}"
    yield f"   {decision.why}"
    yield f"   before: {_measured(decision.before)}; after: {_measured(decision.after)}"


def _measured(pace: Pace | None) -> str:
    if pace is None:
        return "nothing to compare"
    spread = "" if pace.spread is None else f", spread {pace.spread:.1%}"
    first = ", with an attempt's first step" if pace.cold else ""
    return f"{pace.seconds_a_step:.3g} s a step ({plural(pace.windows, 'window')}{spread}{first})"


def _show_heat_map(console: Console, history: History, usage: TrialUsage) -> None:
    heat = heat_map(history, usage.trial, [decision.from_window for decision in usage.decisions])
    section(console, "profile by step")
    for line in draw(heat, min(_WIDTH, console.width)):
        console.print(Text(line, no_wrap=True, overflow="crop"))
    if any(window.cold for window in usage.windows):
        console.print(Text("first steps of attempts do not count for lowest and highest", style="dim"))
    if heat.zero_counters:
        console.print(Text(f"0 in the whole study: {', '.join(heat.zero_counters)}", style="dim"))
