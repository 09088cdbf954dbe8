"""`thriftune show`: the state of a study or of one trial, as text, as JSON or as a figure."""

from __future__ import annotations

import time
from pathlib import Path

import click

from thriftune.cli.as_json import report_json, result_json, trial_json
from thriftune.cli.common import existing_store, json_option, plot_option, print_json, store_option, trial_of
from thriftune.cli.screen import open_console
from thriftune.cli.show_study import show_study
from thriftune.cli.show_trial import show_trial
from thriftune.show import plot_style
from thriftune.show.figures import FIGURES
from thriftune.state.trial_record import TrialRecord
from thriftune.store.protocol import Store
from thriftune.study.ask_tell import load
from thriftune.study.result import Result


@click.command("show")
@click.argument("name")
@store_option
@click.option("--trial", "number", type=int, metavar="N", help="Show trial N in full.")
@click.option("--system", is_flag=True, help="Show how trials used their machines, and which knobs were changed.")
@plot_option
@click.option("--kind", type=click.Choice(FIGURES), help="The kind of picture for --plot.  [default: history]")
@click.option("--params", metavar="NAME,...", help="The parameters in the picture.  [default: all]")
@click.option("--metric", metavar="METRIC", help="The metric in the picture.  [default: the first objective]")
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
    """Show the state of a study or of one trial.

    This includes the best trials, the progress over time, failures, and what waiting trials wait for.
    """
    if plot is not None and system and number is None:
        raise click.UsageError("--system --plot draws the profile of one trial; choose it with --trial N")
    if plot is not None and number is not None and not system:
        raise click.UsageError(
            "--plot draws the whole study; leave out --trial, or leave out --plot to see its curve"
        )
    if (kind or params or metric) and (plot is None or system):
        raise click.UsageError("--kind, --params and --metric are for a picture of the study; add --plot FILE")
    with existing_store(store) as opened:
        result = load(name, opened).result
        if system:
            from thriftune.cli.system import show_system  # late: few commands need it

            now = time.time() if opened.driver(name) is not None else result.history.last_at
            show_system(
                result, None if number is None else trial_of(result.history, name, number), now, plot, as_json
            )
            return
        if plot is not None:
            plot_style.check_plot_path(plot)
            names = None if params is None else [each.strip() for each in params.split(",")]
            plot_style.save(result.plot(kind or "history", params=names, metric=metric), plot)
            click.echo(f"wrote {plot}", err=True)
        trial = None if number is None else trial_of(result.history, name, number)
        if as_json:
            print_json(_json(result, opened, trial))
            return
        if plot is not None:
            return
        console = open_console()
        if trial is None:
            show_study(console, result, opened)
        else:
            show_trial(console, trial, result, opened.driver(name) is not None, opened.url)


def _json(result: Result, store: Store, trial: TrialRecord | None) -> dict[str, object]:
    has_driver = store.driver(result.name) is not None
    if trial is not None:
        reports = [report_json(report) for report in trial.reports]
        return {**trial_json(trial, result.history, has_driver), "reports": reports}
    trials = [trial_json(trial, result.history, has_driver) for trial in result.trials]
    return {**result_json(result, store), "trials": trials}
