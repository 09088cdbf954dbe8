"""`thriftune logs`: what trials printed."""

from __future__ import annotations

import codecs
import time

import click

from thriftune.cli.common import existing_store, store_option, trial_of
from thriftune.common.command_hints import logs_hint
from thriftune.common.text import printable
from thriftune.errors import SettingError
from thriftune.results.loading import catch_up, load_history, load_spec
from thriftune.results.trial_states import state_of
from thriftune.show import describe as words
from thriftune.state.history import History
from thriftune.state.trial_record import State, TrialRecord
from thriftune.store.output_files import OutputReader, attempts_with_output
from thriftune.store.protocol import Store

LOOK_SECONDS = 0.2
"""How often new output is looked for."""

_LISTED = 20
_ORDER = {State.FAILED: 0, State.RUNNING: 1}
"""The states that come first in the list of trials."""


@click.command("logs")
@click.argument("name")
@store_option
@click.option("--trial", "number", type=int, metavar="N", help="Of which trial.")
@click.option("--attempt", type=click.IntRange(min=1), metavar="A", help="An earlier attempt than the last.")
@click.option(
    "--rank",
    type=click.IntRange(min=0),
    default=0,
    metavar="R",
    help="Another worker than 0, where it has several.",
)
@click.option("--follow", is_flag=True, help="Wait for the trial if need be, and go on until it has ended.")
def logs_command(
    name: str, store: str | None, number: int | None, attempt: int | None, rank: int, follow: bool
) -> None:
    """What a trial printed, in its last attempt that printed anything.

    Without --trial: which trials printed anything, the failed ones first. Escapes such as colours are left out,
    and of a line that was overwritten, as by a progress bar, the last state is shown.
    """
    if number is None and (attempt is not None or follow or rank):
        raise click.UsageError("--attempt, --rank and --follow are about one trial; say which: --trial N")
    with existing_store(store) as opened:
        history = load_history(opened, load_spec(opened, name))
        if number is None:
            _list(history, name, opened)
            return
        if follow and number >= len(history.trials) and opened.driver(name) is not None:
            _await(history, number, attempt, name, opened)
        trial = trial_of(history, name, number)
        if attempt is not None and attempt > trial.attempts:
            have = f"1 to {trial.attempts}" if trial.attempts else "none yet"
            raise SettingError(f"trial {number} has no attempt {attempt}; it has {have}")
        driven = opened.driver(name) is not None
        if follow and driven and not trial.state.ended:
            _follow(history, number, attempt, rank, name, opened)
            return
        _show(trial, attempt, rank)
        if follow and not trial.state.ended:
            click.echo(f"study {name!r} is not running", err=True)


def _list(history: History, name: str, store: Store) -> None:
    found = [(trial, attempts) for trial in history.trials if (attempts := trial.attempts_with_log)]
    if not found:
        click.echo(f"no trial of study {name!r} has printed anything that is kept", err=True)
        return
    driven = store.driver(name) is not None
    found.sort(key=lambda each: (_ORDER.get(state_of(each[0], driven), 2), -each[0].id))
    for trial, attempts in found[:_LISTED]:
        which = f"attempts {', '.join(map(str, attempts))}" if len(attempts) > 1 else f"attempt {attempts[0]}"
        click.echo(f"trial {trial.id}  {words.state_line(trial, history, driven)}  {which}")
    if len(found) > _LISTED:
        click.echo(f"and {len(found) - _LISTED} more")
    click.echo(f"see one with: {logs_hint(name, store.url, found[0][0].id)}", err=True)


def _show(trial: TrialRecord, attempt: int | None, rank: int) -> None:
    attempts = attempts_with_output(trial.folder, rank)
    if not attempts or (attempt is not None and attempt not in attempts):
        which = f"trial {trial.id}" if attempt is None else f"attempt {attempt} of trial {trial.id}"
        worker = f" worker {rank} of" if rank else ""
        have = f"; attempts that have: {', '.join(map(str, attempts))}" if attempts else ""
        click.echo(f"nothing that{worker} {which} printed is kept{have}", err=True)
        return
    shown = attempts[-1] if attempt is None else attempt
    if trial.attempts > 1:
        click.echo(f"attempt {shown} of {trial.attempts}", err=True)
    click.echo(_Lines(trial.folder, shown, rank).new(last=True), nl=False)


def _await(history: History, number: int, attempt: int | None, name: str, store: Store) -> None:
    """Return when there is such a trial, and its attempt if one is given; raise SettingError if none comes."""
    click.echo(f"waiting for trial {number}", err=True)
    while True:
        driven = store.driver(name) is not None  # before the look: what it wrote last is seen, too
        catch_up(history, store, name)
        if number < len(history.trials):
            trial = history.trials[number]
            if trial.state.ended or trial.attempts >= (attempt or 0):
                return
        elif not driven:
            have = f"it has {len(history.trials)}" if history.trials else "it has none"
            raise SettingError(f"study {name!r} runs no more, and had no trial {number}; {have}")
        if not driven:
            return
        time.sleep(LOOK_SECONDS)


def _follow(history: History, number: int, attempt: int | None, rank: int, name: str, store: Store) -> None:
    """Print one attempt after another until the trial has ended, or only the given one until that has."""
    printing = attempt or max(1, history.trials[number].attempts)
    lines = _Lines(history.trials[number].folder, printing, rank)
    while True:
        trial = catch_up(history, store, name).trials[number]
        over = trial.state.ended or store.driver(name) is None
        ended = over or trial.attempts > printing or trial.state is not State.RUNNING
        click.echo(lines.new(last=ended), nl=False)  # after the look: an attempt that has ended prints no more
        if over or (ended and attempt is not None):
            return
        if trial.attempts > printing:
            printing += 1
            lines = _Lines(trial.folder, printing, rank)
            click.echo(f"attempt {printing}", err=True)
        else:
            time.sleep(LOOK_SECONDS)


class _Lines:
    """The output of an attempt line by line, without what controls a terminal."""

    def __init__(self, trial_folder: str, attempt: int, rank: int) -> None:
        self._reader = OutputReader(trial_folder, attempt, rank)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = ""  # a line without its end

    def new(self, *, last: bool) -> str:
        """Return the lines that are new. `last`: nothing more is printed, so that the last line needs no end."""
        text = self._begun + self._decoder.decode(self._reader.read(), last)
        if last and text:
            text = text.removesuffix("\n") + "\n"
        whole, end, self._begun = text.rpartition("\n")
        return printable(whole + end)
