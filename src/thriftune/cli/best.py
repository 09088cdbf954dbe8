"""`thriftune best`: the best configuration of a study, and its best model."""

from __future__ import annotations

from pathlib import Path

import click

from thriftune.cli.as_json import best_json, front_json
from thriftune.cli.best_model import model_options, print_model
from thriftune.cli.common import existing_store, json_option, print_json, store_option, trial_of
from thriftune.common import formatting
from thriftune.errors import NoBestTrial
from thriftune.show import describe
from thriftune.study.ask_tell import load


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
    """Show the best configuration or model so far.

    With several objectives, show all configurations on the front. --checkpoint and --model show where a model is.
    """
    with existing_store(store) as opened:
        result = load(name, opened).result
        history, has_driver = result.history, opened.driver(name) is not None
    if checkpoint or model or to is not None or number is not None:
        trial = None if number is None else trial_of(history, name, number)
        if model and trial is not None:
            raise click.UsageError("--model chooses the trial itself; leave out --trial")
        print_model(history, trial, best_of_all=model, to=to, as_json=as_json)
        return
    has_front = len(history.objectives) > 1
    if not history.front:
        raise NoBestTrial(history.why_no_best())
    if as_json:
        print_json(front_json(history, has_driver) if has_front else best_json(history, has_driver))
        return
    for i, trial in enumerate(history.front if has_front else [history.best]):
        if i:
            click.echo()
        values = (
            f"{each.metric} = {formatting.format_number(history.metric_of(trial, each.metric))}"
            for each in history.objectives
        )
        click.echo(f"{'  '.join(values)}  ({describe.trial_label(trial, history)})")
        for parameter, value in describe.config_items(trial.config):
            click.echo(f"{parameter} = {value}")
