"""`thriftune show --system`: how trials use their machines, what was turned, and by which measurements."""

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
from thriftune.results.result import Result
from thriftune.results.system_decisions import Decided, Explained, Pace, TrialStory, explain
from thriftune.state.events import PROBE
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord
from thriftune.system.heat_map import draw, heat_map
from thriftune.system.joules import NO_METER
from thriftune.system.probing import in_words

_SURE = 1.5  # errors, as for decisions
_FIRST_STEPS = "an attempt's first step is in it, which often takes longer"
_SHOWN = 20
_WIDTH = 80


def show_system(result: Result, trial: TrialRecord | None, now: float, plot: Path | None, as_json: bool) -> None:
    """Of the study as it stands at `now`, or of one of its trials."""
    explained = explain(result.history, now)
    story = None
    if trial is not None:
        story = next((each for each in explained.trials if each.trial == trial.id), None)
    if plot is not None and trial is not None:
        _plot(result, trial, story, plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        print_json(study_json(result, explained) if trial is None else profile_json(result, trial, story))
    elif plot is None:
        console = open_console()
        if trial is None:
            _show_study(console, result, explained)
        else:
            _show_trial(console, result, trial, story)


def _plot(result: Result, trial: TrialRecord, story: TrialStory | None, path: Path) -> None:
    from thriftune.show.system_plot import plot_profile  # late: needs the extra

    if story is None:
        raise ThriftuneError(f"there is nothing to plot: {why_nothing(result.spec, trial.attempts > 0)}")
    plot_profile(result.name, result.history, story, path)


# --- a study ----------------------------------------------------------------------------------------------


def _show_study(console: Console, result: Result, explained: Explained) -> None:
    if not explained.trials:
        began = any(trial.attempts for trial in result.trials)
        console.print(Text(f"{result.name}: {why_nothing(result.spec, began)}"))
        return
    sentences = list(_sentences(result, explained))
    listed(console, sentences, len(sentences))
    stories = explained.trials
    section(console, f"trials, the last {_SHOWN} of {len(stories)}" if len(stories) > _SHOWN else "trials")
    table(
        console,
        ("trial", "setting now", "s/step unturned", "now", "gain", "found", "energy"),
        [_cells(story) for story in stories[-_SHOWN:]],
        left=2,
    )
    if any(story.by_others for story in stories[-_SHOWN:]):
        console.print(Text("~ by what other trials gained by the same setting", style="dim"))
    if any(pace is not None and pace.cold for story in stories[-_SHOWN:] for pace in (story.unturned, story.now)):
        console.print(Text(f"* {_FIRST_STEPS}", style="dim"))


def _sentences(result: Result, explained: Explained) -> Iterator[str]:
    counts, windows = explained.counts, explained.windows
    of = f"{len(explained.trials)} of {plural(len(result.trials), 'trial')}"
    steps = plural(explained.steps, "step")
    yield f"{result.name}: {steps} of {of} were measured, in {plural(windows, 'window')}."
    if windows:
        yield (
            f"{plural(counts.looks, 'window')} ({counts.looks / windows:.0%}) looked at settings; {counts.kept} "
            f"had one that was kept, and {counts.untouched} came before any decision."
        )
    compared = explained.compared
    took, saved, error = sum(story.seconds for story in compared), explained.saved_seconds, explained.saved_error
    which = "these" if len(compared) == len(explained.trials) else f"{len(compared)} of them"
    if saved and abs(saved) < _SURE * error:
        yield f"What {which} would have taken with nothing turned cannot be told from noise."
    elif saved and took + saved > 0.0:
        rather = "less" if saved > 0 else "more"
        yield (
            f"With nothing turned, {which} would have taken {format_seconds(took + saved)} instead of "
            f"{format_seconds(took)}: {abs(saved) / (took + saved):.0%} {rather}, looks included "
            f"(estimate, error {error / (took + saved):.0%})."
        )
    for limit in explained.trial_limits:
        yield f"At most {limit.at_a_time} at a time on machines with room for {limit.slots}: {limit.why}."
    if explained.kinds:
        yield f"Counted on: {'; '.join(explained.kinds)}."
    if explained.joules.total:
        meters = [meter for meter in explained.meters if meter not in NO_METER]
        by = f"; the meter is {', '.join(meters)}" if meters else ""
        yield f"Energy: {format_energy_total(*explained.joules)}{by}."


def _cells(story: TrialStory) -> tuple[str, ...]:
    return (
        str(story.trial),
        in_words(story.setting),
        _seconds(story.unturned),
        _seconds(story.now),
        _gain(story),
        _found(story),
        format_energy(story.joules.total),
    )


def _found(story: TrialStory) -> str:
    """A trial may have ended while it looked."""
    return "looked" if story.found == PROBE else f"by {story.found}" if story.found else "-"


def _seconds(pace: Pace | None) -> str:
    return "-" if pace is None else f"{pace.seconds_a_step:.3g}{'*' if pace.cold else ''}"


def _gain(story: TrialStory) -> str:
    if story.gain is None or story.gain_error is None:
        return "-"
    return f"{'~' if story.by_others else ''}{round(story.gain, 2) + 0.0:.0%} ±{story.gain_error:.0%}"


# --- a trial ----------------------------------------------------------------------------------------------


def _show_trial(console: Console, result: Result, trial: TrialRecord, story: TrialStory | None) -> None:
    if story is None:
        why = why_nothing(result.spec, trial.attempts > 0)
        console.print(Text(f"trial {trial.id} of study {result.name}: {why}"))
        return
    facts = facts_table()
    facts.add_row("trial", Text(f"{story.trial} of study {result.name}", style="bold"))
    how = ", only looked at" if story.found == PROBE else f", by {story.found}" if story.found else ""
    facts.add_row("setting now", Text(f"{in_words(story.setting)}{how}"))
    facts.add_row("time", Text(_time(story)))
    facts.add_row("energy", Text(format_energy_total(*story.joules)))
    untouched, looks, kept = story.counts
    told = f"{looks} looked, {kept} had what was kept, {untouched} came before any decision"
    facts.add_row("windows", Text(f"{len(story.windows)} of {plural(story.steps, 'step')}: {told}"))
    if story.windows and (rest := trial.step - story.windows[-1].step) > 0:
        facts.add_row("", Text(f"its end, {plural(rest, 'step')}, is in none, as it was too short for one"))
    for kind in dict.fromkeys(window.kind for window in story.windows):
        facts.add_row("counted on", Text(kind or "-"))
    console.print(facts)
    if story.paces:
        section(console, "by setting")
        base = story.unturned
        rows = [(in_words(setting), *_compared(pace, base)) for setting, pace in story.paces]
        table(console, ("setting", "windows", "s/step", "spread", "relative"), rows)
        if any(pace.cold for _, pace in story.paces):
            console.print(Text(f"* {_FIRST_STEPS}", style="dim"))
    if story.decisions:
        section(console, "decisions")
        for number, decided in enumerate(story.decisions, 1):
            listed(console, list(_decision(number, decided)), 4)
    if story.windows:
        _show_heat(console, result.history, story)


def _time(story: TrialStory) -> str:
    took = format_seconds(story.seconds)
    if story.unturned_seconds is None or not story.saved_seconds:
        return took
    by = ", by what other trials gained" if story.by_others else ""
    if abs(story.saved_seconds) < _SURE * story.saved_error:
        return f"{took}; what it would be with nothing turned cannot be told from noise"
    error = f"error {format_seconds(story.saved_error)}"
    return f"{took}; with nothing turned, {format_seconds(story.unturned_seconds)} (estimate{by}, {error})"


def _compared(pace: Pace, base: Pace | None) -> tuple[str, ...]:
    spread = "-" if pace.spread is None else f"{pace.spread:.1%}"
    relative = f"{pace.seconds_a_step / base.seconds_a_step:.2f}" if base and base.seconds_a_step else "-"
    return str(pace.windows), _seconds(pace), spread, relative


def _decision(number: int, decided: Decided) -> Iterator[str]:
    when = f"after step {decided.step}" if decided.step else "at the start"
    yield f"{number}. {when}: {in_words(decided.setting)}"
    yield f"   {decided.why}"
    yield f"   before: {_measured(decided.before)}; after: {_measured(decided.after)}"


def _measured(pace: Pace | None) -> str:
    if pace is None:
        return "nothing to compare"
    spread = "" if pace.spread is None else f", spread {pace.spread:.1%}"
    first = ", with an attempt's first step" if pace.cold else ""
    return f"{pace.seconds_a_step:.3g} s a step ({plural(pace.windows, 'window')}{spread}{first})"


def _show_heat(console: Console, history: History, story: TrialStory) -> None:
    found = heat_map(history, story.trial, [decided.from_window for decided in story.decisions])
    section(console, "profile by step")
    for line in draw(found, min(_WIDTH, console.width)):
        console.print(Text(line, no_wrap=True, overflow="crop"))
    if any(window.cold for window in story.windows):
        console.print(Text("first steps of attempts do not count for least and most", style="dim"))
    if found.still:
        console.print(Text(f"0 all along: {', '.join(found.still)}", style="dim"))
