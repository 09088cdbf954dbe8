"""`thriftune importance`: how much each parameter of a study matters."""

from __future__ import annotations

import click

from thriftune.cli.common import existing_store, json_option, print_json, store_option
from thriftune.common.text import escaped
from thriftune.results.surrogate import checked_metric
from thriftune.study.ask_tell import load


@click.command("importance")
@click.argument("name")
@store_option
@click.option("--metric", metavar="METRIC", help="The metric to explain.  [default: the first objective]")
@json_option
def importance_command(name: str, store: str | None, metric: str | None, as_json: bool) -> None:
    """Show how much each parameter matters.

    The output is each parameter's share of the differences between trials, the most important first.

    The study needs at least ten trials with a value, and two for each parameter.
    """
    with existing_store(store) as opened:
        study = load(name, opened)
        shares = study.importance(metric)
        shown_metric = checked_metric(study.history, metric)
    if as_json:
        print_json({"metric": shown_metric, "importance": shares})
        return
    click.echo(f"importance for {escaped(shown_metric)}")
    width = max(len(escaped(parameter)) for parameter in shares)
    for parameter, share in shares.items():
        click.echo(f"{escaped(parameter):<{width}}  {share:6.1%}")
