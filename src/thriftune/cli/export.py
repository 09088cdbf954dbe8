"""`thriftune export`: write a study's trials or reports as a table, for other programs."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from typing import Any

import click

from thriftune.cli.as_json import report_json, trial_json
from thriftune.cli.common import existing_store, store_option, to_json
from thriftune.common.text import escaped
from thriftune.study.ask_tell import load

_NOT_IN_CSV = {"output", "warnings", "values"}  # `values` would repeat columns of the metrics


@click.command("export")
@click.argument("name")
@store_option
@click.option(
    "--format",
    "kind",
    type=click.Choice(["csv", "json"]),
    help="The format.  [default: csv, or json if FILE ends in .json]",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write to FILE instead of printing."
)
@click.option("--reports", is_flag=True, help="Write one row for each report instead of each trial.")
def export_command(name: str, store: str | None, kind: str | None, output: Path | None, reports: bool) -> None:
    """Print all trials, or all reports, as CSV or JSON.

    In CSV, parameters are in columns such as config.lr, attributes in columns such as attrs.git, and metrics in
    columns such as metrics.loss. A trial's metrics are those of its last report. Times are in unix seconds.
    """
    with existing_store(store) as opened:
        study = load(name, opened)
        has_driver = opened.driver(name) is not None
        history = study.history
    if reports:
        rows = [
            {"trial": trial.id, "state": str(trial.state), "config": dict(trial.config), **report_json(report)}
            for trial in history.trials
            for report in trial.reports
        ]
    else:
        rows = [trial_json(trial, history, has_driver) for trial in history.trials]
    if kind is None:
        kind = "json" if output is not None and output.suffix == ".json" else "csv"
    text = to_json(rows) + "\n" if kind == "json" else _csv(rows, study.space.names)
    if output is None:
        if sys.stdout.isatty():
            text = "".join(f"{escaped(line)}\n" for line in text.splitlines())
        click.echo(text, nl=False, color=True)  # color=True: click must not remove escape sequences from values
    else:
        output.write_text(text, encoding="utf-8", newline="")


def _csv(rows: list[dict[str, Any]], parameters: Iterable[str]) -> str:
    metrics = list(dict.fromkeys(name for row in rows for name in row["metrics"]))
    attrs = dict.fromkeys(name for row in rows for name in row.get("attrs", ()))
    nested = [("config", name) for name in parameters] + [("metrics", name) for name in metrics]
    nested += [("attrs", name) for name in attrs]
    keys = [
        key for key in (rows[0] if rows else ("trial",)) if key not in {"config", "metrics", "attrs", *_NOT_IN_CSV}
    ]
    text = StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([*keys, *(f"{group}.{name}" for group, name in nested)])
    for row in rows:
        cells = [row[key] for key in keys] + [row[group].get(name) for group, name in nested]
        writer.writerow([_cell(cell) for cell in cells])
    return text.getvalue()


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, (list, tuple, dict, bool)) else value
