"""`thriftune report`: how a command that is no Python tells what it has found."""

from __future__ import annotations

import time

import click

from thriftune.errors import SettingError
from thriftune.training.current_trial import report_next

PLEASE_END = 3


@click.command("report")
@click.argument("metrics", nargs=-1, required=True, metavar="KEY=VALUE...")
@click.option("--step", type=click.IntRange(min=0), metavar="N", help="The one after the last, unless given.")
def report_command(metrics: tuple[str, ...], step: int | None) -> None:
    """Report metrics from inside a trial's command: thriftune report loss=0.3 acc=0.9

    Exit status 0: reported, go on. 3: reported, and the trial is to end now (save what you need to the folder
    in $THRIFTUNE_CHECKPOINT_DIR, then exit); a SIGTERM follows too. Anything else: not reported.
    """
    values: dict[str, float] = {}
    for metric in metrics:
        name, equals, value = metric.partition("=")
        if not equals or not name:
            raise SettingError(f"{metric!r} is no KEY=VALUE, such as loss=0.3")
        try:
            values[name] = float(value)
        except ValueError:
            raise SettingError(f"{name}: {value!r} is no number") from None
    if report_next(time.time(), values, step):
        click.echo("this trial is to end now", err=True)
        click.get_current_context().exit(PLEASE_END)
