"""`thriftune logs`: the output of trials."""

from __future__ import annotations

import codecs
import time

import click

from thriftune.cli.common import existing_store, store_option, trial_of
from thriftune.common.command_hints import logs_hint
from thriftune.common.text import printable
from thriftune.errors import SettingError
from thriftune.launch.shipping import fetch_output
from thriftune.results.loading import catch_up, load_history, load_spec
from thriftune.results.trial_states import existing_trials, state_of
from thriftune.show import describe
from thriftune.state.history import History
from thriftune.state.trial_record import State, TrialRecord
from thriftune.store.output_files import OutputReader, attempts_with_output
from thriftune.store.protocol import Store

POLL_SECONDS = 0.2
"""Seconds between two looks for new output: short enough to seem immediate."""

_MAX_LISTED = 20
_LIST_ORDER = {State.FAILED: 0, State.RUNNING: 1}
"""States that come first in the list of trials."""


@click.command("logs")
@click.argument("name")
@store_option
@click.option("--trial", "number", type=int, metavar="N", help="Show the output of trial N.")
@click.option("--attempt", type=click.IntRange(min=1), metavar="A", help="Show attempt A instead of the last one.")
@click.option(
    "--rank",
    type=click.IntRange(min=0),
    default=0,
    metavar="R",
    help="Show the worker with rank R of a trial with several workers.  [default: 0]",
)
@click.option("--follow", is_flag=True, help="Wait until the trial starts, and show its output until it ends.")
def logs_command(
    name: str, store: str | None, number: int | None, attempt: int | None, rank: int, follow: bool
) -> None:
    """Show the output of a trial.

    By default, this is the output of its last attempt that has any. Without --trial, list the trials that have
    output, the failed ones first. Escape sequences such as colours are
    removed. If a line was overwritten, as by a progress bar, only its last state is shown.
    """
    if number is None and (attempt is not None or follow or rank):
        raise click.UsageError("--attempt, --rank and --follow are for one trial; choose it with --trial N")
    with existing_store(store) as opened:
        history = load_history(opened, load_spec(opened, name))
        fetch_output(opened, name, number)
        if number is None:
            _list(history, name, opened)
            return
        if follow and number >= len(history.trials) and opened.driver(name) is not None:
            _wait_for_start(history, number, attempt, name, opened)
        trial = trial_of(history, name, number)
        if attempt is not None and attempt > trial.attempts:
            existing = f"attempts 1 to {trial.attempts}" if trial.attempts else "none yet"
            raise SettingError(f"trial {number} has no attempt {attempt}; it has {existing}")
        _check_rank(trial, rank)
        has_driver = opened.driver(name) is not None
        if follow and has_driver and not trial.state.ended:
            _follow(history, number, attempt, rank, name, opened)
            return
        _show(trial, attempt, rank)
        if follow and not trial.state.ended:
            click.echo(f"study {name!r} is not running", err=True)


def _check_rank(trial: TrialRecord, rank: int) -> None:
    """Raise SettingError for a rank that no attempt of the trial has, if the trial has started."""
    if rank == 0 or attempts_with_output(trial.folder, rank):
        return
    gangs = [trial.workers, *(attempt.workers for attempt in trial.past_attempts)]
    workers = max(sum(gang.values()) for gang in gangs)
    if 0 < workers <= rank:
        existing = f"ranks 0 to {workers - 1}" if workers > 1 else "one worker, with rank 0"
        raise SettingError(f"trial {trial.id} has no worker with rank {rank}; it has {existing}")


def _list(history: History, name: str, store: Store) -> None:
    """List the trials that have output, with their states and attempts."""
    with_output = [(trial, attempts) for trial in history.trials if (attempts := trial.attempts_with_log)]
    if not with_output:
        click.echo(f"no output of study {name!r} is stored", err=True)
        return
    has_driver = store.driver(name) is not None
    with_output.sort(key=lambda each: (_LIST_ORDER.get(state_of(each[0], has_driver), 2), -each[0].id))
    for trial, attempts in with_output[:_MAX_LISTED]:
        numbers = f"attempts {', '.join(map(str, attempts))}" if len(attempts) > 1 else f"attempt {attempts[0]}"
        click.echo(f"trial {trial.id}  {describe.state_label(trial, history, has_driver)}  {numbers}")
    if len(with_output) > _MAX_LISTED:
        click.echo(f"and {len(with_output) - _MAX_LISTED} more")
    click.echo(f"to see one: {logs_hint(name, store.url, with_output[0][0].id)}", err=True)


def _show(trial: TrialRecord, attempt: int | None, rank: int) -> None:
    """Print the output of an attempt, by default of the last one that has output."""
    attempts = attempts_with_output(trial.folder, rank)
    if not attempts or (attempt is not None and attempt not in attempts):
        subject = f"trial {trial.id}" if attempt is None else f"attempt {attempt} of trial {trial.id}"
        worker = f"worker {rank} of " if rank else ""
        others = f"; attempts with output: {', '.join(map(str, attempts))}" if attempts else ""
        click.echo(f"no output of {worker}{subject} is stored{others}", err=True)
        return
    shown = attempts[-1] if attempt is None else attempt
    if trial.attempts > 1:
        click.echo(f"attempt {shown} of {trial.attempts}", err=True)
    click.echo(_OutputLines(trial.folder, shown, rank).read(is_complete=True), nl=False)


def _wait_for_start(history: History, number: int, attempt: int | None, name: str, store: Store) -> None:
    """Wait until the trial or its attempt starts, or until the study stops.

    Raises SettingError if the study stops without such a trial. Updates `history`.
    """
    click.echo(f"waiting for trial {number}", err=True)
    while True:
        has_driver = store.driver(name) is not None  # before catch_up(), which then sees the driver's last events
        catch_up(history, store, name)
        if number < len(history.trials):
            trial = history.trials[number]
            if trial.state.ended or trial.attempts >= (attempt or 0):
                return
        elif not has_driver:
            raise SettingError(f"study {name!r} stopped before trial {number} started; {existing_trials(history)}")
        if not has_driver:
            return
        time.sleep(max(POLL_SECONDS, fetch_output(store, name, number)))


def _follow(history: History, number: int, attempt: int | None, rank: int, name: str, store: Store) -> None:
    """Print the output of a trial's attempts until the trial ends.

    If `attempt` is given, print only its output, until it ends.
    """
    printed_attempt = attempt or max(1, history.trials[number].attempts)
    lines = _OutputLines(history.trials[number].folder, printed_attempt, rank)
    while True:
        trial = catch_up(history, store, name).trials[number]
        trial_ended = trial.state.ended or store.driver(name) is None
        attempt_ended = trial_ended or trial.attempts > printed_attempt or trial.state is not State.RUNNING
        pause = fetch_output(store, name, number)
        # Read after the state: then the output of an attempt that has ended is complete.
        click.echo(lines.read(is_complete=attempt_ended), nl=False)
        if trial_ended or (attempt_ended and attempt is not None):
            return
        if trial.attempts > printed_attempt:
            printed_attempt += 1
            lines = _OutputLines(trial.folder, printed_attempt, rank)
            click.echo(f"attempt {printed_attempt}", err=True)
        else:
            time.sleep(max(POLL_SECONDS, pause))


class _OutputLines:
    """Reads the output of an attempt in whole lines.

    Terminal control sequences are removed.
    """

    def __init__(self, trial_folder: str, attempt: int, rank: int) -> None:
        self._reader = OutputReader(trial_folder, attempt, rank)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unfinished_line = ""  # text after the last line break

    def read(self, *, is_complete: bool) -> str:
        """Return the lines since the last call.

        `is_complete`: the attempt writes no more, so a last line without a line break is returned too.
        """
        text = self._unfinished_line + self._decoder.decode(self._reader.read(), is_complete)
        if is_complete and text:
            text = text.removesuffix("\n") + "\n"
        whole, end, self._unfinished_line = text.rpartition("\n")
        return printable(whole + end)
