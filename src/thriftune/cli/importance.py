"""`thriftune importance`: which parameters of a study matter?"""

from __future__ import annotations

import click

from thriftune.cli.common import existing_store, json_option, print_json, store_option
from thriftune.common.text import escaped
from thriftune.results.surrogate import checked_metric
from thriftune.study.ask_tell import load


@click.command("importance")
@click.argument("name")
@store_option
@click.option("--metric", metavar="METRIC", help="Of this metric, instead of the first objective.")
@json_option
def importance_command(name: str, store: str | None, metric: str | None, as_json: bool) -> None:
    """Each parameter's share of what makes trials differ, the most important first.

    Needs ten trials with a value, and two for each parameter.
    """
    with existing_store(store) as opened:
        study = load(name, opened)
        found = study.importance(metric)
        about = checked_metric(study.history, metric)
    if as_json:
        print_json({"metric": about, "importance": found})
        return
    click.echo(f"importance for {escaped(about)}")
    width = max(len(escaped(parameter)) for parameter in found)
    for parameter, share in found.items():
        click.echo(f"{escaped(parameter):<{width}}  {share:6.1%}")
