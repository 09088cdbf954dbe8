"""`thriftune report`: report metrics from a trial whose command is not Python."""

from __future__ import annotations

import time

import click

from thriftune.common import exit_status
from thriftune.errors import SettingError
from thriftune.training.current_trial import report_once


@click.command("report")
@click.argument("metrics", nargs=-1, required=True, metavar="KEY=VALUE...")
@click.option(
    "--step",
    type=click.IntRange(min=0),
    metavar="N",
    help="The step of the metrics.  [default: the last step plus 1]",
)
def report_command(metrics: tuple[str, ...], step: int | None) -> None:
    """Report metrics from a trial's command.

    Example: thriftune report loss=0.3 acc=0.9

    Exit status 0: reported, continue. 3: reported, and the trial must end now: save its state to the folder
    $THRIFTUNE_CHECKPOINT_DIR, then exit. A SIGTERM follows. Any other status: not reported.
    """
    values: dict[str, float] = {}
    for metric in metrics:
        name, equals, value = metric.partition("=")
        if not equals or not name:
            raise SettingError(f"{metric!r} is not of the form KEY=VALUE, such as loss=0.3")
        try:
            values[name] = float(value)
        except ValueError:
            raise SettingError(f"{name}: {value!r} is not a number") from None
    if report_once(time.time(), values, step):
        click.echo("this trial must end now", err=True)
        click.get_current_context().exit(exit_status.TRIAL_MUST_END)
